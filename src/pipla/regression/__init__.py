"""Sparse regression without tuning: the prior is learned, and everything has an interval.

| names | what they do |
|---|---|
| `SparseLinearRegression` | numbers; the noise is learned, too |
| `SparseLogisticRegression` | two or more classes |
| `SparsePoissonRegression` | counts |

They are scikit-learn estimators (`pipla[sklearn,kernels]`).
"""

from typing import TYPE_CHECKING

from pipla._extras import lazy

if TYPE_CHECKING:
    from pipla.regression.estimators import (
        SparseLinearRegression,
        SparseLogisticRegression,
        SparsePoissonRegression,
    )

__all__ = ["SparseLinearRegression", "SparseLogisticRegression", "SparsePoissonRegression"]


# Estimators need scikit-learn.
__getattr__ = lazy(__name__, "estimators", estimators=tuple(__all__))
