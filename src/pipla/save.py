"""What a run keeps, and the running moments it keeps by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import checks
from pipla.model import num_particles


class Save(eqx.Module):
    """What a run keeps besides theta's trace and its last state.

    Arguments:
        moments_every: update the running mean and variance of x every so many steps after
            burn-in; `None` keeps no moments. Neighbouring steps are so alike that skipping some
            loses almost nothing.
        particles_every: keep the whole cloud every so many steps, from the first step on (also
            during burn-in), in host memory; `None` keeps none.
        quantity: a function `(theta, x) -> pytree of arrays` of one particle whose moments are
            wanted instead of those of x; for a non-centred model, the map back to x.
    """

    moments_every: int | None = eqx.field(static=True, default=10)
    particles_every: int | None = eqx.field(static=True, default=None)
    quantity: Callable[[PyTree, PyTree], PyTree] | None = None

    def __check_init__(self) -> None:
        for name in ("moments_every", "particles_every"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name), least=1)
        if self.quantity is not None and not callable(self.quantity):
            raise TypeError(f"quantity must be a function (theta, x), got {self.quantity!r}.")

    def program(self) -> Save:
        """What the compiled chunk depends on: whether moments are taken, not how often."""
        return Save(None if self.moments_every is None else 1, None, self.quantity)

    def observe(self, theta: PyTree, particles: PyTree) -> PyTree:
        """The quantity at every particle."""
        if self.quantity is None:
            return particles
        return jax.vmap(self.quantity, in_axes=(None, 0))(theta, particles)


class Moments(NamedTuple):
    """Running mean and sum of squared deviations over steps and particles."""

    seen: Float[Array, ""]
    mean: PyTree
    squares: PyTree

    @classmethod
    def empty(cls, observed: PyTree) -> Moments:
        """Nothing seen yet; `observed` has the leading particle axis."""
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), observed)
        dtype = jnp.result_type(*jax.tree.leaves(observed))
        return cls(jnp.zeros((), dtype), zeros, zeros)

    def add(self, observed: PyTree) -> Moments:
        """Merge one cloud (Chan, Golub and LeVeque's pairwise update, stable in float32)."""
        batch = num_particles(observed)
        seen = self.seen + batch
        means = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), observed)
        shift = jax.tree.map(jnp.subtract, means, self.mean)
        mean = jax.tree.map(lambda m, s: m + s * (batch / seen), self.mean, shift)
        squares = jax.tree.map(
            lambda total, leaf, m, s: (
                total
                + jnp.sum(jnp.square(leaf - m[None]), axis=0)
                + jnp.square(s) * (self.seen * batch / seen)
            ),
            self.squares,
            observed,
            means,
            shift,
        )
        return Moments(seen, mean, squares)

    def variance(self) -> PyTree:
        """The variance over all that was added."""
        return jax.tree.map(lambda s: s / jnp.maximum(self.seen, 1.0), self.squares)
