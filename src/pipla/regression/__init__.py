"""Sparse regression without tuning: the prior is learned, and everything has an interval.

| names | what they do |
|---|---|
| `SparseLinearRegression` | numbers; the noise is learned, too |
| `SparseLogisticRegression` | two or more classes |
| `SparsePoissonRegression` | counts |

They are scikit-learn estimators (`pipla[sklearn,kernels]`).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipla.regression.estimators import (
        SparseLinearRegression,
        SparseLogisticRegression,
        SparsePoissonRegression,
    )

__all__ = ["SparseLinearRegression", "SparseLogisticRegression", "SparsePoissonRegression"]


def __getattr__(name: str) -> Any:
    """Import the estimators, and scikit-learn with them, when they are first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipla.regression import estimators

    return getattr(estimators, name)
