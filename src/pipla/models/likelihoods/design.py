r"""The parts that generalised linear models share: design matrices, labels, weights and offsets.

Every function here names the argument that is wrong. Values are checked where they are known; in
compiled programs only shapes are.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pipla import _checks
from pipla.operators.sparse import Sparse, is_sparse

#: The largest label of a class.
MOST_CLASSES = 2**24


class Design(eqx.Module):
    """A design matrix, one row per observation, as the map from x to linear predictors."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """(observations, features)."""

    @abc.abstractmethod
    def times(self, x: Array) -> Array:
        """Linear predictors: (observations,), or (classes, observations) for x with two axes."""

    @abc.abstractmethod
    def transpose_times(self, z: Array) -> Array:
        """The transposed map, for z with one axis."""

    @abc.abstractmethod
    def rows(self, indices: Array) -> Design:
        """The design of these observations; the indices may be traced."""


class DenseDesign(Design):
    r"""A matrix of numbers, stored with one observation per column.

    The product for all particles, $(N \times d)(d \times n)$, then runs along the long side of the
    matrix. With one observation per row it would run along the short side, and take longer.
    """

    columns: Float[Array, "features observations"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.columns.shape[1], self.columns.shape[0]

    def times(self, x: Array) -> Array:
        return x.T @ self.columns.astype(x.dtype)

    def transpose_times(self, z: Array) -> Array:
        return self.columns.astype(z.dtype) @ z

    def rows(self, indices: Array) -> DenseDesign:
        return DenseDesign(self.columns[:, indices])


class SparseDesign(Design):
    """A sparse matrix (`pipla.operators.Sparse`)."""

    matrix: Sparse
    starts: Int[Array, " observations"]  # where the entries of each row begin
    longest: int = eqx.field(static=True)  # the most entries in a row

    def __init__(self, matrix: Sparse) -> None:
        counts = np.bincount(np.asarray(matrix.rows), minlength=matrix.shape[0])
        self.matrix = matrix
        self.starts = jnp.asarray(np.cumsum(counts) - counts, jnp.int32)
        self.longest = max(int(counts.max()), 1)

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def times(self, x: Array) -> Array:
        return self.matrix.apply(x) if x.ndim == 1 else jax.vmap(self.matrix.apply)(x.T)

    def transpose_times(self, z: Array) -> Array:
        return self.matrix.adjoint(z)

    def rows(self, indices: Array) -> SparseDesign:
        """Their entries, each row filled up with zeros to the longest of the matrix.

        Programs have fixed shapes: a matrix with a few very long rows makes large batches.
        """
        indices = indices.astype(jnp.int32)
        places = self.starts[indices][:, None] + jnp.arange(self.longest, dtype=jnp.int32)[None]
        whole = self.matrix
        own = whole.rows.at[places].get(mode="fill", fill_value=-1) == indices[:, None]
        values = jnp.where(own, whole.values.at[places].get(mode="fill", fill_value=0), 0)
        columns = jnp.where(own, whole.columns.at[places].get(mode="fill", fill_value=0), 0)
        rows = jnp.repeat(jnp.arange(indices.size, dtype=jnp.int32), self.longest)
        matrix = whole.with_entries(values.ravel(), rows, columns.ravel(), indices.size)
        starts = self.longest * jnp.arange(indices.size, dtype=jnp.int32)
        return eqx.tree_at(lambda d: (d.matrix, d.starts), self, (matrix, starts))


def as_design(features: Any) -> Design:
    """Dense numbers, or a sparse matrix of SciPy's, JAX's or our own kind, as a design."""
    if is_sparse(features):
        return SparseDesign(features if isinstance(features, Sparse) else Sparse(features))
    matrix = _checks.real_array("features", features)
    if matrix.ndim != 2:
        raise ValueError(
            "features must have two axes, (observations, features), got shape "
            f"{matrix.shape}; a single feature has shape (observations, 1)."
        )
    if 0 in matrix.shape:
        raise ValueError(f"features is empty: its shape is {matrix.shape}.")
    _checks.finite("features", matrix)
    return DenseDesign(matrix.T)


def one_per_observation(name: str, values: Any, count: int) -> Any:
    """`values` as a vector of real numbers, one per observation; NumPy's unless it is traced."""
    traced = isinstance(values, jax.core.Tracer)
    array = _checks.real_array(name, values) if traced else _checks.on_host(name, values)
    if array.shape != (count,):
        raise ValueError(
            f"{name} must have shape ({count},), one for each row of features, got {array.shape}."
        )
    return array


