"""Blurs as operators: circular ones by Fourier transforms, others by a matrix per axis."""

from __future__ import annotations

from typing import Any, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from pipla import _checks
from pipla.operators._arguments import checked_axes, checked_shape, operand
from pipla.operators.blur import Boundary, as_kernel, blur_matrix, box, centred, separate
from pipla.operators.eigenbasis import Fourier
from pipla.operators.linear import Operator, Separable


class CircularConvolution(Operator):
    """Circular convolution over `axes`, computed by Fourier transforms.

    Arguments:
        psf: the kernel, with as many axes as `axes`; its centre is the element at `size // 2`.
        shape: the shape of x. Colour images of shape (rows, columns, channels) have
            `axes=(0, 1)`.
        axes: the axes of x that are blurred; by default the first ones.
    """

    spectrum: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    axes: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, psf: Any, shape: tuple[int, ...], axes: tuple[int, ...] | None = None):
        psf = as_kernel(psf)
        self.shape = checked_shape(shape)
        self.axes = checked_axes(axes, psf.ndim, len(self.shape))
        kernel = centred(psf, self.shape, self.axes)
        spectrum = np.fft.rfftn(kernel, axes=self.axes)
        self.spectrum = jnp.asarray(spectrum, jnp.result_type(complex))

    def periodic_axes(self) -> tuple[int, ...]:
        return self.axes

    def apply(self, x: Array) -> Array:
        return self._times("x", x, self.spectrum)

    def adjoint(self, y: Array) -> Array:
        return self._times("y", y, self.spectrum.conj())

    def _times(self, name: str, x: Array, spectrum: Array) -> Array:
        sizes = [self.shape[axis] for axis in self.axes]
        x = operand(name, x, sizes, self.axes, len(self.shape))
        basis = self.eigenbasis()
        coordinates = basis.forward(x)
        return basis.inverse(spectrum.astype(coordinates.dtype) * coordinates)

    def eigenbasis(self) -> Fourier:
        return Fourier(jnp.abs(self.spectrum) ** 2, self.shape, self.axes)


def convolution(
    psf: Any, shape: tuple[int, ...], boundary: Boundary = "circular", axes: Any = None
) -> Operator:
    """The blur of images of shape `shape` by the kernel `psf`.

    Arguments:
        psf: the kernel; `pipla.operators.blur` has some.
        shape: the shape of the images.
        boundary: how the blur continues the image beyond its edge: `"circular"`, `"reflect"` or
            `"renormalised"`. The last two need a separable kernel.
        axes: the axes that are blurred; by default the first ones.
    """
    _checks.choice("boundary", boundary, get_args(Boundary))
    psf = as_kernel(psf)
    shape = checked_shape(shape)
    if boundary == "circular":
        return CircularConvolution(psf, shape, axes)
    axes = checked_axes(axes, psf.ndim, len(shape))
    centred(psf, shape, axes)  # the same errors for the same mistakes
    kernels = separate(psf)
    matrices = [
        blur_matrix(k, shape[axis], boundary) for k, axis in zip(kernels, axes, strict=True)
    ]
    return Separable(matrices, axes, len(shape))


class WindowMean(Separable):
    """The blur of the paper's code: a faster `convolution(box(width), shape, "renormalised")`.

    Matrix products take as many multiplications per pixel as the image has rows and columns, sums
    over the window as many additions as it is wide. This speeds up gradients; the eigenbasis is
    the same.

    Arguments:
        width: the width of the window in pixels, an odd number.
        shape: the shape of the images, (rows, columns).
    """

    width: int = eqx.field(static=True)

    def __init__(self, width: int, shape: tuple[int, int]):
        kernel = box(width, axes=1)
        if width % 2 == 0:
            raise ValueError(f"width must be odd, so that the window has a centre; got {width}.")
        sizes = checked_shape(shape)
        if len(sizes) != 2:
            raise ValueError(f"shape must be (rows, columns), got {sizes}.")
        super().__init__([blur_matrix(kernel, size, "renormalised") for size in sizes])
        self.width = width

    def apply(self, x: Array) -> Array:
        x = self._operand("x", x)
        for axis in (0, 1):
            x = _window_sum(x, self.width, axis) / self._seen(x, axis)
        return x

    def adjoint(self, y: Array) -> Array:
        y = self._operand("y", y)
        for axis in (0, 1):
            y = _window_sum(y / self._seen(y, axis), self.width, axis)
        return y

    def _operand(self, name: str, x: Array) -> Array:
        return operand(name, x, [len(matrix) for matrix in self.matrices], self.axes, self.ndim)

    def _seen(self, x: Array, axis: int) -> Array:
        """The number of pixels that each window covers."""
        ones = jnp.ones([size if k == axis else 1 for k, size in enumerate(x.shape)], x.dtype)
        return _window_sum(ones, self.width, axis)


def _window_sum(x: Array, width: int, axis: int) -> Array:
    """Sums over a window around every element, with 0 beyond the edge; a self-adjoint map."""
    size, reach = [1] * x.ndim, [(0, 0)] * x.ndim
    size[axis], reach[axis] = width, (width // 2, width // 2)
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, size, [1] * x.ndim, reach)
