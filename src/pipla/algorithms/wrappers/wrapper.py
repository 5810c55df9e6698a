"""What algorithms around algorithms share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Generic, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla import _trees
from pipla.algorithms.base import Algorithm, Geometry, Position
from pipla.models.model import Model

InnerT = TypeVar("InnerT", bound=Position)


class WrapperState(eqx.Module, Generic[InnerT]):
    """The state of the algorithm inside; a wrapper adds its own."""

    inner: InnerT

    @property
    def theta(self) -> PyTree:
        """The parameter."""
        return self.inner.theta

    @property
    def particles(self) -> PyTree:
        """The particles."""
        return self.inner.particles


WrapperStateT = TypeVar("WrapperStateT", bound=WrapperState)


class Wrapper(Algorithm[WrapperStateT]):
    """An algorithm that sets the numbers of another one, `scheme`, as it goes. Wrappers nest."""

    scheme: Algorithm
    name: eqx.AbstractVar[str]

    def __check_init__(self) -> None:
        if not isinstance(self.scheme, Algorithm):
            raise TypeError(
                "scheme must be an algorithm, such as pipla.PIPGLA(0.01), "
                f"got {type(self.scheme).__name__}."
            )

    @property
    def step_size(self) -> Array | None:
        """The step size of the algorithm inside."""
        return self.scheme.numbers().get("step_size")

    @property
    def smoothing(self) -> Array | None:
        """The smoothing of the algorithm inside."""
        return self.scheme.numbers().get("smoothing")

    def check(self, theta: PyTree, particles: PyTree) -> None:
        self.scheme.check(theta, particles)

    def objections(self, model: Model) -> Sequence[str]:
        return self.scheme.objections(model)

    def joint_smoothing(self) -> Array | None:
        return self.scheme.joint_smoothing()

    def completed(self, geometry: Geometry) -> Self:
        return self.around(self.scheme.completed(geometry))

    def around(self, scheme: Algorithm) -> Self:
        """This wrapper around another algorithm."""
        # Not `dataclasses.replace`, which converts its numbers again and changes their dtypes.
        return eqx.tree_at(lambda wrapper: wrapper.scheme, self, scheme)

    def with_theta(self, state: WrapperStateT, theta: PyTree) -> WrapperStateT:
        return dataclasses.replace(state, inner=self.scheme.with_theta(state.inner, theta))

    def alike(self, fine: WrapperStateT, coarse: WrapperStateT) -> WrapperStateT:
        return dataclasses.replace(fine, inner=self.scheme.alike(fine.inner, coarse.inner))

    def with_numbers(self, **numbers: PyTree) -> Self:
        own = {field.name for field in dataclasses.fields(self)}
        mine = {name: value for name, value in numbers.items() if name in own}
        inner = {name: value for name, value in numbers.items() if name not in own}
        changed = super().with_numbers(**mine) if mine else self
        return changed.around(self.scheme.with_numbers(**inner)) if inner else changed

    def numbers(self) -> dict[str, Array]:
        return self.scheme.numbers() | super().numbers()

    def settings(self) -> list[Self]:
        return [self.around(scheme) for scheme in self.scheme.settings()]

    @property
    def learns_theta(self) -> bool:
        return self.scheme.learns_theta

    @property
    def label(self) -> str:
        return self.name or f"{type(self).__name__}({self.scheme.label})"


def zero_like(particles: PyTree) -> Array:
    """The number 0 in the dtype of the particles."""
    return jnp.zeros((), _trees.dtype(particles))


def fraction(steps: Array, first: Array, last: Array, change_after: Array) -> Array:
    r"""$f_n = f_\infty + (f_0 - f_\infty)/(1 + n/n_0)^2$."""
    return last + (first - last) / (1 + steps / change_after) ** 2
