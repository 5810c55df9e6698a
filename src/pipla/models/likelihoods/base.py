r"""The smooth part of a model: what every likelihood offers, and plain functions as likelihoods."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import Array, Float, PyTree

from pipla import _trees
from pipla._trees import Address, Path
from pipla.operators.eigenbasis import Eigenbasis

Scalar = Float[Array, ""]


class Likelihood(eqx.Module):
    r"""Minus a log likelihood, $g_1(\theta, x)$, for one particle x.

    A subclass writes `__call__`. The other methods are abilities: a likelihood that has one
    overrides it, and the default, `None`, says that it has not. Algorithms ask here and nowhere
    else.
    """

    @abc.abstractmethod
    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        """The potential $g_1(\\theta, x)$."""

    @property
    def bounded(self) -> bool:
        """Whether $g_1$ is known to be bounded below, as minus a log likelihood is.

        What is not known is looked at before a fit. A subclass may write `bounded = True`.
        """
        return False

    def uses_theta(self, theta: PyTree, x: PyTree, data: PyTree = None) -> bool:
        """Whether the value depends on theta."""
        program = jax.make_jaxpr(lambda theta: self(theta, x, data))(theta).jaxpr
        _, used = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
        return any(used)

    def flow(self, theta: PyTree, x: PyTree, time: PyTree, noise: PyTree) -> PyTree | None:
        r"""Where $\mathrm{d}X = -\nabla_x g_1\,\mathrm{d}t + \sqrt2\,\mathrm{d}W$ is after `time`.

        `noise` is $\sqrt{2h}\,\xi$ for the time $h$ and standard normals $\xi$.
        """
        return None

    def resolvent(self, theta: PyTree, x: PyTree, lam: PyTree) -> PyTree | None:
        """The proximal map of $g_1$ over x."""
        return None

    def stiffness(self, theta: PyTree) -> Array | None:
        """The largest eigenvalue of the Hessian in x, or a bound that holds for every x."""
        return None

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree | None:
        """Theta where the mean of $g_1$ over the particles is smallest."""
        return None

    def gibbs(self, theta: PyTree, x: PyTree, noise: PyTree) -> PyTree | None:
        """x after each of its blocks in turn was drawn from its distribution given the others.

        `noise` has a standard normal for every number in x.
        """
        return None

    def interwoven(self, theta: PyTree, particles: PyTree) -> tuple[PyTree, PyTree] | None:
        """Theta nearer to its best in non-centred coordinates, and the particles moved along."""
        return None

    def noncentring(self) -> tuple[Any, Any] | None:
        """The change of variables and the term in x of which this is the non-centred potential.

        A `Bijector` and a `Term`; see `pipla.noncentred`.
        """
        return None

    def surrogate(self, theta: PyTree, x: PyTree) -> Eigenbasis | None:
        """An eigenbasis of the Hessian in x, or of a matrix near it."""
        return None

    def sets_theta(self) -> Path | None:
        """The path of the part of theta that is this likelihood's own, such as a noise level."""
        return None

    def at_theta(self, address: Address) -> Likelihood | None:
        """This likelihood with its own part of theta, which was the whole, at an address."""
        return None

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        """What its own part of theta means, by name: a noise level. See `Term.parameters`."""
        return {}

    def num_rows(self) -> int | None:
        """The number of observations that `rows` chooses from."""
        return None

    def rows(self, indices: Array) -> Likelihood | None:
        """The likelihood of these observations alone; the indices may be traced."""
        return None

    def scaled(self, factor: float) -> Likelihood:
        """This potential times a number, as if every observation counted so often."""
        return Scaled(self, factor)


