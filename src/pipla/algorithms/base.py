"""What an algorithm is: numbers, an `init`, and one `step` with one signature."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks
from pipla.models.model import Model

#: A hyperparameter as users give it; it is stored as an array leaf.
Number = float | int | np.ndarray | Array


#: The relative accuracy of the power iteration, below which no condition is called broken.
SLACK = 1 + 1e-3


class Position(Protocol):
    """What every state shows: where theta and the particles are."""

    @property
    def theta(self) -> PyTree:
        """The parameter."""

    @property
    def particles(self) -> PyTree:
        """The particles; the leading axis of every leaf counts them."""


StateT = TypeVar("StateT", bound=Position)
AlgorithmT = TypeVar("AlgorithmT", bound="type[Algorithm]")


class Info(NamedTuple):
    """What a person may want to see of a step. What nobody reads is not computed."""

    theta_gradient: PyTree  # the mean gradient of g1 (in hybrid schemes of U) in theta
    particle_gradient: PyTree  # the gradient of g1 at each particle
    prox_gap: Float[Array, ""]  # the largest duality gap among the particles; 0 for closed forms


class Suggested(NamedTuple):
    """Numbers that suit a curvature."""

    step_size: float
    smoothing: float
    stiffness: float  # L, or 1 where g1 is flat
    convexity: float  # mu, or 0 where g1 is not convex


class Both(NamedTuple):
    """The same thing at a step size and at its half."""

    coarse: PyTree
    fine: PyTree


class Curvature(NamedTuple):
    r"""$L$, the largest modulus among the eigenvalues of the (scaled) Hessian of g1, and $\mu$,
    the smallest eigenvalue, over a few particles.

    Power iteration sees a small $\mu$ beside a large $L$ only up to a few percent of $L$.
    """

    largest: Float[Array, ""]
    smallest: Float[Array, ""]

    def suggest(
        self, smoothing: Number | None = None, largest_smoothing: float = math.inf
    ) -> Suggested:
        r"""The smoothing $1/L$ (if not given, and if not too large), and the step size
        $0.98/(L + 1/\lambda + \mu)$, which is inside the conditions of every theorem.
        """
        # A flat g1 sets no scale of its own: fall back on unit curvature.
        stiffness = float(self.largest) if float(self.largest) > 0 else 1.0
        convexity = max(float(self.smallest), 0.0)
        chosen = (
            float(smoothing) if smoothing is not None else min(1 / stiffness, largest_smoothing)
        )
        return Suggested(0.98 / (stiffness + 1 / chosen + convexity), chosen, stiffness, convexity)


class Geometry(Protocol):
    """What `pipla.tuning` measures of a model where a run starts: each when asked for, and once."""

    def theta_scale(self) -> PyTree:
        """One scale per leaf of theta that brings theta to the pace of x."""

    def curvature(self, theta_scale: PyTree) -> Curvature:
        """The curvature of g1 in the metric of this scale. Parts whose scale is 0 do not count."""

    def largest_smoothing(self) -> float:
        """The largest smoothing for which the joint prox stays in theta's own basin."""


class Condition(NamedTuple):
    """A range in which theory wants a number, and its source."""

    name: str
    value: Number
    low: float
    high: float
    source: str
    constant: str  # what the range depends on: "L = 4.2"

    @property
    def holds(self) -> bool:
        """Whether the number is in the range, up to the accuracy of the power iteration."""
        return self.low / SLACK <= float(self.value) <= self.high * SLACK

    @property
    def holds_exactly(self) -> bool:
        """Whether the number is in the range, up to rounding: where constants are not measured."""
        return self.low * (1 - 1e-9) <= float(self.value) <= self.high * (1 + 1e-9)

    def sentence(self, where: str = "") -> str:
        """In what way the number is out of the range; `where` is where the constant is from."""
        reason = f"({self.source}, with {self.constant}{where and ' ' + where})"
        if self.low == 0:
            return f"{self.name} = {float(self.value):.4g} exceeds {self.high:.4g} {reason}"
        ends = f"[{self.low:.4g}, {self.high:.4g}]"
        return f"{self.name} = {float(self.value):.4g} is outside {ends} {reason}"


