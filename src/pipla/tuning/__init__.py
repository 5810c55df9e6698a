"""Numbers for algorithms from the model's own curvature, and the conditions of the theory."""

from pipla.tuning.conditions import TheoryWarning, broken_conditions
from pipla.tuning.curvature import LocalGeometry
from pipla.tuning.suggestions import Suggestion, suggest

__all__ = ["LocalGeometry", "Suggestion", "TheoryWarning", "broken_conditions", "suggest"]