def binary_labels(labels: Any, count: int) -> Float[Array, " observations"]:
    """Labels 0 and 1, -1 and 1, or booleans, as 0.0 and 1.0."""
    array = one_per_observation("labels", labels, count)
    if not isinstance(array, jax.core.Tracer):
        found = np.unique(array)
        if np.all(np.isin(found, (-1, 1))):
            array = array > 0
        elif not np.all(np.isin(found, (0, 1))):
            raise ValueError(
                "labels must be 0 and 1, -1 and 1, or booleans, got "
                f"{_listed(found)}; likelihoods.Multinomial takes several classes."
            )
    return jnp.asarray(array, jnp.result_type(float))


def class_labels(
    labels: Any, num_classes: int | None, count: int
) -> tuple[Int[Array, " observations"], int]:
    """Labels 0, 1, ..., `num_classes` - 1 and the number of classes."""
    array = one_per_observation("labels", labels, count)
    if num_classes is not None:
        num_classes = _checks.integer("num_classes", num_classes, least=2)
    if isinstance(array, jax.core.Tracer):
        if num_classes is None:
            raise ValueError("num_classes must be given where labels are traced.")
        return array.astype(jnp.int32), num_classes
    if not _are_counts(array):
        raise ValueError(f"labels must be integers 0, 1, ..., got {_listed(np.unique(array))}.")
    needed = _checks.integer("labels", int(array.max()), least=0, most=MOST_CLASSES) + 1
    if num_classes is not None and needed > num_classes:
        raise ValueError(f"labels go up to {needed - 1}, but num_classes is {num_classes}.")
    return jnp.asarray(array, jnp.int32), num_classes or max(needed, 2)


def counts_of(counts: Any, count: int) -> Float[Array, " observations"]:
    """Non-negative integers as floats."""
    array = one_per_observation("counts", counts, count)
    if not isinstance(array, jax.core.Tracer) and not _are_counts(array):
        bad = array[~((array >= 0) & (array == np.round(array)))]
        raise ValueError(f"counts must be non-negative integers, got {_listed(bad)}.")
    return jnp.asarray(array, jnp.result_type(float))


def weights_of(weights: Any, count: int) -> Float[Array, " observations"] | None:
    """Weights of observations: 0 or positive, and not all of them 0."""
    if weights is None:
        return None
    array = one_per_observation("weights", weights, count)
    if not isinstance(array, jax.core.Tracer):
        if not np.all(np.isfinite(array) & (array >= 0)):
            raise ValueError("weights must be 0 or positive, and finite.")
        if not np.any(array):
            raise ValueError("weights are all 0: no data are seen.")
    return jnp.asarray(array, jnp.result_type(float))


def offsets_of(offsets: Any, shape: tuple[int, ...]) -> Array | None:
    """Known parts of the linear predictors, of this shape."""
    if offsets is None:
        return None
    array = _checks.real_array("offsets", offsets)
    if array.shape != shape:
        raise ValueError(f"offsets must have shape {shape}, got {array.shape}.")
    _checks.finite("offsets", array)
    return array


def _are_counts(array: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.all(np.isfinite(array) & (array >= 0) & (array == np.round(array))))


def _listed(values: np.ndarray) -> str:
    shown = ", ".join(f"{value:g}" for value in values[:5].astype(float))
    return shown + (", ..." if len(values) > 5 else "")
