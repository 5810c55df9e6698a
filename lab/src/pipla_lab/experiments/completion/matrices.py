"""The matrices that are completed: a checkerboard of rank 2, and ratings of films."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

#: The paper's size, noise variance and share of missing pixels.
SIZE, VARIANCE, MISSING = 188, 0.1, 0.3
#: The grey levels of the light squares in the left and the right half.
LEVELS = (255.0, 179.0)
RATINGS_FILE = "movielens_latest_small.npz"
HELD_OUT = 0.1


class Observed(NamedTuple):
    """Some entries of a matrix, each at most once."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]

    @property
    def share(self) -> float:
        """The share of the entries that are observed."""
        return len(self.values) / (self.shape[0] * self.shape[1])

    def some(self, which: np.ndarray) -> Observed:
        """These entries alone."""
        return Observed(self.rows[which], self.columns[which], self.values[which], self.shape)

    def filled(self, missing: float) -> np.ndarray:
        """The matrix, with one value where nothing is observed."""
        matrix = np.full(self.shape, missing)
        matrix[self.rows, self.columns] = self.values
        return matrix

    def biased_mean(self, shrinkage: float = 5.0) -> tuple[float, np.ndarray, np.ndarray]:
        """The overall mean, and means of rows and columns shrunk as if by `shrinkage` zeros.

        Those of the rows are of what the columns leave over.
        """
        mean = float(self.values.mean())
        left = self.values - mean
        b = _shrunk_means(self.columns, left, self.shape[1], shrinkage)
        a = _shrunk_means(self.rows, left - b[self.columns], self.shape[0], shrinkage)
        return mean, a, b


def _shrunk_means(
    groups: np.ndarray, values: np.ndarray, count: int, shrinkage: float
) -> np.ndarray:
    sums = np.bincount(groups, values, count)
    return sums / (np.bincount(groups, minlength=count) + shrinkage)


class Matrix(NamedTuple):
    """What is observed, and what a completion is compared with.

    Attributes:
        observed: the entries that methods see.
        truth: the matrix without noise; `None` where nobody knows it.
        test: held-out observations; `None` where the truth is known.
        noise: the standard deviation of the noise; `None` where nobody knows it.
    """

    observed: Observed
    truth: np.ndarray | None
    test: Observed | None
    noise: float | None


def checkerboard(size: int = SIZE) -> np.ndarray:
    """Eight by eight squares, lighter in the left half: a matrix of rank 2."""
    square = np.arange(size) * 8 // size
    light = (square[:, None] + square[None]) % 2
    return light * np.where(square < 4, *LEVELS)[None]


def masked_board(size: int, seed: int) -> Matrix:
    """The checkerboard with noise, 30 % of its pixels missing at random.

    All seeds have the same number of missing pixels, and share their compiled programs.
    """
    rng, truth = np.random.default_rng(seed), checkerboard(size)
    noise = float(np.sqrt(VARIANCE))
    seen = rng.permutation(truth.size) >= round(MISSING * truth.size)
    rows, columns = np.nonzero(seen.reshape(truth.shape))
    values = truth[rows, columns] + noise * rng.standard_normal(len(rows))
    return Matrix(Observed(rows, columns, values, truth.shape), truth, None, noise)


def ratings_path() -> Path | None:
    """MovieLens (latest, small) in `$PIPLA_DATA`, if it is there."""
    folder = os.environ.get("PIPLA_DATA")
    path = Path(folder) / RATINGS_FILE if folder else None
    return path if path is not None and path.is_file() else None


def ratings(size: tuple[int, int] | None, seed: int) -> Matrix:
    """Ratings by users of films; a tenth is held out.

    Arguments:
        size: only the users with the most ratings, and the films with the most among these.
        seed: of the split.
    """
    path = ratings_path()
    if path is None:
        raise FileNotFoundError(f"{RATINGS_FILE} is not in the folder in PIPLA_DATA.")
    with np.load(path, allow_pickle=False) as data:
        users, films, values = data["user"], data["movie_id"], data["rating"].astype(np.float64)
    rows, columns = (np.unique(ids, return_inverse=True)[1] for ids in (users, films))
    if size is not None:
        rows, columns, values = _densest(rows, columns, values, size)
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    hidden = np.random.default_rng(seed).random(len(values)) < HELD_OUT
    whole = Observed(rows, columns, values, shape)
    return Matrix(whole.some(~hidden), None, whole.some(hidden), None)


def _densest(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    for side, most in ((0, size[0]), (1, size[1])):
        ids = rows if side == 0 else columns
        top = np.argsort(-np.bincount(ids), kind="stable")[:most]
        kept = np.isin(ids, top)
        rows, columns, values = rows[kept], columns[kept], values[kept]
    rows, columns = (np.unique(ids, return_inverse=True)[1] for ids in (rows, columns))
    return rows, columns, values
