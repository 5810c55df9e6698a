"""The conditions of the theory, checked at a point: sentences and warnings."""

from __future__ import annotations

import warnings

from jaxtyping import PyTree

from pipla.algorithms.base import Algorithm, Geometry, checked_algorithm
from pipla.models.model import Model, checked_point, without_fixed_leaves
from pipla.tuning.curvature import LocalGeometry


class TheoryWarning(UserWarning):
    """A condition of the theory does not hold for these settings."""


def broken_conditions(
    algorithm: Algorithm,
    model: Model,
    theta: PyTree,
    particles: PyTree,
    where: str = "at the start",
) -> list[str]:
    """Sentences, one for each condition of the theory that the settings break at this point."""
    checked_algorithm(algorithm)
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    theta, particles = checked_point(model, theta, particles)
    algorithm.check(theta, particles)
    geometry = LocalGeometry(model, theta, particles)
    return broken_at(algorithm.completed(geometry), geometry, where)


def broken_at(algorithm: Algorithm, geometry: Geometry, where: str = "at the start") -> list[str]:
    """The same for an algorithm that has all its numbers, with what was measured already."""
    broken = (each for each in algorithm.conditions(geometry) if not each.holds)
    return [condition.sentence(where) for condition in broken]


def warn_broken(algorithm: Algorithm, geometry: LocalGeometry) -> None:
    """Warn of each broken condition; the run continues."""
    for sentence in algorithm.objections(geometry.model):
        warnings.warn(f"{sentence}.", TheoryWarning, stacklevel=3)
    for sentence in broken_at(algorithm, geometry):
        warnings.warn(
            f"{sentence}. The guarantee does not cover this run: expect bias, or divergence; "
            "`pipla.tuning.suggest` gives settings that it covers.",
            TheoryWarning,
            stacklevel=3,
        )
