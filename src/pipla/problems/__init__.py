"""Ready models with data and, where it is known, the answer."""

from pipla.problems.base import Problem
from pipla.problems.deblurring import Deblurring, deblurring
from pipla.problems.gaussian import gaussian_hierarchy
from pipla.problems.logistic import logistic
from pipla.problems.standard_pictures import find_picture
from pipla.problems.toy import toy

__all__ = [
    "Deblurring",
    "Problem",
    "deblurring",
    "find_picture",
    "gaussian_hierarchy",
    "logistic",
    "toy",
]
