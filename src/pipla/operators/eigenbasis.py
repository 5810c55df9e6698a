r"""Coordinates in which $H^\top H$ is diagonal: pixels, Fourier coefficients, rotations."""

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
        """The x that has these coordinates, $F^{-1}$ of them."""

    def white(self, noise: Array) -> Array:
        """Coordinates with the distribution of $F n$ for white noise $n$ of the shape of x.

        An orthogonal map keeps white noise white, so by default these are the numbers themselves.
        """
        return noise

    def times(self, factor: Array, coordinates: Array) -> Array:
        """Multiply the coordinates, which may be complex, by one real factor per eigenvalue."""
        factor = factor.astype(coordinates.real.dtype)
        if not jnp.iscomplexobj(coordinates):
            return factor * coordinates
        return jax.lax.complex(factor * coordinates.real, factor * coordinates.imag)


class Diagonal(Eigenbasis):
    r"""The coordinates are the elements of x: $H^\top H$ is diagonal already."""

    eigenvalues: Array

    def forward(self, x: Array) -> Array:
        return x

    def inverse(self, coordinates: Array) -> Array:
        return coordinates


class Fourier(Eigenbasis):
    """The real discrete Fourier transform over some axes, scaled to be orthogonal."""

    eigenvalues: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    axes: tuple[int, ...] = eqx.field(static=True)

    def forward(self, x: Array) -> Array:
        return jnp.fft.rfftn(x, axes=self.axes, norm="ortho")

    def inverse(self, coordinates: Array) -> Array:
        sizes = [self.shape[axis] for axis in self.axes]
        return jnp.fft.irfftn(coordinates, s=sizes, axes=self.axes, norm="ortho")

    def white(self, noise: Array) -> Array:
        """Use pairs of the numbers as complex coordinates, which saves a transform of the image.

        This is right except at frequency 0 of the halved axis, and at its highest frequency if the
        size is even: there the coordinates are Hermitian along the other axes, and are made by a
        transform over these.
        """
        *others, last = self.axes
        size = self.shape[last]
        pairs = (size - 1) // 2
        ends = [0, 1, 1 + pairs, 1 + 2 * pairs, size]
        zero, real, imaginary, highest = (
            jax.lax.slice_in_dim(noise, start, stop, axis=last)
            for start, stop in itertools.pairwise(ends)
        )

        def hermitian(part: Array) -> Array:
            if not others:
                return jax.lax.complex(part, jnp.zeros_like(part))
            return jnp.fft.fftn(part, axes=others, norm="ortho")

        def middle(part: Array) -> Array:
            padding = [(0, 0)] * noise.ndim
            padding[last] = (1, highest.shape[last])
            return 0.5**0.5 * jnp.pad(part, padding)

        # XLA fuses `where` into whatever uses the coordinates; `concatenate` would be another pass.
        white = jax.lax.complex(middle(real), middle(imaginary))
        frequency = jax.lax.broadcasted_iota(jnp.int32, white.shape, last)
        if highest.size:
            white = jnp.where(frequency == 1 + pairs, hermitian(highest), white)
        return jnp.where(frequency == 0, hermitian(zero), white)


class Rotations(Eigenbasis):
    """An orthogonal matrix for each of several axes."""

    eigenvalues: Array
    rotations: tuple[Array, ...]
    axes: tuple[int, ...] = eqx.field(static=True)

    def forward(self, x: Array) -> Array:
        return along(tuple(v.T for v in self.rotations), x, self.axes)

    def inverse(self, coordinates: Array) -> Array:
        return along(self.rotations, coordinates, self.axes)


class Flattened(Eigenbasis):
    """A basis for vectors, applied to the elements of x in row-major order."""

    eigenvalues: Array
    basis: Eigenbasis
    shape: tuple[int, ...] = eqx.field(static=True)

    def forward(self, x: Array) -> Array:
        return self.basis.forward(x.ravel())

    def inverse(self, coordinates: Array) -> Array:
        return self.basis.inverse(coordinates).reshape(self.shape)

    def white(self, noise: Array) -> Array:
        return self.basis.white(noise.ravel())


def along(matrices: tuple[Array, ...], x: Array, axes: tuple[int, ...]) -> Array:
    """Apply each matrix along its axis."""
    for matrix, axis in zip(matrices, axes, strict=True):
        x = jnp.moveaxis(jnp.tensordot(matrix.astype(x.dtype), x, axes=(1, axis)), 0, axis)
    return x


def mean_decay(exponent: Array) -> Array:
    """$(1 - e^{-z})/z$: the mean of the decay from 1 to $e^{-z}$; 1 at z = 0."""
    small = exponent < 1e-3
    safe = jnp.where(small, 1.0, exponent)
    return jnp.where(small, 1 - exponent / 2, -jnp.expm1(-safe) / safe)
