"""Sums of terms on disjoint parts of theta and x, whose joint prox is each term's own."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from pipla._trees import Path, keys_of, part, put_part
from pipla.prox.base import Iterative, Scalar, Solution, Term, Zero
from pipla.prox.combine import On, Scaled, Translated


class Sum(Iterative):
    """A sum of terms on disjoint parts: the joint prox is each term's own, one after the other."""

    terms: tuple[Term, ...]

    @property
    def uses_theta(self) -> bool:  # type: ignore[override]
        """Whether any of the terms does."""
        return any(term.uses_theta for term in self.terms)

    @property
    def finite(self) -> bool:  # type: ignore[override]
        """Whether all of the terms are."""
        return all(term.finite for term in self.terms)

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        return functools.reduce(jnp.add, [term.value(theta, x) for term in self.terms])

    def warm_start(self, theta: PyTree, x: PyTree) -> PyTree:
        return tuple(term.warm_start(theta, x) for term in self.terms)

    def solve(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        gap: Any = 0.0
        next_warm = []
        for term, start in zip(self.terms, warm, strict=True):
            solution = term.solve(theta, x, lam_theta, lam_x, start)
            theta, x, gap = solution.theta, solution.x, gap + solution.gap
            next_warm.append(solution.warm)
        return Solution(theta, x, tuple(next_warm), gap)

    def envelope(self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree) -> Scalar:
        each = (term.envelope(theta, x, lam_theta, lam_x) for term in self.terms)
        return functools.reduce(jnp.add, each)

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree:
        for term in self.terms:
            theta = term.closed_form(theta, particles)
        return theta

    def time_unit(self, theta: PyTree, x: PyTree) -> PyTree:
        # The parts are disjoint: at each leaf all factors but one are 1.
        unit = super().time_unit(theta, x)
        for term in self.terms:
            unit = jax.tree.map(jnp.multiply, unit, term.time_unit(theta, x))
        return unit

    def largest_smoothing(self, theta: PyTree, x: PyTree) -> Scalar:
        each = [term.largest_smoothing(theta, x) for term in self.terms]
        return functools.reduce(jnp.minimum, each)


def separable_sum(*terms: Term) -> Sum:
    """The sum of terms that touch disjoint parts of theta and x; anything else is an error.

    The prox of a sum is the sum of the proxes only when no part is touched twice.
    """
    flat = [leaf for term in terms for leaf in (term.terms if isinstance(term, Sum) else (term,))]
    reach = [pair for term in flat for pair in _reach(term)]
    for name, paths in (("theta", [pair[0] for pair in reach]), ("x", [pair[1] for pair in reach])):
        for first, second in itertools.combinations(paths, 2):
            if first is not None and second is not None and _overlap(first, second):
                raise ValueError(
                    f"two terms of a sum both act on {_describe(name, first, second)}, so their "
                    "joint prox is not the sum of the two. Put each on its own part with "
                    '`.on(theta="...", x="...")`, or move one term into `smooth`.'
                )
    return Sum(tuple(flat))


def coupled_sizes(term: Term, theta: PyTree, x: PyTree) -> PyTree:
    """For each leaf of theta, the number of elements of x that `term` couples it to.

    `None` for a leaf that no term touches: it is coupled through the smooth part.
    """
    sizes = jax.tree.map(lambda _: 0, theta)
    for path, where in _reach(term):
        if path is None:
            continue
        block = _size(part("x", x, where))
        inner = part("theta", sizes, path)
        sizes = put_part(sizes, path, jax.tree.map(lambda old, b=block: old + b, inner))
    return jax.tree.map(lambda size: size or None, sizes)


def _size(tree: PyTree) -> int:
    return sum(jnp.size(leaf) for leaf in jax.tree.leaves(tree))


def _reach(term: Term) -> list[tuple[Path | None, Path]]:
    """Where each elementary term acts: a path in theta (`None`: nowhere) and a path in x."""
    if isinstance(term, Sum):
        return [pair for each in term.terms for pair in _reach(each)]
    if isinstance(term, Scaled | Translated):
        return _reach(term.term)
    if isinstance(term, On):
        return [
            (None if theta is None else keys_of(term.theta) + theta, keys_of(term.x) + x)
            for theta, x in _reach(term.term)
        ]
    if isinstance(term, Zero):
        return []
    return [(() if term.uses_theta else None, ())]


def _overlap(first: Path, second: Path) -> bool:
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]


def _describe(name: str, first: Path, second: Path) -> str:
    path = max(first, second, key=len)
    return f"{name}[{', '.join(map(repr, path))}]" if path else f"the whole of {name}"
