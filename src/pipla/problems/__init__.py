"""Models with data and, where it is known, the answer."""

from pipla.problems import zoo
from pipla.problems.base import Problem
from pipla.problems.classification import Classification, digits, vehicles
from pipla.problems.gaussian import gaussian_hierarchy
from pipla.problems.image_deblurring import Deblurring, deblurring
from pipla.problems.images import find_image
from pipla.problems.logistic_regression import logistic
from pipla.problems.toy_model import toy

__all__ = [
    "Classification",
    "Deblurring",
    "Problem",
    "deblurring",
    "digits",
    "find_image",
    "gaussian_hierarchy",
    "logistic",
    "toy",
    "vehicles",
    "zoo",
]