class Forwarding(Likelihood):
    """A likelihood made from another one, whose abilities it has.

    A subclass writes those that it changes, and lists those that it has not as
    `flow = Likelihood.flow`. A test walks all of them.
    """

    likelihood: Likelihood

    def around(self, likelihood: Likelihood | None) -> Self | None:
        """This around another likelihood; `None` around none."""
        return None if likelihood is None else dataclasses.replace(self, likelihood=likelihood)

    @property
    def bounded(self) -> bool:
        """Whether the likelihood inside is."""
        return self.likelihood.bounded

    def uses_theta(self, theta: PyTree, x: PyTree, data: PyTree = None) -> bool:
        return self.likelihood.uses_theta(theta, x, data)

    def flow(self, theta: PyTree, x: PyTree, time: PyTree, noise: PyTree) -> PyTree | None:
        return self.likelihood.flow(theta, x, time, noise)

    def resolvent(self, theta: PyTree, x: PyTree, lam: PyTree) -> PyTree | None:
        return self.likelihood.resolvent(theta, x, lam)

    def stiffness(self, theta: PyTree) -> Array | None:
        return self.likelihood.stiffness(theta)

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree | None:
        return self.likelihood.closed_form(theta, particles)

    def gibbs(self, theta: PyTree, x: PyTree, noise: PyTree) -> PyTree | None:
        return self.likelihood.gibbs(theta, x, noise)

    def interwoven(self, theta: PyTree, particles: PyTree) -> tuple[PyTree, PyTree] | None:
        return self.likelihood.interwoven(theta, particles)

    def noncentring(self) -> tuple[Any, Any] | None:
        return self.likelihood.noncentring()

    def surrogate(self, theta: PyTree, x: PyTree) -> Eigenbasis | None:
        return self.likelihood.surrogate(theta, x)

    def sets_theta(self) -> Path | None:
        return self.likelihood.sets_theta()

    def at_theta(self, address: Address) -> Likelihood | None:
        return self.around(self.likelihood.at_theta(address))

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        return self.likelihood.parameters(theta)

    def num_rows(self) -> int | None:
        return self.likelihood.num_rows()

    def rows(self, indices: Array) -> Likelihood | None:
        return self.around(self.likelihood.rows(indices))

    def scaled(self, factor: float) -> Likelihood:
        return dataclasses.replace(self, likelihood=self.likelihood.scaled(factor))


class Scaled(Forwarding):
    """A potential times a positive number."""

    factor: float = eqx.field(static=True)

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        return self.factor * self.likelihood(theta, x, data)

    def stiffness(self, theta: PyTree) -> Array | None:
        stiffness = self.likelihood.stiffness(theta)
        return None if stiffness is None else self.factor * stiffness

    # Another factor is another distribution of x.
    flow = Likelihood.flow
    resolvent = Likelihood.resolvent
    gibbs = Likelihood.gibbs
    interwoven = Likelihood.interwoven
    surrogate = Likelihood.surrogate


class Tilted(Forwarding):
    r"""A potential minus a linear function of theta and x, $\langle a, \theta\rangle +
    \langle b, x\rangle$: another gradient, the same curvature.

    Where the likelihood does not depend on theta, $a$ is 0.
    """

    for_theta: PyTree
    for_x: PyTree

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        tilt = _trees.dot(self.for_theta, theta) + _trees.dot(self.for_x, x)
        return self.likelihood(theta, x, data) - tilt

    # The linear function changes them, and belongs to all rows together.
    bounded = Likelihood.bounded
    flow = Likelihood.flow
    resolvent = Likelihood.resolvent
    closed_form = Likelihood.closed_form
    gibbs = Likelihood.gibbs
    interwoven = Likelihood.interwoven
    surrogate = Likelihood.surrogate
    at_theta = Likelihood.at_theta
    num_rows = Likelihood.num_rows
    rows = Likelihood.rows
    scaled = Likelihood.scaled


class Function(Likelihood):
    """A plain function `(theta, x, data) -> scalar` as a likelihood without abilities."""

    function: Callable[[PyTree, PyTree, PyTree], Scalar]

    def __check_init__(self) -> None:
        _require_function("function", self.function)

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        try:
            return self.function(theta, x, data)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            kind = ValueError if isinstance(error, ValueError | LookupError) else TypeError
            name = "" if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: "
            raise kind(
                f"smooth(theta, x, data) failed for theta {jax.tree.map(shape_of, theta)} and one "
                f"particle {jax.tree.map(shape_of, x)} (particles without their leading axis): "
                f"{name}{error}"
            ) from error


class Flat(Likelihood):
    """No likelihood: the whole potential is in the non-smooth term."""

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        return jnp.zeros((), _trees.dtype(x))


def as_likelihood(smooth: Any) -> Likelihood:
    """A likelihood as it is, a function wrapped, `None` as a flat one."""
    if isinstance(smooth, Likelihood):
        return smooth
    if smooth is None:
        return Flat()
    _require_function("smooth", smooth)
    return Function(smooth)


def _require_function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(
            f"{name} must be a function (theta, x, data) -> scalar, got {type(value).__name__}."
        )


def shape_of(leaf: Any) -> str:
    """The dtype and the shape of a leaf, for messages."""
    if not isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct):
        return type(leaf).__name__
    return f"{leaf.dtype}{list(leaf.shape)}"
