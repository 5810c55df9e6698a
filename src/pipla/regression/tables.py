"""From a table with columns of any kind to features, target and a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pipla import _checks
from pipla._data_files import Table
from pipla._extras import extra
from pipla.regression._encoding import Columns, Notes, categories_of, infinite, with_median
from pipla.regression._formula import matrices, variables

#: At most so many integers are taken for labels, and texts for classes.
MOST_LABELS, MOST_CLASSES = 10, 100
#: A Poisson variable of a larger mean is close to normal.
LARGE_COUNTS = 10


class Data(NamedTuple):
    """Features as numbers.

    Attributes:
        features: of shape (rows, features): an array, or sparse by rows.
        names: of the features; `"colour=red"` for a category.
        groups: the column of the table, or the term of the formula, that each feature comes from.
        references: the category that each feature is compared with; empty for numbers.
        target: the column to be explained.
        label: its name.
        is_text: whether the target holds labels: text or booleans.
        scales: the standard deviation of each feature.
        notes: what was done to the table, one sentence each.
        intercept: whether the regression has an intercept.
    """

    features: Any
    names: tuple[str, ...]
    groups: tuple[int, ...]
    references: tuple[str, ...]
    target: np.ndarray
    label: str
    is_text: bool
    scales: np.ndarray
    notes: tuple[str, ...]
    intercept: bool = True

    @property
    def shown(self) -> tuple[str, ...]:
        """The names, with what categories are compared with."""
        pairs = zip(self.names, self.references, strict=True)
        return tuple(f"{name} (vs {other})" if other else name for name, other in pairs)

    def rows(self, chosen: Any = slice(None)) -> Any:
        """The features of some rows, with their names if they are dense."""
        if not isinstance(self.features, np.ndarray):
            return self.features[chosen]
        with extra("pandas", "a table"):
            import pandas as pd
        return pd.DataFrame(self.features[chosen], columns=list(self.shown))


def encoded(
    table: Table,
    target: str,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    impute: bool = False,
    dates: str = "days",
) -> Data:
    """Numbers as they are, dates in days, categories compared with the most frequent one.

    Columns that number the rows, do not vary, or hold a text of its own in most rows are left out.

    Arguments:
        table: the data.
        target: the column to be explained.
        drop: columns to leave out.
        keep: columns to use although they seem to number or name the rows.
        impute: replace missing numbers by the median and missing texts by the most frequent one,
            or, where there are more than a few, by a category of their own, or with a feature that
            says where they are; and leave out rows without a target. Otherwise missing values are
            an error.
        dates: `"days"`, or `"season"` for features of the time of the year and the weekday, too.

    Raises:
        ValueError: a value is missing or infinite (the column is named), the target does not vary,
            or no feature is left.
    """
    _checks.choice("dates", dates, ("days", "season"))
    place = table.place("target", target)
    left_out = {table.place("drop", name) for name in drop}
    kept = {table.place("keep", name) for name in keep}
    if place in left_out | kept:
        raise ValueError(f"{'drop' if place in left_out else 'keep'} must not name the target.")
    used = [i for i in range(len(table.names)) if i != place and i not in left_out]
    notes = Notes()
    indices = [i for i in used if i not in kept and table.is_index(i)]
    if len(indices) < len(used):
        notes.add("index", *(table.names[i] for i in indices))
        used = [i for i in used if i not in indices]
    y, rows, dropped = _target(table, place, impute)
    _refuse_missing(table, used, rows, impute)
    built = Columns(len(y), notes)
    for i in used:
        column, name = table.columns[i][rows], table.names[i]
        gaps = table.missing(i)[rows]
        if gaps.all():
            notes.add("empty", name)
        elif table.kinds[i] == "text":
            built.categories(i, name, column, gaps, is_kept=i in kept)
        else:
            filled = built.numbers(i, name, column.astype(np.float64), gaps)
            if table.kinds[i] == "date" and dates == "season":
                built.season(i, name, filled)
    if not built.names:
        why = " ".join(notes.sentences())
        raise ValueError(f"the table has no feature beside the target. {why}".strip())
    return Data(
        features=built.joined(),
        names=tuple(built.names),
        groups=tuple(built.groups),
        references=tuple(built.references),
        target=y,
        label=target,
        is_text=table.kinds[place] in ("text", "boolean"),
        scales=np.array(built.scales),
        notes=(*table.notes, *dropped, *notes.sentences()),
    )


def _target(table: Table, place: int, impute: bool) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The target, the rows that have one, and a sentence about the others."""
    name, rows = table.names[place], ~table.missing(place)
    missing = int(np.sum(~rows))
    if missing and not impute:
        raise ValueError(_missing(table, [(name, missing)]))
    y = table.columns[place][rows]
    if table.kinds[place] in ("text", "boolean"):
        y = y.astype(str)
    elif np.isinf(y).any():
        raise ValueError(infinite(name, y))
    if not len(y) or np.all(y == y[0]):
        raise ValueError(
            f"target {name!r} has the same value in every row: there is nothing to explain."
        )
    said = f"{missing} row{'s' * (missing > 1)} without {name!r} left out."
    return y, rows, [said] * (missing > 0)


def _refuse_missing(table: Table, used: list[int], rows: np.ndarray, impute: bool) -> None:
    if impute:
        return
    counts = [(table.names[i], int(table.missing(i)[rows].sum())) for i in used]
    counts = [(name, count) for name, count in counts if count]
    if counts:
        raise ValueError(_missing(table, counts))


