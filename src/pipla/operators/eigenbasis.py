r"""Coordinates in which $H^\top H$ is diagonal: the picture itself, Fourier's, rotated ones."""

from __future__ import annotations

import abc
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array


class Eigenbasis(eqx.Module):
    r"""An orthogonal change of coordinates $F$ with $H^\top H = F^{-1}\,\mathrm{diag}(a)\,F$."""

    eigenvalues: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def forward(self, x: Array) -> Array:
        """The coordinates $F x$."""

    @abc.abstractmethod
    def inverse(self, coordinates: Array) -> Array:
        """The x of these coordinates."""

    def white(self, noise: Array) -> Array:
        """Coordinates distributed as those of this white noise, which has the shape of x.

        An orthogonal map keeps white noise white, so that the numbers may stand for themselves.
        """
        return noise

    def times(self, factor: Array, coordinates: Array) -> Array:
        """A real factor for each eigenvalue, times the coordinates, which may be complex."""
        factor = factor.astype(coordinates.real.dtype)
        if not jnp.iscomplexobj(coordinates):
            return factor * coordinates
        return jax.lax.complex(factor * coordinates.real, factor * coordinates.imag)


class Diagonal(Eigenbasis):
    """The coordinates are those of x itself."""

    eigenvalues: Array

    def forward(self, x: Array) -> Array:
        return x

    def inverse(self, coordinates: Array) -> Array:
        return coordinates


class Fourier(Eigenbasis):
    """The real discrete Fourier transform over some axes, scaled to keep lengths."""

    eigenvalues: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    axes: tuple[int, ...] = eqx.field(static=True)

    def forward(self, x: Array) -> Array:
        return jnp.fft.rfftn(x, axes=self.axes, norm="ortho")

    def inverse(self, coordinates: Array) -> Array:
        sizes = [self.shape[axis] for axis in self.axes]
        return jnp.fft.irfftn(coordinates, s=sizes, axes=self.axes, norm="ortho")

    def white(self, noise: Array) -> Array:
        """Pairs of numbers are the complex coordinates, which saves a transform of the picture.

        Only where a coordinate is its own mirror image along the halved axis (frequency 0, and the
        highest one if the size is even) are the others bound by symmetry; there a transform of the
        other axes gives them.
        """
        *others, last = self.axes
        size = self.shape[last]
        pairs = (size - 1) // 2
        ends = [0, 1, 1 + pairs, 1 + 2 * pairs, size]
        zero, real, imaginary, highest = (
            jax.lax.slice_in_dim(noise, start, stop, axis=last)
            for start, stop in itertools.pairwise(ends)
        )

        def mirrored(part: Array) -> Array:
            if not others:
                return jax.lax.complex(part, jnp.zeros_like(part))
            return jnp.fft.fftn(part, axes=others, norm="ortho")

        def middle(part: Array) -> Array:
            room = [(0, 0)] * noise.ndim
            room[last] = (1, highest.shape[last])
            return 0.5**0.5 * jnp.pad(part, room)

        # Choosing by the place is part of the pass that uses the numbers; joining would be another.
        white = jax.lax.complex(middle(real), middle(imaginary))
        place = jax.lax.broadcasted_iota(jnp.int32, white.shape, last)
        if highest.size:
            white = jnp.where(place == 1 + pairs, mirrored(highest), white)
        return jnp.where(place == 0, mirrored(zero), white)


class Rotations(Eigenbasis):
    """An orthogonal matrix for each of some axes."""

    eigenvalues: Array
    rotations: tuple[Array, ...]
    axes: tuple[int, ...] = eqx.field(static=True)

    def forward(self, x: Array) -> Array:
        return along(tuple(v.T for v in self.rotations), x, self.axes)

    def inverse(self, coordinates: Array) -> Array:
        return along(self.rotations, coordinates, self.axes)


def along(matrices: tuple[Array, ...], x: Array, axes: tuple[int, ...]) -> Array:
    """Each matrix applied along its axis."""
    for matrix, axis in zip(matrices, axes, strict=True):
        x = jnp.moveaxis(jnp.tensordot(matrix.astype(x.dtype), x, axes=(1, axis)), 0, axis)
    return x
