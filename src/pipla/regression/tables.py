"""From a table with columns of any kind to features, target and a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pipla import _checks
from pipla._data_files import Table

#: With more columns than this, features are stored without their zeros.
MOST_DENSE = 500
#: The name of the category of missing values.
MISSING = "(missing)"


class Data(NamedTuple):
    """Features as numbers.

    Attributes:
        features: of shape (rows, features): an array, or sparse by rows.
        names: of the features; `"colour=red"` for a category.
        groups: the column of the table that each feature comes from.
        target: the column to be explained.
        is_text: whether the target holds labels: text or booleans.
        scales: the standard deviation of each feature.
        notes: what was done to the table, one sentence each.
    """

    features: Any
    names: tuple[str, ...]
    groups: tuple[int, ...]
    target: np.ndarray
    is_text: bool
    scales: np.ndarray
    notes: tuple[str, ...]


def encoded(table: Table, target: str, drop: Sequence[str] = (), impute: bool = False) -> Data:
    """Numbers as they are, each category of a text column as a feature of its own.

    Arguments:
        table: the data.
        target: the column to be explained.
        drop: columns to leave out.
        impute: replace missing numbers by the median and missing text by a category of its own,
            and leave out rows without a target. Otherwise missing values are an error.

    Raises:
        ValueError: a value is missing or infinite (the column is named), or no feature is left.
    """
    place = table.place("target", target)
    left_out = {table.place("drop", name) for name in drop} | {place}
    if len(left_out) == len(drop):
        raise ValueError(f"drop must not name the target {target!r}.")
    notes: list[str] = []
    rows = ~table.missing(place)
    if not rows.all():
        if not impute:
            raise ValueError(_missing(target, int(np.sum(~rows))))
        notes.append(f"{int(np.sum(~rows))} rows without {target!r} were left out")
    names: list[str] = []
    groups: list[int] = []
    columns: list[np.ndarray] = []
    for i, name in enumerate(table.names):
        if i in left_out:
            continue
        gaps = table.missing(i)[rows]
        if gaps.any() and not impute:
            raise ValueError(_missing(name, int(gaps.sum())))
        values = table.columns[i][rows]
        if table.kinds[i] == "text":
            _add_categories(name, values, gaps, names, columns, notes)
            groups += [i] * (len(columns) - len(groups))
            continue
        values = values.astype(np.float64)
        if np.isinf(values).any():
            raise ValueError(f"column {name!r} has {int(np.isinf(values).sum())} infinite values.")
        if gaps.all():
            notes.append(f"column {name!r} has no value at all and was left out")
            continue
        if gaps.any():
            values = np.where(gaps, np.median(values[~gaps]), values)
            notes.append(f"{int(gaps.sum())} missing values of {name!r} are its median")
        names.append(name)
        groups.append(i)
        columns.append(values)
    if not columns:
        raise ValueError("the table has no feature beside the target.")
    scales = np.array([float(np.std(column)) for column in columns])
    y = table.columns[place][rows]
    is_text = table.kinds[place] in ("text", "boolean")
    y = y.astype(str) if is_text else y
    features = _joined(columns)
    return Data(features, tuple(names), tuple(groups), y, is_text, scales, tuple(notes))


def _missing(name: str, count: int) -> str:
    return (
        f"column {name!r} has {count} missing value(s); remove or fill them, or add --impute "
        "(impute=True)."
    )


def _joined(columns: list[np.ndarray]) -> Any:
    if len(columns) <= MOST_DENSE:
        return np.column_stack([column.astype(np.float64) for column in columns])
    import scipy.sparse

    parts = [scipy.sparse.csc_array(column.astype(np.float64)[:, None]) for column in columns]
    return scipy.sparse.hstack(parts, format="csr")


def _add_categories(
    name: str,
    values: np.ndarray,
    gaps: np.ndarray,
    names: list[str],
    columns: list[np.ndarray],
    notes: list[str],
) -> None:
    text = np.where(gaps, MISSING, values).astype(str)
    levels, labels = np.unique(text, return_inverse=True)
    if len(levels) == len(text):
        notes.append(f"column {name!r} has another text in every row and was left out")
        return
    if gaps.any():
        notes.append(f"{int(gaps.sum())} missing values of {name!r} are a category")
    # Of two categories one says it all; of more each has a feature, and none is special.
    for level in range(1 if len(levels) == 2 else 0, len(levels)):
        names.append(f"{name}={levels[level]}")
        columns.append((labels == level).astype(np.float32))


def family_of(family: str, data: Data) -> str:
    """`family`, or for `"auto"` logistic for labels and two values, linear for other numbers."""
    _checks.choice("family", family, ("auto", "linear", "logistic", "poisson"))
    if family == "auto":
        return "logistic" if data.is_text or len(np.unique(data.target)) == 2 else "linear"
    if data.is_text and family != "logistic":
        raise ValueError(f"family {family!r} needs numbers, but the target holds text.")
    return family


def model_of(family: str, prior: str, seed: int, data: Data) -> Any:
    """The fitted estimator; with groups, the categories of a column are one."""
    from pipla.regression import estimators

    kinds = {
        "linear": estimators.SparseLinearRegression,
        "logistic": estimators.SparseLogisticRegression,
        "poisson": estimators.SparsePoissonRegression,
    }
    seed = _checks.integer("seed", seed, least=0)
    model = kinds[family](prior=prior, groups=data.groups, random_state=seed)
    y = data.target if family == "logistic" else data.target.astype(np.float64)
    if family == "logistic" and y.dtype.kind == "f" and np.all(y == np.round(y)):
        y = y.astype(np.int64)
    return model.fit(data.features, y)
