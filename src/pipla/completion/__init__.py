r"""Matrices of low rank from some of their entries, with intervals for the others.

`complete` is the function, `pipla.completion.estimators.LowRankCompletion` the scikit-learn
estimator, `pipla complete` the command.
"""

from pipla.completion._observations import Triplets
from pipla.completion.completing import Completion, complete

__all__ = ["Completion", "Triplets", "complete"]
