"""Models with data and, where it is known, the answer; `pipla.zoo` has more (pipla-lab)."""

from pipla.problems.base import Problem
from pipla.problems.gaussian import gaussian_hierarchy
from pipla.problems.logistic_regression import logistic
from pipla.problems.toy_model import toy

__all__ = ["Problem", "gaussian_hierarchy", "logistic", "toy"]