def at_most(step_size: Number, high: float, source: str, stiffness: float) -> Condition:
    r"""$\gamma \le$ `high`, a bound that follows from the stiffness $L$ of $g_1$."""
    return Condition("step_size", step_size, 0.0, high, source, f"L = {stiffness:.4g}")


def at_most_inverse(step_size: Number, stiffness: float, source: str) -> Condition:
    r"""$\gamma \le 1/L$, a condition that several schemes share."""
    return at_most(step_size, 1 / stiffness if stiffness > 0 else math.inf, source, stiffness)


class Algorithm(eqx.Module, Generic[StateT]):
    """Hyperparameters as array leaves, choices as static fields; no loops, no I/O.

    An algorithm of your own writes `init` and `step`. The other methods have defaults.
    """

    #: The fields for which a sweep accepts arrays of numbers.
    swept: ClassVar[tuple[str, ...]] = ()
    #: Whether a particle outside the support of the prior would stay there for ever.
    needs_support: ClassVar[bool] = False

    @abc.abstractmethod
    def init(self, model: Model, theta: PyTree, particles: PyTree) -> StateT:
        """The state before the first step."""

    @abc.abstractmethod
    def step(self, key: Key[Array, ""], state: StateT, model: Model) -> tuple[StateT, Info]:
        """One step. All its randomness comes from `key`."""

    def coarse_step(
        self, keys: tuple[Key[Array, ""], Key[Array, ""]], state: StateT, model: Model
    ) -> tuple[StateT, Info]:
        """One step whose noise is that of two half steps with these keys, as far as it can be.

        The path of a step size and that of its half then stay close together, and their difference
        shows the bias of the step (`pipla.extrapolate`). By default the noise of the first.
        """
        return self.step(keys[0], state, model)

    def alike(self, fine: StateT, coarse: StateT) -> StateT:
        """The state of the half steps, with what should not differ from that of the long ones.

        By default nothing is shared. What was measured of the model, and not sampled, should be.
        """
        return fine

    def answer(self, tree: PyTree) -> PyTree:
        """What a model can be evaluated at, of a state's theta, its particles, or their trace.

        By default all of it. An algorithm that runs several side by side chooses one.
        """
        return tree

    def check(self, theta: PyTree, particles: PyTree) -> None:
        """Raise an error if this algorithm cannot run from this start."""

    def completed(self, geometry: Geometry) -> Self:
        """This algorithm with the numbers that were left out chosen for this geometry."""
        return self

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        """The conditions of the theory on its numbers."""
        return ()

    def objections(self, model: Model) -> Sequence[str]:
        """Why this algorithm should not be used on this model, or not learn theta with its term."""
        return model.nonsmooth.objections() if self.learns_theta else ()

    def joint_smoothing(self) -> Array | None:
        """The smoothing of the joint prox that moves theta; `None` where there is none."""
        return None

    def rescaled(self, factor: Number) -> Self:
        """This algorithm with its steps multiplied by `factor`."""
        raise TypeError(f"{self.label} has no step size that another algorithm could change.")

    def with_theta(self, state: StateT, theta: PyTree) -> StateT:
        """`state` with another theta."""
        return eqx.tree_at(lambda s: s.theta, state, theta)

    def with_numbers(self, **numbers: PyTree) -> Self:
        """This algorithm with these numbers in the place of its own."""
        known = {field.name for field in dataclasses.fields(self)}
        for name in numbers:
            if name not in known:
                raise TypeError(f"{self.label} has no number {name!r}.")
        return eqx.tree_at(
            lambda a: [getattr(a, name) for name in numbers],
            self,
            [jax.tree.map(_as_array, value) for value in numbers.values()],
            is_leaf=lambda leaf: leaf is None,
        )

    def numbers(self) -> dict[str, Array]:
        """Its numbers by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if eqx.is_array(value)}

    def settings(self) -> list[Self]:
        """One algorithm per number where a field holds an array of numbers, for a sweep."""
        values = {name: value for name, value in self.numbers().items() if name in self.swept}
        arrays = {name: value for name, value in values.items() if jnp.ndim(value) == 1}
        lengths = {name: len(value) for name, value in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"{' and '.join(lengths)} must have equally many numbers, got {lengths}."
            )
        if not arrays:
            return [self]
        count = next(iter(lengths.values()))
        return [
            self.with_numbers(**{name: value[i] for name, value in arrays.items()})
            for i in range(count)
        ]

    @property
    def learns_theta(self) -> bool:
        """Whether theta moves."""
        return True

    @property
    def label(self) -> str:
        """How it is called in tables and messages."""
        return type(self).__name__


def checked_algorithm(algorithm: Any) -> None:
    """`algorithm` is one, not its class or something else."""
    if not isinstance(algorithm, Algorithm):
        name = getattr(algorithm, "__name__", None) if callable(algorithm) else None
        hint = "" if name is None else f"; call it: `{name}()`"
        raise TypeError(
            f"algorithm must be one such as pipla.PIPGLA(), got {type(algorithm).__name__}{hint}."
        )


def _as_array(value: Any) -> Array:
    return _checks.float_array(value) if isinstance(value, float) else jnp.asarray(value)


def number(value: Any) -> Any:
    """A hyperparameter as a floating array leaf; `None` leaves it to `pipla.tuning`."""
    if value is None or isinstance(value, bool):  # a boolean is no number: the check says so
        return value
    try:
        if isinstance(value, float | int):
            return _checks.float_array(value)
        return _checks.real_array("number", value)
    except (TypeError, ValueError, OverflowError):
        return value  # the algorithm's check names the argument


def theta_scale(value: Any) -> Any:
    """`"auto"`, or a pytree of hyperparameters."""
    return value if isinstance(value, str) else jax.tree.map(number, value)


def check_theta_scale(value: PyTree) -> None:
    """`value` is `"auto"`, or a positive number or a pytree of them."""
    if isinstance(value, str):
        _checks.choice("theta_scale", value, ("auto",))
    else:
        for path, leaf in _checks.leaves("theta_scale", value):
            _checks.positive(_checks.where("theta_scale", path), leaf)


def check_scale_like_theta(value: PyTree, theta: PyTree) -> None:
    """`value` is a number, or a pytree like theta of numbers or of arrays of its leaves' shapes."""
    try:
        scales = jax.tree.leaves(jax.tree.broadcast(value, theta))
    except (ValueError, TypeError) as error:
        raise ValueError(
            "theta_scale must be a number or a pytree of numbers like theta; got the structure "
            f"{jax.tree.structure(value)} for a theta of structure {jax.tree.structure(theta)}."
        ) from error
    for given, part in zip(scales, jax.tree.leaves(theta), strict=True):
        if np.shape(given) not in ((), np.shape(part)):
            raise ValueError(
                "theta_scale must hold one number for each part of theta; got shape "
                f"{np.shape(given)} for a part of shape {np.shape(part)}."
            )


