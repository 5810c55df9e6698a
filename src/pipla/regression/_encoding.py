"""Columns of a table as features: numbers, categories, dates, and what is said of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipla._dialects import listed
from pipla._extras import extra

#: With more columns than this, features are stored without their zeros.
MOST_DENSE = 500
#: The category of missing values, and that of texts which occur once.
MISSING, OTHER = "(missing)", "(other)"
#: With fewer missing values, no feature says where they are: the standard error of its coefficient
#: would be above a third of the noise's standard deviation.
FEWEST_MISSING = 10
#: More categories than this are said.
MANY_CATEGORIES = 30
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
YEAR = 365.2425

_SENTENCES = {
    "index": "Left out as numbers of the rows (--keep uses them): {}.",
    "unique": "Left out as texts of which most occur only once: {}.",
    "constant": "Left out as constant: {}.",
    "empty": "Left out as empty: {}.",
    "median": "Missing values were replaced by the median of the column: {}.",
    "frequent": "Missing texts were replaced by the most frequent one: {}.",
    "category": "Missing texts are a category of their own: {}.",
    "indicator": "A feature of its own says where values are missing: {}.",
    "other": "Texts that occur only once are one category, (other): {}.",
    "many": "Many categories: {}.",
    "reference": "Categories are compared with the most frequent one: {}.",
    "season": "Season and weekday are features as well: {}.",
}


class Notes:
    """Columns by what happened to them."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {kind: [] for kind in _SENTENCES}

    def add(self, kind: str, *names: str, detail: Any = "") -> None:
        """Columns to which the same happened, with a detail in brackets."""
        end = f" ({detail})" if detail != "" else ""
        self._found[kind] += [f"{name!r}{end}" for name in names]

    def sentences(self) -> list[str]:
        """One for each kind, about all columns of that kind."""
        return [
            _SENTENCES[kind].format(listed(names, quoted=False))
            for kind, names in self._found.items()
            if names
        ]


class Categories(NamedTuple):
    """The categories of a column of text.

    Attributes:
        levels: the categories, the most frequent one first, the others by name.
        codes: the category of each row.
        missing: the number of missing texts.
        once: the number of texts that occur once; they are one category, unless there is only one.
    """

    levels: list[str]
    codes: np.ndarray
    missing: int = 0
    once: int = 0

    def say(self, name: str, notes: Notes) -> None:
        """What there is to say about the column."""
        if self.missing:
            kind = "category" if MISSING in self.levels else "frequent"
            notes.add(kind, name, detail=self.missing)
        if OTHER in self.levels:
            notes.add("other", name, detail=self.once)
        if len(self.levels) > MANY_CATEGORIES:
            notes.add("many", name, detail=len(self.levels))


def categories_of(values: np.ndarray, gaps: np.ndarray) -> Categories:
    """The categories of texts, some of which are missing (not all)."""
    with extra("pandas", "a table"):
        import pandas as pd
    codes, texts = pd.factorize(values)
    levels = [str(text) for text in texts]
    counts = np.bincount(codes[~gaps], minlength=len(levels))
    once, missing = np.flatnonzero(counts == 1), int(gaps.sum())
    if missing:
        most = min(range(len(levels)), key=lambda i: (-counts[i], levels[i]))
        codes = np.where(gaps, len(levels) if missing >= FEWEST_MISSING else most, codes)
        levels.append(MISSING)
    if len(once) > 1:
        codes = np.where(np.isin(codes, once), len(levels), codes)
        levels.append(OTHER)
    return _most_frequent_first(levels, codes)._replace(missing=missing, once=len(once))


def _most_frequent_first(levels: list[str], codes: np.ndarray) -> Categories:
    """The levels that occur, the most frequent one first, the others by name."""
    counts = np.bincount(codes, minlength=len(levels))
    order = sorted(np.flatnonzero(counts).tolist(), key=lambda i: levels[i])
    first = max(order, key=lambda i: counts[i])
    order = [first, *(i for i in order if i != first)]
    places = np.zeros(len(levels), np.int64)
    places[order] = np.arange(len(order))
    return Categories([levels[i] for i in order], places[codes])


