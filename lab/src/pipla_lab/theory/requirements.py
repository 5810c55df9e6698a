"""The assumptions of the theorems, as checks with reasons."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla.algorithms.base import Curvature
from pipla.models.model import Model, checked_point, without_fixed_leaves
from pipla.prox.regularity import Regularity
from pipla.tuning.curvature import LocalGeometry
from pipla_lab.theory.constants import Constants


class Assumption(NamedTuple):
    """An assumption of the paper.

    Attributes:
        name, label: its name in the paper, and the label there.
        statement: what is assumed.
        holds: whether it does; `None` where that cannot be evaluated.
        reason: why.
    """

    name: str
    label: str
    statement: str
    holds: bool | None
    reason: str


#: The assumptions: name, label, statement.
_STATEMENTS = {
    "A1": ("assumption_1", "g1 is convex with an L-Lipschitz gradient, g2 is convex"),
    "A2": ("assumption_2", "the start has a finite second moment"),
    "A3": ("assumption_1prime", "g2 is Lipschitz"),
    "A4": ("assumption_3", "g1 is mu-strongly convex in (theta, x)"),
    "A5": ("assumption_4", "g2 is differentiable a.e. at the maximiser; A and B exist"),
    "B1": ("assumption_22", "PIPULA: the prox of U is a strict contraction"),
    "C1": ("assumption_1_gla", "PIPGLA: the least subgradients of g2 are bounded"),
}
#: What the paper assumes for each algorithm. `bound` needs A1 to A4 (PIPGLA: C1 for A3).
NEEDED = {
    "MYIPLA": ("A1", "A2", "A3", "A4", "A5"),
    "PIPGLA": ("A1", "A2", "A4", "C1"),
    "MYPGD": ("A1", "A2", "A3", "A4", "A5"),
    "PIPULA": ("A1", "A2", "A3", "A5", "B1"),
}


def assumptions(model: Model, theta: PyTree, particles: PyTree) -> list[Assumption]:
    """The assumptions of the theorems, evaluated on a model where they can be.

    Curvatures are measured at the first particles; elsewhere they may differ.
    """
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    theta, particles = checked_point(model, theta, particles)
    curvature = LocalGeometry(model, theta, particles).curvature(1.0)
    one = jax.tree.map(lambda leaf: leaf[0], particles)
    term = type(model.nonsmooth).__name__
    return _evaluated(
        curvature, model.nonsmooth.regularity(theta, one), term, _second_moment(theta, particles)
    )


def stated(constants: Constants) -> list[Assumption]:
    """The assumptions for constants that are given: what they state, and what remains open."""
    mu, lipschitz = f"mu = {constants.mu:g}", f"L = {constants.lipschitz:g}"
    ell = constants.slope
    return [
        _assumption("A1", None, f"{lipschitz} as given; convexity of g2 depends on the term"),
        _assumption("A2", True, f"start = {constants.distance:.4g}"),
        _assumption("A3", True, f"l = {ell:.4g} as given"),
        _assumption("A4", True, f"{mu} as given"),
        _not_evaluated(),
        _contradictory(),
        _assumption("C1", True, f"C = l² = {ell**2:.4g}"),
    ]


def _evaluated(
    curvature: Curvature, regularity: Regularity, term: str, moment: float
) -> list[Assumption]:
    mu, lipschitz = float(curvature.smallest), float(curvature.largest)
    rounding = 1e-3 * lipschitz  # the accuracy of the power iteration
    convex, ell = regularity
    spectrum = f"the Hessian of g1 is between {mu:.4g} and {lipschitz:.4g} at these particles"
    words = {
        True: f"{term} is convex",
        False: f"{term} is not convex in (theta, x) together (E7)",
        None: f"{term} does not say whether it is convex (`regularity`)",
    }
    first = False if mu < -rounding or convex is False else None if convex is None else True
    lipschitz_words = (
        f"{term}: l = {ell:.4g}"
        if ell is not None
        else f"{term} has no Lipschitz constant, or does not state it (`regularity`)"
    )
    known = True if ell is not None else None if convex is None else False
    bounded = f"C = l² = {ell**2:.4g}" if ell is not None else lipschitz_words
    return [
        _assumption("A1", first, f"{spectrum}; {words[convex]}"),
        _assumption("A2", bool(np.isfinite(moment)), f"|theta|² + mean |x|² = {moment:.4g}"),
        _assumption("A3", known, lipschitz_words),
        _assumption("A4", mu > 0, spectrum),
        _not_evaluated(),
        _contradictory(),
        _assumption("C1", known, bounded),
    ]


def _assumption(name: str, holds: bool | None, reason: str) -> Assumption:
    label, statement = _STATEMENTS[name]
    return Assumption(name, label, statement, holds, reason)


def _not_evaluated() -> Assumption:
    return _assumption(
        "A5", None, "needs the maximiser; `bound` does without it (E20), `published_bound` asks"
    )


def _contradictory() -> Assumption:
    return _assumption(
        "B1", False, "with A3 for U itself, no function satisfies both (E19); `bound` needs neither"
    )


def _second_moment(theta: PyTree, particles: PyTree) -> float:
    count = len(jax.tree.leaves(particles)[0])
    return _squares(theta) + _squares(particles) / count


def _squares(tree: PyTree) -> float:
    return float(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree)))