def _missing(table: Table, counts: list[tuple[str, int]]) -> str:
    name, count = counts[0]
    said = f"column {name!r} has {count} missing value{'s' * (count > 1)}"
    if len(counts) > 1:
        shown = ", ".join(f"{name!r} ({count})" for name, count in counts[:5])
        more = f" and {len(counts) - 5} more columns" if len(counts) > 5 else ""
        said = f"values are missing in {shown}{more}"
    words = [table.words[name] for name, _ in counts if name in table.words]
    return " ".join([f"{said}; fill them in, or add --impute (impute=True).", *words])


def formulated(table: Table, formula: str, impute: bool = False) -> Data:
    """The features of a formula, `"y ~ age * sex + C(city)"`, in which texts are categories.

    Arguments:
        table: the data.
        formula: as formulaic reads it.
        impute: replace missing values; rows without a target are left out. Otherwise they are an
            error.

    Raises:
        ValueError: the formula cannot be read or names no column, or a value is missing.
    """
    with extra("pandas", "a formula"):
        import pandas as pd
    notes = Notes()
    named = variables(formula, table.names)
    target = next((i for i, name in enumerate(table.names) if name == named.response), None)
    rows = np.ones(table.num_rows, bool)
    dropped: list[str] = []
    if target is not None:
        _, rows, dropped = _target(table, target, impute)
    used = [i for i, name in enumerate(table.names) if name in named.features and i != target]
    _refuse_missing(table, used, rows, impute)
    frame = {named.response: table.columns[target][rows]} if target is not None else {}
    for i in used:
        name, gaps = table.names[i], table.missing(i)[rows]
        frame[name] = table.columns[i][rows]
        if table.kinds[i] == "text":
            found = categories_of(frame[name], gaps)
            found.say(name, notes)
            notes.add("reference", name, detail=found.levels[0])
            frame[name] = pd.Categorical.from_codes(found.codes, found.levels)
        else:
            frame[name] = with_median(name, frame[name], gaps, notes)
    made = matrices(formula, pd.DataFrame(frame))
    features = made.features.to_numpy(np.float64)
    names = tuple(map(str, made.features.columns))
    return Data(
        features=features,
        names=names,
        groups=tuple(made.formula.groups),
        references=("",) * len(names),
        target=made.y if made.y.dtype.kind in "fiu" else made.y.astype(str),
        label=made.label,
        is_text=made.y.dtype.kind not in "fiu",
        scales=features.std(axis=0),
        notes=(*table.notes, *dropped, *notes.sentences()),
        intercept=made.formula.has_intercept,
    )


def family_of(family: str, data: Data) -> tuple[str, str]:
    """`family`, or for `"auto"` the one that fits the target, and a sentence that says why.

    Texts and two values are labels. Three to ten consecutive integers from 0 or 1 are labels if
    none is rarer than half of its share: the largest of some counts is rare. Other integers from 0
    on are counts, unless they are large: then a linear regression does as well.
    """
    _checks.choice("family", family, ("auto", "linear", "logistic", "poisson"))
    y, name = data.target, data.label
    if family != "auto":
        if data.is_text and family != "logistic":
            raise ValueError(
                f"family {family!r} needs numbers, but the target {name!r} holds text; use "
                "logistic."
            )
        return family, ""
    values, counts = np.unique(y, return_counts=True)
    number = len(values)
    if data.is_text or number == 2:
        if number > MOST_CLASSES:
            raise ValueError(
                f"target {name!r} holds {number} different texts, more than {MOST_CLASSES} "
                "classes; choose another target, or add --family logistic."
            )
        what = "two values" if number == 2 else f"{number} classes"
        return "logistic", f"{name!r} has {what}, so the regression is logistic."
    if np.any(values != np.round(values)) or values[0] < 0:
        return "linear", ""
    consecutive = values[0] in (0, 1) and values[-1] - values[0] == number - 1
    if consecutive and number <= MOST_LABELS and 2 * number * int(np.min(counts)) >= len(y):
        return "logistic", (
            f"{name!r} has the values {values[0]:g} to {values[-1]:g}, about equally often: they "
            "were taken for labels, and the regression is logistic; if they are not, use --family "
            "linear or poisson."
        )
    if values[0] == 0 and np.mean(y) < LARGE_COUNTS:
        return "poisson", (
            f"{name!r} holds integers from 0 to {values[-1]:g}: they were taken for counts, and "
            "the regression is Poisson; if they are not, use --family linear or logistic."
        )
    if number <= MOST_LABELS:
        return "linear", (
            f"{name!r} has {number} different integers, and the regression is linear; if they are "
            "labels, use --family logistic."
        )
    return "linear", ""


def model_of(family: str, prior: str, seed: int, data: Data) -> Any:
    """The fitted estimator; with groups, the categories of a column are one."""
    from pipla.regression import estimators

    kinds = {
        "linear": estimators.SparseLinearRegression,
        "logistic": estimators.SparseLogisticRegression,
        "poisson": estimators.SparsePoissonRegression,
    }
    seed = _checks.integer("seed", seed, least=0)
    model = kinds[family](
        prior=prior, groups=data.groups, fit_intercept=data.intercept, random_state=seed
    )
    y = data.target if family == "logistic" else data.target.astype(np.float64)
    if family == "logistic" and y.dtype.kind == "f" and np.all(y == np.round(y)):
        y = y.astype(np.int64)
    return model.fit(data.rows(), y)
