"""What an algorithm is: numbers, an `init`, and one `step` with one signature."""

from __future__ import annotations

import abc
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla.models.model import Model


class State(NamedTuple):
    """What the next step needs, and nothing else."""

    theta: PyTree
    particles: PyTree
    warm: PyTree  # warm starts of an iterative prox, one a particle
    optimizer: PyTree  # the state of `theta_optimizer`


class Info(NamedTuple):
    """What a person may want to see of a step; what nobody reads is not computed."""

    theta_gradient: PyTree  # the mean slope of g1 (and of g2, in hybrid schemes) in theta
    particle_gradient: PyTree  # the slope of g1 at each particle
    prox_gap: Float[Array, ""]  # the largest duality gap among the particles; 0 for closed forms


class Limits(NamedTuple):
    """Where theory holds: the largest step size, the range of the smoothing, and who says so."""

    step_size: Float[Array, ""]
    smoothing: tuple[Float[Array, ""], Float[Array, ""]] | None
    source: str


class Algorithm(eqx.Module):
    """Hyperparameters as array leaves, choices as static fields; no loops, no I/O."""

    #: The numbers without which a step cannot be made; `None` leaves one to `pipla.tuning`.
    needs: ClassVar[tuple[str, ...]] = ()

    #: Whether `limits` depend on the curvature at all, which costs a power iteration to measure.
    limited: ClassVar[bool] = True

    @abc.abstractmethod
    def init(self, model: Model, theta: PyTree, particles: PyTree) -> State:
        """The state before the first step."""

    @abc.abstractmethod
    def step(self, key: Key[Array, ""], state: State, model: Model) -> tuple[State, Info]:
        """One step. All its randomness comes from `key`."""

    @abc.abstractmethod
    def check(self, theta: PyTree, particles: PyTree) -> None:
        """Raise an error if this algorithm cannot run from this start."""

    @abc.abstractmethod
    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        """Where theory holds when the Hessian of g1 has these extreme eigenvalues."""

    @property
    def scheme_itself(self) -> Algorithm:
        """What holds the numbers: the algorithm, or the scheme that it drives."""
        return self

    def filled(self, numbers: dict[str, PyTree]) -> Self:
        """With these numbers, which were left out."""
        return eqx.tree_at(
            lambda a: [getattr(a, name) for name in numbers],
            self,
            [jax.tree.map(jnp.asarray, value) for value in numbers.values()],
            is_leaf=lambda leaf: leaf is None,
        )

    def missing(self) -> tuple[str, ...]:
        """The hyperparameters that were left to `pipla.tuning`."""
        unset = tuple(name for name in self.needs if getattr(self, name) is None)
        automatic = isinstance(getattr(self, "theta_scale", None), str)
        return unset + (("theta_scale",) if automatic else ())
