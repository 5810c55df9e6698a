"""The mean over a window, its weights scaled up at the edges: a blur with cheap products."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from pipla.blur import blur_matrix, box
from pipla.operators import Separable


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
