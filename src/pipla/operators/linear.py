r"""Linear operators $H$ as small pytrees: `apply`, `adjoint` and, where known, an eigenbasis.

The eigenbasis diagonalises $H^\top H$. In it, the gradient, the proximal map and the
Ornstein-Uhlenbeck flow of a Gaussian likelihood are exact.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla import _checks
from pipla.operators._arguments import MOST_AXES, checked_axes, checked_shape, operand
from pipla.operators.eigenbasis import Diagonal, Eigenbasis, Flattened, Rotations, along


class Operator(eqx.Module):
    """A linear map from x to noise-free observations.

    Subclass it for an operator of your own: `apply` and `adjoint`, written in JAX for one x, are
    enough. `FromNumPy` takes functions of NumPy arrays. Functions of $H^\\top H$ are polynomials
    then, which take some products with $H$ and $H^\\top$ per step; with an `eigenbasis` they are
    exact and need none.
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

    def seen(self) -> Array | None:
        """Which observations depend on x at all, as booleans that broadcast to their shape.

        `None` means all of them. The others are missing: a likelihood does not count them.
        """
        return None

    def multiplier(self) -> Array | None:
        """The m of an operator that multiplies each element, $H x = m x$; `None` if it does not."""
        return None

    def of_observations(self, which: Any) -> Operator | None:
        """The operator of these observations alone, a vector; `None` if it has a fixed shape."""
        return None

    def periodic_axes(self) -> tuple[int, ...]:
        """The axes of x along which it continues x by its opposite edge."""
        return ()

    def whitened(self, noise: Array) -> Operator | None:
        r"""The operator $\mathrm{diag}(1/\sigma) H$ for one $\sigma$ per observation.

        `None` if there is none that keeps the eigenbasis known.
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

    def __check_init__(self) -> None:
        for name in ("last", "first"):
            require_operator(name, getattr(self, name))

    def apply(self, x: Array) -> Array:
        return self.last.apply(self.first.apply(x))

    def adjoint(self, y: Array) -> Array:
        return self.first.adjoint(self.last.adjoint(y))

    def seen(self) -> Array | None:
        return self.last.seen()

    def whitened(self, noise: Array) -> Operator | None:
        last = self.last.whitened(noise)
        return None if last is None else Composed(last, self.first)


class Identity(Operator):
    """The identity, $H x = x$: denoising."""

    def apply(self, x: Array) -> Array:
        return operand("x", x)

    def adjoint(self, y: Array) -> Array:
        return operand("y", y)

    def eigenbasis(self) -> Eigenbasis:
        return Diagonal(jnp.ones(()))

    def multiplier(self) -> Array:
        return jnp.ones(())

    def whitened(self, noise: Array) -> Operator:
        return Mask(1 / noise)


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

    def seen(self) -> Array:
        return self.mask != 0

    def multiplier(self) -> Array:
        return self.mask

    def whitened(self, noise: Array) -> Operator:
        return Mask(self.mask / noise)

    def _times(self, name: str, x: Array) -> Array:
        x = operand(name, x)
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
        several = isinstance(matrices, list | tuple) or getattr(matrices, "ndim", 0) == 3
        if not several:
            raise TypeError(
                f"matrices must be a list of matrices, one per axis; got {_checks.show(matrices)}."
            )
        self.matrices = tuple(_as_floats("matrices", matrix) for matrix in matrices)
        if not self.matrices or any(m.ndim != 2 or not m.size for m in self.matrices):
            raise ValueError(
                "matrices must be matrices, one per axis; got arrays of shapes "
                f"{[matrix.shape for matrix in self.matrices]}."
            )
        count = len(self.matrices)
        given = count if ndim is None else ndim
        self.ndim = _checks.integer("ndim", given, least=count, most=MOST_AXES)
        self.axes = checked_axes(axes, count, self.ndim)

    def apply(self, x: Array) -> Array:
        x = operand("x", x, [m.shape[1] for m in self.matrices], self.axes, self.ndim)
        return along(self.matrices, x, self.axes)

    def adjoint(self, y: Array) -> Array:
        y = operand("y", y, [m.shape[0] for m in self.matrices], self.axes, self.ndim)
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
    """Any matrix. The eigenbasis takes time cubic in the number of elements of x.

    Arguments:
        matrix: $H$ itself, of shape (observations, elements of x).
        shape: the shape of x, whose elements the columns stand for in row-major order; by default
            x has one axis. Observations always have one.
    """

    matrix: Array = eqx.field(converter=lambda m: _as_floats("matrix", m))
    shape: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.matrix.ndim != 2 or not self.matrix.size:
            raise ValueError(
                f"matrix must have two axes and elements, got shape {self.matrix.shape}."
            )
        if self.shape is not None and math.prod(checked_shape(self.shape)) != self.matrix.shape[1]:
            raise ValueError(
                f"matrix has {self.matrix.shape[1]} columns, but an x of shape {self.shape} has "
                f"{math.prod(self.shape)} elements."
            )

    def apply(self, x: Array) -> Array:
        shape = self._x_shape()
        x = operand("x", x, shape, range(len(shape)), len(shape))
        return self.matrix.astype(x.dtype) @ x.ravel()

    def adjoint(self, y: Array) -> Array:
        y = operand("y", y, self.matrix.shape[:1], (0,), 1)
        return (self.matrix.T.astype(y.dtype) @ y).reshape(self._x_shape())

    def eigenbasis(self) -> Eigenbasis:
        basis = Separable((self.matrix,)).eigenbasis()
        return basis if self.shape is None else Flattened(basis.eigenvalues, basis, self.shape)

    def of_observations(self, which: Any) -> Operator:
        return Dense(self.matrix[which], self.shape)

    def whitened(self, noise: Array) -> Operator:
        return Dense(self.matrix / noise[:, None], self.shape)

    def _x_shape(self) -> tuple[int, ...]:
        return self.matrix.shape[1:] if self.shape is None else self.shape


class Select(Operator):
    r"""Some elements of x as a vector: $(Hx)_k = x_{i_k}$. Observations of a few entries.

    Unlike `Mask`, what is not observed needs no place in the observations. An element may be
    selected more than once, which means repeated observations of it.

    Arguments:
        which: booleans in the shape of x; or integers, the places of the elements in row-major
            order; or one array of integers per axis, as `numpy.nonzero` returns them. The order
            of the observations is that of `which`, row-major for booleans.
        shape: the shape of x; may be left out for booleans.

    Example:
        >>> import jax.numpy as jnp, pipla
        >>> pair = pipla.operators.Select([[True, False], [False, True]])
        >>> pair.apply(jnp.asarray([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [1.0, 4.0]
    """

    places: Array
    weights: Array | None  # of the selected elements; None means 1
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, which: Any, shape: tuple[int, ...] | None = None) -> None:
        places, self.shape = _selected(which, shape)
        self.places = jnp.asarray(places, jnp.int32)
        self.weights = None

    def apply(self, x: Array) -> Array:
        x = operand("x", x, self.shape, range(len(self.shape)), len(self.shape))
        return self._weighted(x.ravel()[self.places])

    def adjoint(self, y: Array) -> Array:
        y = operand("y", y, self.places.shape, (0,), 1)
        return self._scattered(self._weighted(y))

    def eigenbasis(self) -> Eigenbasis:
        ones = jnp.ones(self.places.shape, jnp.result_type(float))
        return Diagonal(self._scattered(self._weighted(self._weighted(ones))))

    def whitened(self, noise: Array) -> Operator:
        weights = self._weighted(1 / noise)
        return eqx.tree_at(lambda s: s.weights, self, weights, is_leaf=lambda leaf: leaf is None)

    def _weighted(self, y: Array) -> Array:
        return y if self.weights is None else self.weights.astype(y.dtype) * y

    def _scattered(self, y: Array) -> Array:
        zeros = jnp.zeros(math.prod(self.shape), y.dtype)
        return zeros.at[self.places].add(y).reshape(self.shape)


def _selected(which: Any, shape: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """Places in row-major order, and the shape of x."""
    arrays = which if isinstance(which, tuple) and which else (which,)
    arrays = tuple(_checks.on_host("which", array) for array in arrays)
    if any(array.dtype.kind not in "biu" for array in arrays):
        found = ", ".join(str(array.dtype) for array in arrays)
        raise TypeError(f"which must be booleans or integers, got {found}.")
    if arrays[0].dtype.kind == "b":
        mask = arrays[0]
        if len(arrays) > 1 or mask.shape != (mask.shape if shape is None else checked_shape(shape)):
            raise ValueError(f"which has shape {mask.shape}, but x has shape {shape}.")
        places, shape = np.flatnonzero(mask), mask.shape
    else:
        if shape is None:
            raise ValueError("shape, that of x, must be given where `which` holds integers.")
        shape = checked_shape(shape)
        if any(array.ndim != 1 for array in arrays) or len({len(array) for array in arrays}) > 1:
            raise ValueError("which must be one vector of integers, or one per axis of x.")
        if isinstance(which, tuple) and len(arrays) != len(shape):
            raise ValueError(f"which has {len(arrays)} vectors, but x has {len(shape)} axes.")
        sizes = shape if isinstance(which, tuple) else (math.prod(shape),)
        for array, size in zip(arrays, sizes, strict=True):
            if np.any((array < 0) | (array >= size)):
                raise ValueError(f"which must lie between 0 and {size - 1}.")
        places = np.asarray(np.ravel_multi_index(tuple(a.astype(int) for a in arrays), sizes))
    if not places.size:
        raise ValueError("which selects nothing: no data are seen.")
    return places, shape


def require_operator(name: str, value: Any) -> None:
    """`value` is an operator, not its class or something else."""
    if not isinstance(value, Operator):
        raise TypeError(
            f"{name} must be one of pipla.operators, such as Identity(), got "
            f"{type(value).__name__}."
        )


def _as_floats(name: str, value: Any) -> Array:
    """Real, finite numbers as an array of JAX's default float type."""
    array = _checks.real_array(name, value)
    _checks.finite(name, array)
    return array
