"""Decreasing step sizes: a fast transient and a small final bias, for any algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks
from pipla.algorithms.base import Algorithm, Condition, Geometry, Info, Number, number, register
from pipla.algorithms.wrappers.wrapper import (
    InnerT,
    Wrapper,
    WrapperState,
    fraction,
    zero_like,
)
from pipla.models.model import Model


class AnnealedState(WrapperState[InnerT]):
    """The inner state, and the number of steps made."""

    steps: Float[Array, ""]


@register
class Annealed(Wrapper[AnnealedState]):
    r"""An algorithm with the step size $f_n \gamma$, $f_n = 1 + (f_0 - 1)/(1 + n/n_0)^2$.

    Arguments:
        scheme: which one, with its final step size $\gamma$.
        first: $f_0$, the first step in units of the final one.
        change_after: $n_0$, the number of steps after which it becomes smaller.
    """

    first: Array = eqx.field(converter=number, default=10.0)
    change_after: Array = eqx.field(converter=number, default=20.0)
    name: str = eqx.field(static=True, default="", kw_only=True)

    def __check_init__(self) -> None:
        for name in ("first", "change_after"):
            _checks.positive(name, getattr(self, name))
        if isinstance(self.scheme, Algorithm):
            self.scheme.rescaled(1.0)  # an error where there is no step to change

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> AnnealedState:
        return AnnealedState(self.scheme.init(model, theta, particles), zero_like(particles))

    def step(
        self, key: Key[Array, ""], state: AnnealedState, model: Model
    ) -> tuple[AnnealedState, Info]:
        inner, info = self._now(state).step(key, state.inner, model)
        return AnnealedState(inner, state.steps + 1), info

    def coarse_step(
        self, keys: tuple[Key[Array, ""], Key[Array, ""]], state: AnnealedState, model: Model
    ) -> tuple[AnnealedState, Info]:
        inner, info = self._now(state).coarse_step(keys, state.inner, model)
        return AnnealedState(inner, state.steps + 1), info

    def _now(self, state: AnnealedState) -> Algorithm:
        """The algorithm with the step size of this step."""
        factor = fraction(state.steps, self.first, jnp.ones_like(self.first), self.change_after)
        return self.scheme.rescaled(factor)

    def rescaled(self, factor: Number) -> Self:
        return self.around(self.scheme.rescaled(factor))

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        return self.scheme.conditions(geometry)
