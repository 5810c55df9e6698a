"""Trained networks on disk: numbers, names and no code.

A file cannot hold a module. What is saved is everything that was learned, and the priors and the
family of the network; `load` puts it into a network that the caller makes as before.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import _trees
from pipla.diagnostics import Finding
from pipla.engine import storage
from pipla.engine.archive import DamagedResultError
from pipla.engine.result import Result
from pipla.engine.run import in_structure_of
from pipla.networks.modelling import NetworkModel


@dataclasses.dataclass(frozen=True)
class SavedNetwork:
    """What a file holds of a trained network.

    Attributes:
        result: the run, in non-centred coordinates.
        priors: the prior of each latent layer.
        family: the name of the class of what the network predicts.
        findings: those of the trained network.
        num_observations: how many it was trained on; 0 if unknown.
        answers: what its first particle predicts of `_probe`; `None` if unknown.
    """

    result: Result
    priors: dict[str, str]
    family: str
    findings: tuple[Finding, ...]
    num_observations: int = 0
    answers: np.ndarray | None = None


def save(
    network: NetworkModel,
    result: Result,
    findings: tuple[Finding, ...],
    num_observations: int,
    path: str | Path,
) -> Path:
    """Write a trained network to a folder of its own, in one step."""
    priors: dict[str, str] = {layer.name: layer.prior for layer in network.layers}
    family = type(network.family).__name__
    answers = _answers(network, result)
    saved = SavedNetwork(result, priors, family, findings, num_observations, answers)
    return storage.save(saved, path)


def load(network: NetworkModel, path: str | Path) -> SavedNetwork:
    """What is in this folder, or an error that says why it is not of this network."""
    if not isinstance(network, NetworkModel):
        raise TypeError(
            "network must be made by `pipla.networks.model`, as the one that was trained; got "
            f"{type(network).__name__}."
        )
    found = storage.load(path)
    if not isinstance(found, SavedNetwork):
        raise TypeError(
            f"path {str(path)!r} holds a {type(found).__name__}, not a trained network; use "
            "`pipla.load`."
        )
    here, there = _described(network), _described_result(found)
    for name, expected in there.items():
        if here[name] != expected:
            raise ValueError(
                f"network does not fit the trained one in {str(path)!r}: {name} {here[name]} is "
                f"not the {expected} of the file."
            )
    if found.answers is not None:
        _check_answers(found.answers, _answers(network, found.result), path)
    return found


def _answers(network: NetworkModel, result: Result) -> np.ndarray:
    """What the first particle predicts of two made-up observations: functions are in no file."""
    theta = in_structure_of("theta", network.theta, result.theta_last, result.modules)
    theta = jax.tree.map(lambda last, one: jnp.asarray(last, one.dtype), theta, network.theta)
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], result.particles)
    weights = jax.tree.map(lambda leaf: leaf[None], network.noncentred.back(theta, first))
    return network.draws(theta, weights, _probe(network.likelihood.features))[0]


def _probe(features: PyTree) -> PyTree:
    """Two observations of the same kind: normal numbers, or 0 where a feature is an integer."""
    rng = np.random.default_rng(0)

    def leaf(given: Any) -> np.ndarray:
        shape = (2, *given.shape[1:])
        floats = jnp.issubdtype(given.dtype, jnp.floating)
        return (rng.standard_normal(shape) if floats else np.zeros(shape)).astype(given.dtype)

    return jax.tree.map(leaf, features)


def _check_answers(saved: np.ndarray, here: np.ndarray, path: str | Path) -> None:
    """The same up to rounding, which differs between devices and precisions."""
    if np.shape(saved) == here.shape and np.allclose(
        saved, here, rtol=0.01, atol=0.01, equal_nan=True
    ):
        return
    raise ValueError(
        f"network computes something else than the trained one in {str(path)!r}: its shapes are "
        "the same, but not its predictions. Is an activation, or another function in the module, "
        "not the one that it was trained with?"
    )


def _described(network: NetworkModel) -> dict[str, Any]:
    """What a network and a file must have in common, by name."""
    return {
        "layers": {layer.name: layer.prior for layer in network.layers},
        "family": type(network.family).__name__,
        "weights of shape": {layer.name: layer.shape for layer in network.layers},
        "theta of shape": _shapes(network.theta),
    }


def _described_result(saved: SavedNetwork) -> dict[str, Any]:
    weights = {name: np.shape(leaf)[1:] for name, leaf in saved.result.particles.items()}
    return {
        "layers": saved.priors,
        "family": saved.family,
        "weights of shape": weights,
        "theta of shape": _shapes(saved.result.theta_last),
    }


def _shapes(theta: PyTree) -> dict[str, tuple[int, ...]]:
    """By path: the modules of a file are dicts."""
    found = jax.tree_util.tree_leaves_with_path(theta)
    return {"/".join(map(str, _trees.path_keys(path))): np.shape(leaf) for path, leaf in found}


def check_consistent(saved: SavedNetwork) -> None:
    """Raise `DamagedResultError` where what a file says contradicts itself."""
    storage.check_result(saved.result)
    particles, kept = saved.result.particles, saved.result.saved_particles
    trees = {"particles": particles} | ({} if kept is None else {"saved_particles": kept})
    for name, tree in trees.items():
        named = type(tree) is dict and set(tree) == set(saved.priors)
        if not named or any(not isinstance(leaf, np.ndarray | jax.Array) for leaf in tree.values()):
            raise DamagedResultError(f"{name} are not those of the latent layers.")
    for part in ("scales", "network"):
        if type(saved.result.theta_trace) is not dict or part not in saved.result.theta_trace:
            raise DamagedResultError(f"theta has no part {part!r}.")
    if set(saved.result.theta_trace["scales"]) != set(saved.priors):
        raise DamagedResultError("the scales are not those of the latent layers.")
