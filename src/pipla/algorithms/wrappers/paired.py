r"""A step size and its half side by side, with shared randomness.

What a step size does to the answer is a power of it, so that the answer without it can be
extrapolated: $2\hat\theta_{h/2} - \hat\theta_h$ for the first power. Two runs with noise of
their own would more than double its variance. Here the noise of a coarse step is that of the two
fine ones it spans, the paths stay together, and most of the noise leaves with the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from pipla.algorithms.base import Both, Condition, Geometry, Info, Number, register
from pipla.algorithms.wrappers.wrapper import Wrapper, WrapperState
from pipla.models.model import Model


def extrapolated(both: PyTree, order: float = 1.0) -> PyTree:
    r"""What the two say of a step size of 0, for a bias of this order in it.

    With a bias $b h^p$ that is $\theta_{h/2} + (\theta_{h/2} - \theta_h)/(2^p - 1)$.
    """
    weight = 1 / (2**order - 1)
    return jax.tree.map(lambda coarse, fine: fine + weight * (fine - coarse), both[0], both[1])


class PairState(WrapperState):
    """The states of the two runs: `inner` is that of the whole steps, `fine` of the half steps."""

    fine: PyTree

    @property
    def theta(self) -> Both:
        """Both parameters."""
        return Both(self.inner.theta, self.fine.theta)

    @property
    def particles(self) -> Both:
        """The particles of both; the leading axis of every leaf counts them."""
        return Both(self.inner.particles, self.fine.particles)


@register
class Paired(Wrapper[PairState]):
    """An algorithm run with its step size and with half of it: one step, and two half steps.

    Theta and particles of its state, and the gradients of its steps, are pairs (`Both`).
    """

    name: str = eqx.field(static=True, default="", kw_only=True)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> PairState:
        state = self.scheme.init(model, theta, particles)
        return PairState(state, self.scheme.alike(state, state))

    def step(self, key: Key[Array, ""], state: PairState, model: Model) -> tuple[PairState, Info]:
        keys = jax.random.split(key)
        coarse, whole = self.scheme.coarse_step((keys[0], keys[1]), state.inner, model)
        scheme = self.scheme.rescaled(0.5)

        def fine_step(state: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Info]:
            return scheme.step(key, state, model)

        # A loop, so that the step is compiled once for both.
        fine, halves = jax.lax.scan(fine_step, state.fine, keys)
        last = jax.tree.map(lambda leaf: leaf[-1], halves)
        info = Info(
            Both(whole.theta_gradient, last.theta_gradient),
            Both(whole.particle_gradient, last.particle_gradient),
            jnp.maximum(whole.prox_gap, jnp.max(halves.prox_gap)),
        )
        return PairState(coarse, self.scheme.alike(fine, coarse)), info

    def answer(self, tree: Both) -> PyTree:
        return tree.fine

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        return self.scheme.conditions(geometry)

    def rescaled(self, factor: Number) -> Self:
        return self.around(self.scheme.rescaled(factor))

    def with_theta(self, state: PairState, theta: PyTree) -> PairState:
        inner, fine = map(self.scheme.with_theta, (state.inner, state.fine), theta)
        return PairState(inner, fine)

    @property
    def label(self) -> str:
        return self.name or self.scheme.label
