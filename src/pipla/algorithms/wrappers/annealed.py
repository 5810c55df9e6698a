"""Large steps first, to travel, then small ones, for their smaller bias: any scheme."""

from __future__ import annotations

from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks
from pipla.algorithms.base import Algorithm, Info, Limits, State
from pipla.algorithms.langevin import Langevin, number
from pipla.models.model import Model


class AnnealedState(NamedTuple):
    """The inner state, and how many steps were made."""

    theta: PyTree
    particles: PyTree
    inner: PyTree  # warm starts and optimiser of the scheme
    steps: Float[Array, ""]


def fraction(steps: Array, first: Array, last: Array, change_after: Array) -> Array:
    r"""$f_n = f_\infty + (f_0 - f_\infty)/(1 + n/n_0)^2$."""
    return last + (first - last) / (1 + steps / change_after) ** 2


class Driving(Algorithm):
    """An algorithm that sets the numbers of a scheme as it goes."""

    scheme: Langevin

    def __check_init__(self) -> None:
        if not isinstance(self.scheme, Langevin):
            raise TypeError(
                "scheme must be one of the family, such as pipla.PIPGLA(0.01), "
                f"got {type(self.scheme).__name__}."
            )

    @property
    def scheme_itself(self) -> Langevin:
        return self.scheme

    def filled(self, numbers: dict[str, PyTree]) -> Self:
        return eqx.tree_at(lambda a: a.scheme, self, self.scheme.filled(numbers))

    def missing(self) -> tuple[str, ...]:
        return self.scheme.missing()

    def check(self, theta: PyTree, particles: PyTree) -> None:
        self.scheme.check(theta, particles)


class Annealed(Driving):
    r"""A scheme with the step size $f_n \gamma$,
    $f_n = 1 + (f_0 - 1)/(1 + n/n_0)^2$.

    Arguments:
        scheme: which one, with its final step size $\gamma$.
        first: $f_0$, the first step in units of the final one.
        change_after: $n_0$, after how many steps it becomes smaller.
    """

    first: Array = eqx.field(converter=number, default=10.0)
    change_after: Array = eqx.field(converter=number, default=20.0)
    name: str = eqx.field(static=True, default="", kw_only=True)

    def __check_init__(self) -> None:
        for name in ("first", "change_after"):
            _checks.positive(name, getattr(self, name))
        if getattr(self.scheme, "step_size", ...) is None:
            raise ValueError("scheme needs a step_size of its own: give it a number.")

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> AnnealedState:  # type: ignore[override]
        inner = self.scheme.init(model, theta, particles)
        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(particles)))
        return AnnealedState(theta, particles, (inner.warm, inner.optimizer), zero)

    def step(  # type: ignore[override]
        self, key: Key[Array, ""], state: AnnealedState, model: Model
    ) -> tuple[AnnealedState, Info]:
        factor = fraction(state.steps, self.first, jnp.ones_like(self.first), self.change_after)
        scheme = eqx.tree_at(
            lambda a: a.step_size, self.scheme, replace_fn=lambda gamma: gamma * factor
        )
        inner, info = scheme.step(key, State(state.theta, state.particles, *state.inner), model)
        rest = (inner.warm, inner.optimizer)
        return AnnealedState(inner.theta, inner.particles, rest, state.steps + 1), info

    @property
    def limited(self) -> bool:  # type: ignore[override]
        """Whether the scheme is."""
        return self.scheme.limited

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        return self.scheme.limits(largest, smallest)
