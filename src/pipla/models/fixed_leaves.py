r"""Leaves of theta and x that are carried along: the functions, integers and text of a module.

Algorithms see the arrays of floats alone. What else there is in theta and x is taken out where a
run begins, and put back before the likelihood, `Save.quantity` and callbacks see them.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, PyTree

from pipla import _trees
from pipla._trees import Fixed, Path
from pipla.models.likelihoods.base import Likelihood, Scalar
from pipla.operators.eigenbasis import Eigenbasis


class Completed(Likelihood):
    """A likelihood of complete theta and x as one of their learned leaves.

    Its abilities return trees of learned leaves, and get such trees.
    """

    likelihood: Likelihood
    fixed: Fixed

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        return self.likelihood(*self.fixed.complete(theta, x), data)

    @property
    def bounded(self) -> bool:
        """Whether the likelihood is."""
        return self.likelihood.bounded

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

    def surrogate(self, theta: PyTree, x: PyTree) -> Eigenbasis | None:
        return self.likelihood.surrogate(theta, x)

    def sets_theta(self) -> Path | None:
        return self.likelihood.sets_theta()

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        return self.likelihood.parameters(theta)

    def num_rows(self) -> int | None:
        return self.likelihood.num_rows()

    def rows(self, indices: Array) -> Likelihood | None:
        some = self.likelihood.rows(indices)
        return None if some is None else Completed(some, self.fixed)

    def scaled(self, factor: float) -> Likelihood:
        return Completed(self.likelihood.scaled(factor), self.fixed)


class CompletedQuantity(eqx.Module):
    """A function of complete theta and x as one of their learned leaves; its arrays alone count."""

    function: Callable[[PyTree, PyTree], PyTree]
    fixed: Fixed

    def __call__(self, theta: PyTree, x: PyTree) -> PyTree:
        return _trees.split(self.function(*self.fixed.complete(theta, x)))[0]