def with_median(name: str, values: np.ndarray, gaps: np.ndarray, notes: Notes) -> np.ndarray:
    """Numbers with the median in place of missing ones."""
    if not gaps.any():
        return values
    notes.add("median", name, detail=int(gaps.sum()))
    return np.where(gaps, np.median(values[~gaps]), values)


class Columns:
    """The features, one after the other: numbers, or the rows in which a category occurs."""

    def __init__(self, rows: int, notes: Notes) -> None:
        self.rows, self.notes = rows, notes
        self.names: list[str] = []
        self.groups: list[int] = []
        self.references: list[str] = []
        self.scales: list[float] = []
        self._parts: list[tuple[np.ndarray, bool]] = []

    def numbers(self, group: int, name: str, values: np.ndarray, gaps: np.ndarray) -> np.ndarray:
        """A column of numbers; the values without gaps."""
        if np.isinf(values).any():
            raise ValueError(infinite(name, values))
        missing = int(gaps.sum())
        values = with_median(name, values, gaps, self.notes)
        if np.ptp(values) > 0:
            self._add(name, group, "", values)
        elif missing < FEWEST_MISSING:
            self.notes.add("constant", name)
        if missing >= FEWEST_MISSING:
            self._add(f"{name} missing", group, "", np.flatnonzero(gaps), is_rows=True)
            self.notes.add("indicator", name)
        return values

    def categories(
        self, group: int, name: str, values: np.ndarray, gaps: np.ndarray, is_kept: bool = False
    ) -> None:
        """A feature for each category but the most frequent one."""
        found = categories_of(values, gaps)
        if 2 * found.once > self.rows and not is_kept:
            self.notes.add("unique", name, detail=f"{found.once} of {self.rows}")
            return
        found.say(name, self.notes)
        self._add_categories(group, name, found)

    def season(self, group: int, name: str, days: np.ndarray) -> None:
        """The time of the year and the weekday of dates."""
        for word, function in (("sin", np.sin), ("cos", np.cos)):
            self._add(f"{name}: {word} of the year", group, "", function(2 * np.pi * days / YEAR))
        weekdays = (np.floor(days).astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
        self.notes.add("season", name)
        self._add_categories(group, name, _most_frequent_first(list(DAYS), weekdays))

    def _add_categories(self, group: int, name: str, found: Categories) -> None:
        if len(found.levels) == 1:
            self.notes.add("constant", name)
            return
        self.notes.add("reference", name, detail=found.levels[0])
        counts = np.bincount(found.codes)
        by_level = np.split(np.argsort(found.codes, kind="stable"), np.cumsum(counts)[:-1])
        for level, rows in zip(found.levels[1:], by_level[1:], strict=True):
            self._add(f"{name}={level}", group, found.levels[0], rows, is_rows=True)

    def _add(
        self, name: str, group: int, reference: str, values: np.ndarray, is_rows: bool = False
    ) -> None:
        share = len(values) / self.rows
        self.scales.append(float(np.sqrt(share * (1 - share)) if is_rows else np.std(values)))
        self.names.append(name)
        self.groups.append(group)
        self.references.append(reference)
        self._parts.append((values, is_rows))

    def joined(self) -> Any:
        """All features as one matrix."""
        if len(self._parts) <= MOST_DENSE:
            found = np.zeros((self.rows, len(self._parts)))
            for j, (values, is_rows) in enumerate(self._parts):
                found[values if is_rows else slice(None), j] = 1.0 if is_rows else values
            return found
        import scipy.sparse

        every = np.arange(self.rows)
        rows = [values if is_rows else every for values, is_rows in self._parts]
        data = [np.ones(len(v)) if is_rows else v for v, is_rows in self._parts]
        starts = np.concatenate([[0], np.cumsum([len(part) for part in rows])])
        shape = (self.rows, len(self._parts))
        parts = (np.concatenate(data), np.concatenate(rows), starts)
        found = scipy.sparse.csc_array(parts, shape=shape)
        found.eliminate_zeros()
        return found.tocsr()


def infinite(name: str, values: np.ndarray) -> str:
    """An error about infinite numbers."""
    return f"column {name!r} has {int(np.isinf(values).sum())} infinite values."
