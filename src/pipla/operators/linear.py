r"""Linear operators $H$ as small pytrees: `apply`, `adjoint` and, where known, an eigenbasis.

The eigenbasis diagonalises $H^\top H$. What a Gaussian likelihood does to x can be done exactly in
it: its gradient, its proximal map, its Ornstein-Uhlenbeck flow.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.operators.eigenbasis import Diagonal, Eigenbasis, Rotations, along


class Operator(eqx.Module):
    """A linear map from x to what would be observed without noise."""

    @abc.abstractmethod
    def apply(self, x: Array) -> Array:
        """$H x$."""

    @abc.abstractmethod
    def adjoint(self, y: Array) -> Array:
        r"""$H^\top y$."""

    def eigenbasis(self) -> Eigenbasis | None:
        r"""Of $H^\top H$; `None` where nobody knows one. Dear for matrices: call it once."""
        return None

    def __matmul__(self, other: Operator) -> Operator:
        """First `other`, then this one: `Mask(seen) @ CircularConvolution(psf, shape)`."""
        if not isinstance(other, Operator):
            return NotImplemented
        return Composed(self, other)


class Composed(Operator):
    """One operator after another."""

    last: Operator
    first: Operator

    def apply(self, x: Array) -> Array:
        return self.last.apply(self.first.apply(x))

    def adjoint(self, y: Array) -> Array:
        return self.first.adjoint(self.last.adjoint(y))


class Identity(Operator):
    """$H x = x$: denoising."""

    def apply(self, x: Array) -> Array:
        return x

    def adjoint(self, y: Array) -> Array:
        return y

    def eigenbasis(self) -> Eigenbasis:
        return Diagonal(jnp.ones(()))


class Mask(Operator):
    """$H x = m x$, element by element: a mask of zeros (missing) and ones, or any weights."""

    mask: Array = eqx.field(converter=lambda m: jnp.asarray(m, jnp.result_type(float)))

    def apply(self, x: Array) -> Array:
        return self.mask.astype(x.dtype) * x

    def adjoint(self, y: Array) -> Array:
        return self.mask.astype(y.dtype) * y

    def eigenbasis(self) -> Eigenbasis:
        return Diagonal(self.mask**2)


class Separable(Operator):
    r"""A matrix for each of some axes: $H x = A x B^\top$ for a picture.

    Its eigenbasis takes one small eigendecomposition an axis, and is applied by matrix products.

    Arguments:
        matrices: one for each axis.
        axes: which axes of x; by default the first ones.
        ndim: how many axes x has; by default as many as there are matrices.
    """

    matrices: tuple[Array, ...]
    axes: tuple[int, ...] = eqx.field(static=True)
    ndim: int = eqx.field(static=True)

    def __init__(self, matrices: Any, axes: tuple[int, ...] | None = None, ndim: int | None = None):
        self.matrices = tuple(jnp.asarray(m, jnp.result_type(float)) for m in matrices)
        self.axes = tuple(range(len(self.matrices))) if axes is None else tuple(axes)
        self.ndim = len(self.matrices) if ndim is None else ndim

    def apply(self, x: Array) -> Array:
        return along(self.matrices, x, self.axes)

    def adjoint(self, y: Array) -> Array:
        return along(tuple(m.T for m in self.matrices), y, self.axes)

    def eigenbasis(self) -> Rotations:
        rotations = []
        eigenvalues = np.ones((1,) * self.ndim)
        for given, axis in zip(self.matrices, self.axes, strict=True):
            matrix = np.asarray(given, np.float64)
            values, vectors = np.linalg.eigh(matrix.T @ matrix)
            rotations.append(jnp.asarray(vectors, jnp.result_type(float)))
            along = [1] * self.ndim
            along[axis] = len(values)
            eigenvalues = eigenvalues * np.maximum(values, 0.0).reshape(along)
        return Rotations(
            jnp.asarray(eigenvalues, jnp.result_type(float)), tuple(rotations), self.axes
        )


class Dense(Operator):
    """Any matrix, for an x with one axis. The eigenbasis takes time cubic in its length."""

    matrix: Array = eqx.field(converter=lambda m: jnp.asarray(m, jnp.result_type(float)))

    def __check_init__(self) -> None:
        if self.matrix.ndim != 2:
            raise ValueError(f"matrix must have two axes, got shape {self.matrix.shape}.")

    def apply(self, x: Array) -> Array:
        return self.matrix.astype(x.dtype) @ x

    def adjoint(self, y: Array) -> Array:
        return self.matrix.T.astype(y.dtype) @ y

    def eigenbasis(self) -> Eigenbasis:
        return Separable((self.matrix,)).eigenbasis()
