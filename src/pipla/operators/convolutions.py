r"""Blurs as operators: circular ones by Fourier transforms, others by a matrix per axis."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from pipla.operators.blur import Boundary, blur_matrix, box, centred, separate
from pipla.operators.eigenbasis import Fourier
from pipla.operators.linear import Operator, Separable


class CircularConvolution(Operator):
    r"""Convolution over `axes` as if x repeated for ever; a product of Fourier transforms.

    Arguments:
        psf: the kernel, with as many axes as `axes`; its centre is the element at `size // 2`.
        shape: of x. Colour pictures of shape (rows, columns, channels) have `axes=(0, 1)`.
        axes: which axes of x; by default the first ones.
    """

    spectrum: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    axes: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, psf: Any, shape: tuple[int, ...], axes: tuple[int, ...] | None = None):
        psf = np.asarray(psf, np.float64)
        self.shape = tuple(shape)
        self.axes = tuple(range(psf.ndim)) if axes is None else tuple(axes)
        kernel = centred(psf, self.shape, self.axes)
        spectrum = np.fft.rfftn(kernel, axes=self.axes)
        self.spectrum = jnp.asarray(spectrum, jnp.result_type(complex))

    def apply(self, x: Array) -> Array:
        return self._times(x, self.spectrum)

    def adjoint(self, y: Array) -> Array:
        return self._times(y, self.spectrum.conj())

    def _times(self, x: Array, spectrum: Array) -> Array:
        basis = self.eigenbasis()
        coordinates = basis.forward(x)
        return basis.inverse(spectrum.astype(coordinates.dtype) * coordinates)

    def eigenbasis(self) -> Fourier:
        return Fourier(jnp.abs(self.spectrum) ** 2, self.shape, self.axes)


def convolution(
    psf: Any, shape: tuple[int, ...], boundary: Boundary = "circular", axes: Any = None
) -> Operator:
    """The blur by `psf` of pictures of this shape; see `pipla.blur` for kernels and boundaries."""
    psf = np.asarray(psf, np.float64)
    if boundary == "circular":
        return CircularConvolution(psf, shape, axes)
    axes = tuple(range(psf.ndim)) if axes is None else tuple(axes)
    centred(psf, shape, axes)  # the same errors for the same mistakes
    kernels = separate(psf)
    matrices = [
        blur_matrix(k, shape[axis], boundary) for k, axis in zip(kernels, axes, strict=True)
    ]
    return Separable(matrices, axes, len(shape))


class WindowMean(Separable):
    """The blur of the paper's code; `convolution(box(11), shape, "renormalised")`, only faster.

    Matrix products cost as many multiplications a pixel as the picture has rows and columns, sums
    over the window as many additions as it is wide. Gradients feel that; the basis is the same.
    """

    width: int = eqx.field(static=True)

    def __init__(self, width: int, shape: tuple[int, int]):
        if width % 2 == 0:
            raise ValueError(f"width must be odd, so that the window has a centre; got {width}.")
        kernel = box(width, axes=1)
        super().__init__([blur_matrix(kernel, size, "renormalised") for size in shape])
        self.width = width

    def apply(self, x: Array) -> Array:
        for axis in (0, 1):
            x = _window_sum(x, self.width, axis) / self._seen(x, axis)
        return x

    def adjoint(self, y: Array) -> Array:
        for axis in (0, 1):
            y = _window_sum(y / self._seen(y, axis), self.width, axis)
        return y

    def _seen(self, x: Array, axis: int) -> Array:
        """How many pixels each window covers."""
        ones = jnp.ones([size if k == axis else 1 for k, size in enumerate(x.shape)], x.dtype)
        return _window_sum(ones, self.width, axis)


def _window_sum(x: Array, width: int, axis: int) -> Array:
    """Sums over windows around every element, 0 beyond the edge. It is its own adjoint."""
    size, reach = [1] * x.ndim, [(0, 0)] * x.ndim
    size[axis], reach[axis] = width, (width // 2, width // 2)
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, size, [1] * x.ndim, reach)
