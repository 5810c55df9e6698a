r"""Linear operators $H$ as small pytrees: `apply`, `adjoint` and, where known, an eigenbasis.

The eigenbasis diagonalises $H^\top H$. In it, the gradient, the proximal map and the
Ornstein-Uhlenbeck flow of a Gaussian likelihood are exact.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla import _checks
from pipla.operators.eigenbasis import Diagonal, Eigenbasis, Rotations, along


class Operator(eqx.Module):
    """A linear map from x to noise-free observations.

    Subclass it for an operator of your own: `apply` and `adjoint` are enough.
    """

    @abc.abstractmethod
    def apply(self, x: Array) -> Array:
        """Return $H x$."""

    @abc.abstractmethod
    def adjoint(self, y: Array) -> Array:
        r"""Return $H^\top y$."""

    def eigenbasis(self) -> Eigenbasis | None:
        r"""An eigenbasis of $H^\top H$, or `None` if unknown.

        It is expensive for dense matrices; call it once and keep the result.
        """
        return None

    def __matmul__(self, other: Operator) -> Operator:
        """First `other`, then this one: `Mask(seen) @ CircularConvolution(psf, shape)`."""
        if not isinstance(other, Operator):
            return NotImplemented
        return Composed(self, other)


class Composed(Operator):
    """Two operators one after the other: first `first`, then `last`."""

    last: Operator
    first: Operator

    def apply(self, x: Array) -> Array:
        return self.last.apply(self.first.apply(x))

    def adjoint(self, y: Array) -> Array:
        return self.first.adjoint(self.last.adjoint(y))


class Identity(Operator):
    """The identity, $H x = x$: denoising."""

    def apply(self, x: Array) -> Array:
        return x

    def adjoint(self, y: Array) -> Array:
        return y

    def eigenbasis(self) -> Eigenbasis:
        return Diagonal(jnp.ones(()))


class Mask(Operator):
    """Elementwise multiplication, $H x = m x$: missing elements, or weights.

    Arguments:
        mask: zeros (missing) and ones, booleans, or any weights; its shape is that of x, or
            broadcasts to it.
    """

    mask: Array = eqx.field(converter=lambda m: _as_floats("mask", m))

    def apply(self, x: Array) -> Array:
        return self._times("x", x)

    def adjoint(self, y: Array) -> Array:
        return self._times("y", y)

    def eigenbasis(self) -> Eigenbasis:
        return Diagonal(self.mask**2)

    def _times(self, name: str, x: Array) -> Array:
        try:
            np.broadcast_shapes(self.mask.shape, x.shape)
        except ValueError as error:
            raise ValueError(
                f"{name} must have shape {self.mask.shape}, that of the mask, got {x.shape}."
            ) from error
        return self.mask.astype(x.dtype) * x


class Separable(Operator):
    r"""A matrix for each of several axes: $H x = A x B^\top$ for an image.

    Its eigenbasis takes one small eigendecomposition per axis, and is applied by matrix products.

    Arguments:
        matrices: one matrix per axis.
        axes: the axes of x that they act on; by default the first ones.
        ndim: the number of axes of x; by default the number of matrices.
    """

    matrices: tuple[Array, ...]
    axes: tuple[int, ...] = eqx.field(static=True)
    ndim: int = eqx.field(static=True)

    def __init__(self, matrices: Any, axes: tuple[int, ...] | None = None, ndim: int | None = None):
        self.matrices = tuple(_as_floats("matrices", matrix) for matrix in matrices)
        if not self.matrices or any(matrix.ndim != 2 for matrix in self.matrices):
            raise ValueError(
                "matrices must be matrices, one per axis; got arrays of shapes "
                f"{[matrix.shape for matrix in self.matrices]}."
            )
        count = len(self.matrices)
        self.ndim = _checks.integer("ndim", count if ndim is None else ndim, least=count)
        self.axes = checked_axes(axes, count, self.ndim)

    def apply(self, x: Array) -> Array:
        require_sizes("x", x, [m.shape[1] for m in self.matrices], self.axes, self.ndim)
        return along(self.matrices, x, self.axes)

    def adjoint(self, y: Array) -> Array:
        require_sizes("y", y, [m.shape[0] for m in self.matrices], self.axes, self.ndim)
        return along(tuple(m.T for m in self.matrices), y, self.axes)

    def eigenbasis(self) -> Rotations:
        rotations = []
        eigenvalues = np.ones((1,) * self.ndim)
        for given, axis in zip(self.matrices, self.axes, strict=True):
            matrix = np.asarray(given, np.float64)
            values, vectors = np.linalg.eigh(matrix.T @ matrix)
            rotations.append(jnp.asarray(vectors, jnp.result_type(float)))
            shape = [1] * self.ndim
            shape[axis] = len(values)
            eigenvalues = eigenvalues * np.maximum(values, 0.0).reshape(shape)
        return Rotations(
            jnp.asarray(eigenvalues, jnp.result_type(float)), tuple(rotations), self.axes
        )


class Dense(Operator):
    """Any matrix, for an x with one axis. The eigenbasis takes time cubic in the length of x.

    Arguments:
        matrix: $H$ itself, of shape (observations, elements of x).
    """

    matrix: Array = eqx.field(converter=lambda m: _as_floats("matrix", m))

    def __check_init__(self) -> None:
        if self.matrix.ndim != 2:
            raise ValueError(f"matrix must have two axes, got shape {self.matrix.shape}.")

    def apply(self, x: Array) -> Array:
        require_sizes("x", x, self.matrix.shape[1:], (0,), 1)
        return self.matrix.astype(x.dtype) @ x

    def adjoint(self, y: Array) -> Array:
        require_sizes("y", y, self.matrix.shape[:1], (0,), 1)
        return self.matrix.T.astype(y.dtype) @ y

    def eigenbasis(self) -> Eigenbasis:
        return Separable((self.matrix,)).eigenbasis()


def require_sizes(
    name: str, array: Array, sizes: Sequence[int], axes: Sequence[int], ndim: int
) -> None:
    """`array` has `ndim` axes and these sizes along `axes`. Shapes are static: this costs nothing.

    >>> require_sizes("x", jnp.ones((6, 5, 3)), (6, 7), (0, 1), 3)
    Traceback (most recent call last):
    ValueError: x must have shape (6, 7, any) for this operator, got (6, 5, 3).
    """
    expected: list[int | str] = ["any"] * ndim
    for axis, size in zip(axes, sizes, strict=True):
        expected[axis] = size
    got = jnp.shape(array)
    if len(got) != ndim or any(e not in ("any", g) for e, g in zip(expected, got, strict=True)):
        shape = f"({', '.join(map(str, expected))}{',' if ndim == 1 else ''})"
        raise ValueError(f"{name} must have shape {shape} for this operator, got {got}.")


def checked_axes(axes: Any, count: int, ndim: int) -> tuple[int, ...]:
    """`count` different axes of an array with `ndim` axes; by default the first ones."""
    if axes is None:
        axes = range(count)
    try:
        axes = tuple(_checks.integer("axes", axis, least=-ndim) for axis in axes)
    except TypeError as error:
        raise TypeError(f"axes must be a tuple of integers, got {axes!r}.") from error
    if any(axis >= ndim for axis in axes) or len({axis % ndim for axis in axes}) < len(axes):
        raise ValueError(f"axes must be different axes of an x with {ndim} axes, got {axes}.")
    if len(axes) != count:
        raise ValueError(f"axes must have {count} entries, got {axes}.")
    return axes


def _as_floats(name: str, value: Any) -> Array:
    """Real, finite numbers as an array of JAX's default float type."""
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of real numbers, got {value!r}.") from error
    if jnp.iscomplexobj(array):
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}.")
    array = jnp.asarray(array, jnp.result_type(float))
    if not isinstance(array, jax.core.Tracer):
        _checks.finite(name, array)
    return array
