r"""Leaves of theta and x that are carried along: the functions, integers and text of a module.

Algorithms see the arrays of floats alone. What else there is in theta and x is taken out where a
run begins, and put back before the likelihood, `Save.quantity` and callbacks see them.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
from jaxtyping import PyTree

from pipla import _trees
from pipla._trees import Fixed
from pipla.models.likelihoods.base import Forwarding, Likelihood, Scalar


class Completed(Forwarding):
    """A likelihood of complete theta and x as one of their learned leaves.

    Its abilities return trees of learned leaves, and get such trees.
    """

    fixed: Fixed

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        return self.likelihood(*self.fixed.complete(theta, x), data)

    # It is seen by tracing, with the fixed leaves put back.
    uses_theta = Likelihood.uses_theta


class CompletedQuantity(eqx.Module):
    """A function of complete theta and x as one of their learned leaves; its arrays alone count."""

    function: Callable[[PyTree, PyTree], PyTree]
    fixed: Fixed

    def __call__(self, theta: PyTree, x: PyTree) -> PyTree:
        return _trees.split(self.function(*self.fixed.complete(theta, x)))[0]
