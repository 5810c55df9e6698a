"""Features as the sampler wants them: by columns, scaled, without constant ones."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from pipla.regression._state import Columns

#: Equal observations are not merged in arrays with more numbers than this.
LARGEST_MERGED = 1_000_000


class Design(NamedTuple):
    """Features by columns, and how coefficients return to the user's scale.

    Attributes:
        columns: the features that vary, centred (dense ones only) and scaled.
        kept: which of the user's features these are.
        centres, scales: what was subtracted from each of them, and what it was divided by.
        num_features: how many features the user gave.
    """

    columns: Columns
    kept: np.ndarray
    centres: np.ndarray
    scales: np.ndarray
    num_features: int

    @property
    def size(self) -> int:
        """The number of coefficients that are sampled."""
        return len(self.kept)

    @property
    def is_dense(self) -> bool:
        """Whether the columns are stored with their zeros."""
        return self.columns.dense.size > 0

    def coefficients(self, standard: np.ndarray) -> np.ndarray:
        """Coefficients for the user's features; the last axis are the features."""
        found = np.zeros((*standard.shape[:-1], self.num_features), standard.dtype)
        found[..., self.kept] = standard / self.scales.astype(standard.dtype)
        return found

    def level(self, standard: np.ndarray, level: np.ndarray) -> np.ndarray:
        """The intercept for features that were not centred."""
        return level - standard @ (self.centres / self.scales)


def design_of(features: Any, weights: np.ndarray, centre: bool, scale: bool) -> Design:
    """The design of a feature matrix.

    Arguments:
        features: a float array or a sparse matrix of SciPy, of shape (rows, features).
        weights: of the rows; a weight of 2 counts a row twice.
        centre: subtract the weighted mean of each dense column, because there is an intercept.
        scale: divide by the weighted standard deviation of each column.
    """
    total = float(weights.sum())
    sparse = not isinstance(features, np.ndarray)
    matrix = features.tocsc() if sparse else features
    means = np.asarray(matrix.T @ weights).ravel() / total
    spread, moments = _moments(matrix, weights, means if centre else np.zeros(len(means)))
    # Rounding leaves a constant column a variance of this order; compressed ones stay uncentred.
    varies = spread > (1e-14 if sparse else 1e-24) * np.maximum(moments, np.finfo(float).tiny)
    kept = np.flatnonzero(varies)
    scales = np.sqrt(spread[kept]) if scale else np.ones(len(kept))
    centres = means[kept] if centre and not sparse else np.zeros(len(kept))
    if sparse:
        csc = matrix if len(kept) == matrix.shape[1] else matrix[:, kept]
        columns = Columns(
            np.zeros((0, 0)),
            csc.data / np.repeat(scales, np.diff(csc.indptr)),
            csc.indices.astype(np.int32),
            csc.indptr.astype(np.int64),
        )
    else:
        dense = np.ascontiguousarray(matrix[:, kept].T if len(kept) < len(varies) else matrix.T)
        dense = (dense - centres[:, None]) / scales[:, None]
        columns = dense_columns(dense)
    return Design(columns, kept, centres, scales, len(varies))


def _moments(matrix: Any, weights: np.ndarray, centres: np.ndarray) -> tuple[Any, Any]:
    """Weighted second moments of each column around its centre, and around 0.

    Centred first: of a date or a coordinate, the difference of the square's mean and the mean's
    square is mostly rounding.
    """
    total = float(weights.sum())
    if isinstance(matrix, np.ndarray):
        moved = matrix - centres
        spread = np.einsum("ij,ij,i->j", moved, moved, weights) / total
        return spread, spread + centres**2
    owner = np.repeat(np.arange(matrix.shape[1]), np.diff(matrix.indptr))
    seen, size = weights[matrix.indices], matrix.shape[1]
    spread = np.bincount(owner, seen * (matrix.data - centres[owner]) ** 2, size) / total
    absent = np.maximum(total - np.bincount(owner, seen, size), 0.0) / total
    absent[absent < 1e-12] = 0.0  # a column without zeros
    spread += absent * centres**2
    return spread, spread + centres**2


def equal_columns(columns: Columns) -> list[np.ndarray]:
    """Groups of two or more columns that are equal but for rounding."""
    found: dict[bytes, list[int]] = {}
    dense = columns.dense.size > 0
    size = len(columns.dense) if dense else len(columns.starts) - 1
    for j in range(size):
        if dense:
            key = np.round(columns.dense[j], 9).tobytes()
        else:
            part = slice(columns.starts[j], columns.starts[j + 1])
            key = columns.rows[part].tobytes() + np.round(columns.values[part], 9).tobytes()
        found.setdefault(hashlib.sha256(key).digest(), []).append(j)
    return [np.array(group) for group in found.values() if len(group) > 1]


def centre_and_scale(y: np.ndarray, weights: np.ndarray, centre: bool) -> tuple[float, float]:
    """Weighted mean (0 unless `centre`) and standard deviation of the responses, 0 if constant."""
    top = float(np.max(np.abs(y), initial=0.0))
    if top == 0:
        return 0.0, 0.0
    unit, total = y / top, float(weights.sum())  # the square of a very large number is infinite
    level = float(weights @ unit) / total if centre else 0.0
    spread = float(np.sqrt(weights @ (unit - level) ** 2 / total))
    return top * level, top * spread if spread > 1e-14 else 0.0


def merged(features: Any, y: np.ndarray, weights: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """Equal observations as one, with their weights added up, in an order that depends on nothing.

    So repeated rows and weights give equal answers, to the last bit. Large data stay as they are.
    """
    rows, size = features.shape
    if rows * size > LARGEST_MERGED:
        return features, y, weights
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    both = np.column_stack([dense, y])
    _, first, place = np.unique(both, axis=0, return_index=True, return_inverse=True)
    chosen = features[first] if isinstance(features, np.ndarray) else features.tocsr()[first]
    return chosen, y[first], np.bincount(place.ravel(), weights, len(first))


def dense_columns(dense: np.ndarray) -> Columns:
    """Columns stored with their zeros, one per row of `dense`."""
    return Columns(dense, np.zeros(0), np.zeros(0, np.int32), np.zeros(1, np.int64))


def scaled_rows(columns: Columns, root: np.ndarray) -> Columns:
    """Columns whose rows are multiplied by `root`."""
    if columns.dense.size:
        return columns._replace(dense=columns.dense * root)
    return columns._replace(values=columns.values * root[columns.rows])
