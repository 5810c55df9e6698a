"""Ready models with data and, where it is known, the answer."""

from pipla.problems.base import Problem
from pipla.problems.gaussian import gaussian_hierarchy
from pipla.problems.logistic import logistic
from pipla.problems.toy import toy

__all__ = ["Problem", "gaussian_hierarchy", "logistic", "toy"]
