"""A term made from another one has its abilities."""

from __future__ import annotations

from jaxtyping import Array, PyTree

from pipla._checks import show
from pipla._trees import Path
from pipla.prox.base import Iterative, Scalar, Term
from pipla.prox.regularity import Regularity


class Wrapped(Iterative):
    """A term made from another one, whose abilities it has.

    A subclass writes `value`, `solve` and those that it changes. A test walks all of them.
    """

    term: Term

    def __check_init__(self) -> None:
        if not isinstance(self.term, Term):
            raise TypeError(f"term must be a term of pipla.prox, got {show(self.term)}.")

    def warm_start(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.term.warm_start(theta, x)

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree:
        return self.term.closed_form(theta, particles)

    def closed_form_at(self, theta: PyTree, particles: PyTree, penalty: PyTree) -> PyTree:
        return self.term.closed_form_at(theta, particles, penalty)

    def closed_form_curvature(self, theta: PyTree, particles: PyTree) -> PyTree:
        return self.term.closed_form_curvature(theta, particles)

    def rounded_value(self, theta: PyTree, x: PyTree, width: PyTree) -> Scalar:
        return self.term.rounded_value(theta, x, width)

    def time_unit(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.term.time_unit(theta, x)

    def largest_smoothing(self, theta: PyTree, x: PyTree) -> Scalar:
        return self.term.largest_smoothing(theta, x)

    def coupled_sizes(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.term.coupled_sizes(theta, x)

    summands = Term.summands  # itself: each of those inside would have to be wrapped

    @property
    def homogeneity(self) -> int:
        """That of the wrapped term."""
        return self.term.homogeneity

    @property
    def uses_theta(self) -> bool:
        """Whether the wrapped term does."""
        return self.term.uses_theta

    @property
    def finite(self) -> bool:
        """Whether the wrapped term is."""
        return self.term.finite

    @property
    def has_closed_form(self) -> bool:
        """Whether the wrapped term has."""
        return self.term.has_closed_form

    def reach(self) -> list[tuple[Path | None, Path]]:
        return self.term.reach()

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        return self.term.parameters(theta)

    def objections(self) -> list[str]:
        return self.term.objections()

    def regularity(self, theta: PyTree, x: PyTree) -> Regularity:
        return self.term.regularity(theta, x)
