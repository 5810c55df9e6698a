"""How much of its observations a network explains: its loss beside that of a constant."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla.diagnostics import Finding
from pipla.networks._likelihood import NetworkLikelihood
from pipla.networks.modelling import NetworkModel

#: The most observations on which losses are compared.
MOST_JUDGED = 4096
#: A network explains something if its observations are this many times as probable as under a
#: constant, which is called strong evidence (Kass and Raftery 1995).
STRONG = 20.0


def some_of(seen: NetworkLikelihood) -> NetworkLikelihood:
    """Observations to compare losses on: all, or `MOST_JUDGED` of them."""
    rows = seen.num_rows() or 1
    return seen.rows(jnp.asarray(np.linspace(0, rows - 1, min(rows, MOST_JUDGED)).astype(int)))


def mean_loss(
    network: NetworkModel, theta: PyTree, particles: dict[str, np.ndarray], seen: NetworkLikelihood
) -> float:
    """Minus the mean log predictive density of these observations."""
    return -network.log_predictive_density(theta, particles, seen.features, seen.labels)


def loss_without(
    network: NetworkModel, theta: PyTree, particles: dict[str, np.ndarray], seen: NetworkLikelihood
) -> float:
    """The mean loss of the best constant; where that is unknown, of the network with weights 0."""
    constant = network.family.constant_loss(np.asarray(seen.labels))
    if constant is not None:
        return constant
    zeros = {name: np.zeros_like(weights[:1]) for name, weights in particles.items()}
    return mean_loss(network, theta, zeros, seen)


def nothing(
    network: NetworkModel, theta: PyTree, particles: dict[str, np.ndarray]
) -> tuple[Finding, ...]:
    """A finding if the network explains no more of its observations than a constant would."""
    seen = some_of(network.likelihood)
    found = mean_loss(network, theta, particles, seen)
    constant = loss_without(network, theta, particles, seen)
    if not math.isfinite(found) or (seen.num_rows() or 1) * (constant - found) > math.log(STRONG):
        return ()
    return (
        Finding(
            "the loss",
            f"the network explains no more of its observations than a constant would (mean loss "
            f"{found:.3g}, of a constant {constant:.3g}); the features say nothing of the labels, "
            "or the weights have stayed near 0",
            "try another key, more units, or another prior",
        ),
    )
