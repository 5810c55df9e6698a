"""The calculus of terms: scale, translate, address parts of theta and x, add.

A sum is of terms on disjoint parts of theta and x, because its joint prox is then each term's own.
"""

from __future__ import annotations

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla._checks import (
    finite,
    floating,
    map_leaves,
    numbers,
    particle_count,
    show,
    structure,
)
from pipla._trees import Address, Path, keys_of, overlap, part, put_part
from pipla.prox._arguments import (
    Hyperparameter,
    Number,
    as_float,
    check_address,
    check_positive,
    hyperparameter,
    part_of_smoothing,
)
from pipla.prox.base import Iterative, Scalar, Solution, Term
from pipla.prox.regularity import Regularity, disjoint_sum
from pipla.prox.wrapped import Wrapped


class Scaled(Wrapped):
    r"""$w\, g_2$ for $w > 0$: its prox is that of $g_2$ with both smoothings multiplied by $w$."""

    weight: Hyperparameter = hyperparameter()

    def __check_init__(self) -> None:
        check_positive("weight", self.weight)

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        value = self.term.value(theta, x)
        return self.weight.astype(value.dtype) * value

    def rounded_value(self, theta: PyTree, x: PyTree, width: PyTree) -> Scalar:
        value = self.term.rounded_value(theta, x, width)
        return self.weight.astype(value.dtype) * value

    def solve(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        both = self._times(lam_theta), self._times(lam_x)
        solution = self.term.solve(theta, x, *both, warm)
        weight = self.weight.astype(solution.gap.dtype)
        solution = solution._replace(gap=solution.gap * weight)
        if self.term.uses_theta or solution.penalty is None:
            return solution  # the best theta is the same whatever the weight
        return solution._replace(penalty=solution.penalty * weight)

    def envelope(self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree) -> Scalar:
        value = self.term.envelope(theta, x, self._times(lam_theta), self._times(lam_x))
        return self.weight.astype(value.dtype) * value

    def _times(self, lam: PyTree) -> PyTree:
        def times(_: str, leaf: Number) -> Array:
            number = as_float(leaf)
            return number * self.weight.astype(number.dtype)

        return map_leaves("lam", times, lam)

    def closed_form_curvature(self, theta: PyTree, particles: PyTree) -> PyTree:
        curvature = self.term.closed_form_curvature(theta, particles)
        return jax.tree.map(lambda leaf: self.weight.astype(leaf.dtype) * leaf, curvature)

    def time_unit(self, theta: PyTree, x: PyTree) -> PyTree:
        return jax.tree.map(
            lambda unit: unit / self.weight.astype(unit.dtype) ** 2, self.term.time_unit(theta, x)
        )

    def regularity(self, theta: PyTree, x: PyTree) -> Regularity:
        convex, lipschitz = self.term.regularity(theta, x)
        return Regularity(convex, None if lipschitz is None else float(self.weight) * lipschitz)

    def largest_smoothing(self, theta: PyTree, x: PyTree) -> Scalar:
        largest = self.term.largest_smoothing(theta, x)
        return largest / self.weight.astype(largest.dtype)


class Translated(Wrapped):
    r"""$g_2(\theta, x - s)$: its prox is that of $g_2$ between two shifts."""

    shift: PyTree

    def __check_init__(self) -> None:
        finite("shift", numbers("shift", self.shift))

    def _moved(self, x: PyTree, sign: int) -> PyTree:
        x = numbers("x", x)
        given, wanted = structure(self.shift), structure(x)
        if given != wanted:
            raise TypeError(
                f"shift must have the structure of x, got {given} for an x of structure {wanted}; "
                "`.on(x=...)` addresses a part of x."
            )

        def move(leaf: Array, shift: Array) -> Array:
            if jnp.shape(shift) not in ((), jnp.shape(leaf)):
                raise ValueError(
                    "shift must be a number or have the shape of x, "
                    f"but its shape is {jnp.shape(shift)} and that of x is {jnp.shape(leaf)}."
                )
            return leaf + sign * jnp.asarray(shift, leaf.dtype)

        return jax.tree.map(move, x, self.shift)

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        return self.term.value(theta, self._moved(x, -1))

    def rounded_value(self, theta: PyTree, x: PyTree, width: PyTree) -> Scalar:
        return self.term.rounded_value(theta, self._moved(x, -1), width)

    def warm_start(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.term.warm_start(theta, self._moved(x, -1))

    def solve(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        solution = self.term.solve(theta, self._moved(x, -1), lam_theta, lam_x, warm)
        return solution._replace(x=self._moved(solution.x, 1))

    def envelope(self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree) -> Scalar:
        # Not through the proximal point: shifted there and back, it may lie outside by rounding.
        return self.term.envelope(theta, self._moved(x, -1), lam_theta, lam_x)

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree:
        return self.term.closed_form(theta, self._all_moved_back(particles))

    def closed_form_at(self, theta: PyTree, particles: PyTree, penalty: PyTree) -> PyTree:
        return self.term.closed_form_at(theta, self._all_moved_back(particles), penalty)

    def closed_form_curvature(self, theta: PyTree, particles: PyTree) -> PyTree:
        return self.term.closed_form_curvature(theta, self._all_moved_back(particles))

    def _all_moved_back(self, particles: PyTree) -> PyTree:
        particles = floating("particles", particles)
        particle_count(particles)
        return jax.vmap(lambda x: self._moved(x, -1))(particles)

    homogeneity = Term.homogeneity  # about the shift, not about 0


class On(Wrapped):
    """A term acting on named parts of theta and x; the other parts pass through unchanged."""

    theta: Address | None = eqx.field(static=True, default=None)
    x: Address | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_address("theta", self.theta)
        check_address("x", self.x)

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        return self.term.value(part("theta", theta, self.theta), part("x", x, self.x))

    def rounded_value(self, theta: PyTree, x: PyTree, width: PyTree) -> Scalar:
        own = part("theta", theta, self.theta), part("x", x, self.x)
        return self.term.rounded_value(*own, part("x", width, self.x))

    def warm_start(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.term.warm_start(part("theta", theta, self.theta), part("x", x, self.x))

    def solve(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        solution = self.term.solve(*self._parts(theta, x, lam_theta, lam_x), warm)
        return solution._replace(
            theta=put_part(theta, self.theta, solution.theta),
            x=put_part(x, self.x, solution.x),
        )

    def envelope(self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree) -> Scalar:
        return self.term.envelope(*self._parts(theta, x, lam_theta, lam_x))

    def _parts(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree
    ) -> tuple[PyTree, PyTree, PyTree, PyTree]:
        return (
            part("theta", theta, self.theta),
            part("x", x, self.x),
            part_of_smoothing("lam_theta", lam_theta, self.theta),
            part_of_smoothing("lam_x", lam_x, self.x),
        )

    def reach(self) -> list[tuple[Path | None, Path]]:
        return [
            (None if theta is None else keys_of(self.theta) + theta, keys_of(self.x) + x)
            for theta, x in self.term.reach()
        ]

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        inner = self.term.parameters(part("theta", theta, self.theta))
        prefix = ".".join(map(str, keys_of(self.theta)))
        return {f"{prefix}: {name}" if prefix else name: value for name, value in inner.items()}

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree:
        own = part("theta", theta, self.theta)
        best = self.term.closed_form(own, part("x", particles, self.x))
        return put_part(theta, self.theta, best)

    def closed_form_at(self, theta: PyTree, particles: PyTree, penalty: PyTree) -> PyTree:
        own = part("theta", theta, self.theta)
        best = self.term.closed_form_at(own, part("x", particles, self.x), penalty)
        return put_part(theta, self.theta, best)

    def closed_form_curvature(self, theta: PyTree, particles: PyTree) -> PyTree:
        own = part("theta", theta, self.theta)
        inner = self.term.closed_form_curvature(own, part("x", particles, self.x))
        return put_part(jax.tree.map(jnp.zeros_like, theta), self.theta, inner)

    def time_unit(self, theta: PyTree, x: PyTree) -> PyTree:
        own = self.term.time_unit(part("theta", theta, self.theta), part("x", x, self.x))
        return put_part(Term.time_unit(self, theta, x), self.x, own)

    def regularity(self, theta: PyTree, x: PyTree) -> Regularity:
        return self.term.regularity(part("theta", theta, self.theta), part("x", x, self.x))

    def largest_smoothing(self, theta: PyTree, x: PyTree) -> Scalar:
        return self.term.largest_smoothing(part("theta", theta, self.theta), part("x", x, self.x))

    coupled_sizes = Term.coupled_sizes  # by `reach`


class Sum(Iterative):
    """A sum of terms on disjoint parts: the joint prox is each term's own, one after the other."""

    terms: tuple[Term, ...]

    def __check_init__(self) -> None:
        known = isinstance(self.terms, tuple) and all(isinstance(t, Term) for t in self.terms)
        if not known or not self.terms:
            raise TypeError(
                f"terms must be a tuple of terms of pipla.prox, got {show(self.terms)}."
            )

    @property
    def uses_theta(self) -> bool:
        """Whether any of the terms does."""
        return any(term.uses_theta for term in self.terms)

    @property
    def finite(self) -> bool:
        """Whether all of the terms are."""
        return all(term.finite for term in self.terms)

    @property
    def has_closed_form(self) -> bool:
        """Whether all of the terms have one."""
        return all(term.has_closed_form for term in self.terms)

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        return functools.reduce(jnp.add, [term.value(theta, x) for term in self.terms])

    def rounded_value(self, theta: PyTree, x: PyTree, width: PyTree) -> Scalar:
        each = (term.rounded_value(theta, x, width) for term in self.terms)
        return functools.reduce(jnp.add, each)

    def summands(self) -> tuple[Term, ...]:
        return self.terms

    def warm_start(self, theta: PyTree, x: PyTree) -> PyTree:
        return tuple(term.warm_start(theta, x) for term in self.terms)

    def solve(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        if not isinstance(warm, tuple) or len(warm) != len(self.terms):
            raise ValueError(
                f"warm must be a tuple with one entry for each of the {len(self.terms)} terms, "
                f"such as `warm_start(theta, x)` returns, got {type(warm).__name__}."
            )
        points: list[Solution] = []
        for term, start in zip(self.terms, warm, strict=True):
            points.append(term.solve(theta, x, lam_theta, lam_x, start))
            theta, x = points[-1].theta, points[-1].x
        gap = functools.reduce(jnp.add, [point.gap for point in points])
        penalty: PyTree = tuple(point.penalty for point in points)
        if not self.uses_theta:
            known = all(one is not None for one in penalty)
            penalty = functools.reduce(jnp.add, penalty) if known else None
        return Solution(theta, x, tuple(point.warm for point in points), gap, penalty)

    def reach(self) -> list[tuple[Path | None, Path]]:
        return [pair for term in self.terms for pair in term.reach()]

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        return {name: v for term in self.terms for name, v in term.parameters(theta).items()}

    def objections(self) -> list[str]:
        return [sentence for term in self.terms for sentence in term.objections()]

    def regularity(self, theta: PyTree, x: PyTree) -> Regularity:
        return disjoint_sum([term.regularity(theta, x) for term in self.terms])

    def envelope(self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree) -> Scalar:
        each = (term.envelope(theta, x, lam_theta, lam_x) for term in self.terms)
        return functools.reduce(jnp.add, each)

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree:
        for term in self.terms:
            theta = term.closed_form(theta, particles)
        return theta

    def closed_form_at(self, theta: PyTree, particles: PyTree, penalty: PyTree) -> PyTree:
        if penalty is None or not self.uses_theta:
            return self.closed_form(theta, particles)
        for term, one in zip(self.terms, penalty, strict=True):
            theta = term.closed_form_at(theta, particles, one)
        return theta

    def closed_form_curvature(self, theta: PyTree, particles: PyTree) -> PyTree:
        each = (term.closed_form_curvature(theta, particles) for term in self.terms)
        return functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), each)

    def time_unit(self, theta: PyTree, x: PyTree) -> PyTree:
        # The parts are disjoint: at each leaf all units but one are infinite.
        each = (term.time_unit(theta, x) for term in self.terms)
        return functools.reduce(lambda a, b: jax.tree.map(jnp.minimum, a, b), each)

    def largest_smoothing(self, theta: PyTree, x: PyTree) -> Scalar:
        each = [term.largest_smoothing(theta, x) for term in self.terms]
        return functools.reduce(jnp.minimum, each)


def separable_sum(*terms: Term) -> Sum:
    """The sum of terms that touch disjoint parts of theta and x; anything else is an error.

    The prox of a sum is the sum of the proxes only when no part is touched twice.
    """
    for term in terms:
        if not isinstance(term, Term):
            raise TypeError(f"terms must be terms of pipla.prox, got {show(term)}.")
    if not terms:
        raise TypeError("separable_sum needs at least one term.")
    flat = [leaf for term in terms for leaf in term.summands()]
    reach = [pair for term in flat for pair in term.reach()]
    for name, paths in (("theta", [pair[0] for pair in reach]), ("x", [pair[1] for pair in reach])):
        for first, second in itertools.combinations(paths, 2):
            if first is not None and second is not None and overlap(first, second):
                raise ValueError(
                    f"two terms of a sum both act on {_describe(name, first, second)}, so their "
                    "joint prox is not the sum of the two. Put each on its own part with "
                    '`.on(theta="...", x="...")`, or move one term into `smooth`.'
                )
    return Sum(tuple(flat))


def _describe(name: str, first: Path, second: Path) -> str:
    path = max(first, second, key=len)
    return f"{name}[{', '.join(map(repr, path))}]" if path else f"the whole of {name}"