#: Algorithms that can be restored from files, by the names they have there.
REGISTERED: dict[str, type[Algorithm]] = {}


def register(algorithm: AlgorithmT) -> AlgorithmT:
    """A class decorator: results of this algorithm can be resumed from disk.

    Files hold names and numbers, never code. When such a file is loaded, the class must have been
    imported and registered.
    """
    name = file_name(algorithm)
    redefined = "<locals>" in name or name.startswith("__main__.")  # a cell that is run again
    if REGISTERED.get(name, algorithm) is not algorithm and not redefined:
        raise ValueError(f"an algorithm of the name {name!r} is registered already.")
    REGISTERED[name] = algorithm
    return algorithm


def file_name(algorithm: type[Algorithm]) -> str:
    """The name of an algorithm in files: short for pipla's own, with the module for others."""
    if algorithm.__module__.split(".")[0] == "pipla":
        return algorithm.__name__
    return f"{algorithm.__module__}.{algorithm.__qualname__}"


def given(name: str, value: Array | None) -> Array:
    """A number that a step needs, or an error that names it."""
    if value is None or isinstance(value, str):
        raise ValueError(
            f"{name} was left out. `pipla.run` and `pipla.sweep` choose it for the start of a run; "
            "elsewhere give a number."
        )
    return value
