r"""A step size and its half side by side, with shared randomness.

What a step size does to the answer is a power of it, so that the answer without it can be
extrapolated: $2\hat\theta_{h/2} - \hat\theta_h$ for the first power. Two runs with noise of
their own would more than double its variance. Here the noise of a coarse step is that of the two
fine ones it spans, the paths stay together, and most of the noise leaves with the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from pipla.algorithms.base import Algorithm, Condition, Geometry, Info
from pipla.models.model import Model


class Both(NamedTuple):
    """The same thing at a step size and at its half."""

    coarse: PyTree
    fine: PyTree


def extrapolated(both: PyTree, order: float = 1.0) -> PyTree:
    r"""What the two say of a step size of 0, for a bias of this order in it.

    With a bias $b h^p$ that is $\theta_{h/2} + (\theta_{h/2} - \theta_h)/(2^p - 1)$.
    """
    weight = 1 / (2**order - 1)
    return jax.tree.map(lambda coarse, fine: fine + weight * (fine - coarse), both[0], both[1])


class PairState(eqx.Module):
    """The states of the two runs."""

    coarse: PyTree
    fine: PyTree

    @property
    def theta(self) -> Both:
        """Both parameters."""
        return Both(self.coarse.theta, self.fine.theta)

    @property
    def particles(self) -> Both:
        """Both clouds; the leading axis of every leaf counts the particles."""
        return Both(self.coarse.particles, self.fine.particles)


class Paired(Algorithm[PairState]):
    """An algorithm run with its step size and with half of it: one step, and two half steps.

    Theta and particles of its state are pairs (`Both`).
    """

    scheme: Algorithm

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> PairState:
        state = self.scheme.init(model, theta, particles)
        return PairState(state, self.scheme.alike(state, state))

    def step(self, key: Key[Array, ""], state: PairState, model: Model) -> tuple[PairState, Info]:
        keys = jax.random.split(key)
        pair = (keys[0], keys[1])
        coarse, info = self.scheme.coarse_step(pair, state.coarse, model)
        half = self.scheme.rescaled(0.5)

        def fine_step(state: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Array]:
            state, info = half.step(key, state, model)
            return state, info.prox_gap

        # A loop, so that the step is compiled once for both.
        fine, gaps = jax.lax.scan(fine_step, state.fine, keys)
        fine = self.scheme.alike(fine, coarse)
        gap = jnp.maximum(info.prox_gap, jnp.max(gaps))
        return PairState(coarse, fine), info._replace(prox_gap=gap)

    def check(self, theta: PyTree, particles: PyTree) -> None:
        self.scheme.check(theta, particles)

    def completed(self, geometry: Geometry) -> Self:
        return type(self)(self.scheme.completed(geometry))

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        return self.scheme.conditions(geometry)

    def objections(self, model: Model) -> Sequence[str]:
        return self.scheme.objections(model)

    @property
    def label(self) -> str:
        return self.scheme.label
