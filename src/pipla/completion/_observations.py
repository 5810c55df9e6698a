"""What is observed of a matrix: as triplets, whatever it was given as."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipla import _checks


class Triplets(NamedTuple):
    """Some entries of a matrix. A pair may occur more than once: repeated observations.

    Attributes:
        rows, columns: the indices, from 0.
        values: the observations.
        shape: the numbers of rows and columns; by default what the largest indices need.
    """

    rows: Any
    columns: Any
    values: Any
    shape: tuple[int, int] | None = None


class Observed(NamedTuple):
    """Checked triplets."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]

    @property
    def share(self) -> float:
        """The share of the entries that are observed (repeated ones count)."""
        return len(self.values) / (self.shape[0] * self.shape[1])

    def some(self, which: np.ndarray) -> Observed:
        """These observations alone."""
        return Observed(self.rows[which], self.columns[which], self.values[which], self.shape)

    def mask(self) -> np.ndarray:
        """Where there is an observation."""
        seen = np.zeros(self.shape, bool)
        seen[self.rows, self.columns] = True
        return seen

    def averaged(self) -> np.ndarray:
        """The matrix of the observations, averaged where repeated; NaN where there is none."""
        sums, counts = np.zeros(self.shape), np.zeros(self.shape)
        np.add.at(sums, (self.rows, self.columns), self.values)
        np.add.at(counts, (self.rows, self.columns), 1.0)
        return np.divide(sums, counts, out=np.full(self.shape, np.nan), where=counts > 0)

    def biased_mean(self, shrinkage: float = 5.0) -> tuple[float, np.ndarray, np.ndarray]:
        """The overall mean, and means of rows and columns shrunk as if by `shrinkage` zeros.

        Those of the rows are of what the columns leave over.
        """
        mean = float(self.values.mean())
        left = self.values - mean
        b = _shrunk_means(self.columns, left, self.shape[1], shrinkage)
        a = _shrunk_means(self.rows, left - b[self.columns], self.shape[0], shrinkage)
        return mean, a, b


def as_observed(given: Any) -> Observed:
    """A matrix whose missing entries are NaN or masked, or `Triplets`, as checked triplets."""
    found = _from_triplets(given) if isinstance(given, Triplets) else _from_matrix(given)
    if not found.values.size:
        raise ValueError("observed has no observed entries: all of them are missing.")
    bad = int(np.sum(~np.isfinite(found.values)))
    if bad:
        raise ValueError(
            f"observed has {bad} infinite value(s); mark missing entries with NaN instead."
        )
    return found


def _shrunk_means(
    groups: np.ndarray, values: np.ndarray, count: int, shrinkage: float
) -> np.ndarray:
    sums = np.bincount(groups, values, count)
    return sums / (np.bincount(groups, minlength=count) + shrinkage)


def _from_matrix(given: Any) -> Observed:
    if np.ma.isMaskedArray(given):
        given = np.where(np.ma.getmaskarray(given), np.nan, given.data)
    matrix = _checks.on_host("observed", given)
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(
            f"observed must be a matrix with at least one entry, got shape {matrix.shape}; "
            "pipla.completion.Triplets holds single entries."
        )
    matrix = matrix.astype(np.float64)
    rows, columns = np.nonzero(~np.isnan(matrix))
    return Observed(rows, columns, matrix[rows, columns], matrix.shape)


def _from_triplets(given: Triplets) -> Observed:
    values = np.asarray(_checks.on_host("values", given.values), np.float64)
    rows, columns = _checks.on_host("rows", given.rows), _checks.on_host("columns", given.columns)
    for name, found in (("rows", rows), ("columns", columns)):
        if found.shape != values.shape or values.ndim != 1:
            raise ValueError(
                f"{name} and values must be vectors of one length, got shapes {found.shape} and "
                f"{values.shape}."
            )
        if values.size and (found.dtype.kind not in "iu" or found.min() < 0):
            raise ValueError(f"{name} must be integers from 0, got {_checks.show(found)}.")
    known = ~np.isnan(values)
    rows, columns, values = rows[known], columns[known], values[known]
    needed = (int(rows.max()) + 1, int(columns.max()) + 1) if values.size else (1, 1)
    wanted = needed if given.shape is None else tuple(given.shape)
    if len(wanted) != 2:
        raise ValueError(f"shape must be two numbers, got {_checks.show(given.shape)}.")
    shape = (
        _checks.integer("shape", wanted[0], least=1),
        _checks.integer("shape", wanted[1], least=1),
    )
    if shape[0] < needed[0] or shape[1] < needed[1]:
        raise ValueError(f"shape must be at least {needed}, which the indices need; got {shape}.")
    return Observed(rows, columns, values, shape)
