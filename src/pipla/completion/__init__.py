r"""Matrices of low rank from some of their entries, with intervals for the others.

`complete` is the function, `LowRankCompletion` the scikit-learn estimator (`pipla[sklearn]`),
`pipla complete` the command.
"""

from typing import TYPE_CHECKING

from pipla._extras import lazy
from pipla.completion._observations import Triplets
from pipla.completion.completing import Completion, complete

if TYPE_CHECKING:
    from pipla.completion.estimators import LowRankCompletion

__all__ = ["Completion", "LowRankCompletion", "Triplets", "complete"]

# Estimators need scikit-learn.
__getattr__ = lazy(__name__, "estimators", estimators=("LowRankCompletion",))
