"""Step size, smoothing and block scaling from the model's own curvature."""

from pipla.tuning.suggestions import (
    Suggestion,
    TheoryWarning,
    broken_conditions,
    complete,
    resolve_scale,
    suggest,
    warn_broken,
)

__all__ = [
    "Suggestion",
    "TheoryWarning",
    "broken_conditions",
    "complete",
    "resolve_scale",
    "suggest",
    "warn_broken",
]
