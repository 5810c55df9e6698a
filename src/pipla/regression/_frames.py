"""DataFrames and responses that hold no numbers are refused by name, before scikit-learn does."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla._dialects import listed


def refuse_frame(features: Any) -> None:
    """An error that names the columns of a DataFrame that are text or have missing values."""
    if not hasattr(features, "iloc") or not hasattr(features, "columns"):
        return
    names = list(features.columns)
    text = [name for j, name in enumerate(names) if _is_text(features.iloc[:, j])]
    if text:
        raise ValueError(
            f"{_columns(text)} of X {'is' if len(text) == 1 else 'are'} text; use from_formula, or "
            "one 0/1 column per level."
        )
    gaps = np.asarray(features.isna().any(axis=0), bool)
    missing = [name for name, has_gaps in zip(names, gaps, strict=True) if has_gaps]
    if missing:
        raise ValueError(
            f"{_columns(missing)} of X {'has' if len(missing) == 1 else 'have'} missing values "
            "(NaN); fill them in or drop the rows."
        )


def refuse_text(y: Any) -> None:
    """An error if responses that should be numbers are text."""
    if _is_text(y):
        raise ValueError("y is text; SparseLogisticRegression is for classes.")


def _columns(names: list[Any]) -> str:
    return f"column{'s' * (len(names) > 1)} {listed(names)}"


def _is_text(values: Any) -> bool:
    """Whether some value is a text that is no number."""
    if not isinstance(values, list | tuple) and not hasattr(values, "dtype"):
        return False
    kind = getattr(getattr(values, "dtype", None), "kind", "O")
    if kind not in "OUST" or np.ndim(values) != 1:
        return False
    texts = {value for value in values if isinstance(value, str)}
    try:
        np.array(list(texts), object).astype(np.float64)
    except ValueError:
        return True
    return False
