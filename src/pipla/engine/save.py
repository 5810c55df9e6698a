"""What a run keeps, and the running moments it keeps by default."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from pipla import _checks, _trees
from pipla._trees import Fixed
from pipla.models.fixed_leaves import CompletedQuantity

#: Up to this many particles, unroll the sum: XLA's own is slow there.
UNROLL_UP_TO = 8


class Save(eqx.Module):
    """What a run keeps in addition to theta's trace and its last state.

    Arguments:
        moments_every: the number of steps between updates of the running mean and variance of x
            after burn-in; `None` keeps no moments. Neighbouring steps are so alike that skipping
            some loses almost nothing.
        particles_every: the number of steps between saved particles, from the first step on (also
            during burn-in), in host memory; `None` keeps none.
        quantity: a function `(theta, x) -> pytree of arrays` of one particle that is kept instead
            of x, in moments and in saved particles; for a non-centred model, the map back to x.
            The mean of booleans (`x > 0`) is a posterior probability.
    """

    moments_every: int | None = eqx.field(static=True, default=10)
    particles_every: int | None = eqx.field(static=True, default=None)
    quantity: Callable[[PyTree, PyTree], PyTree] | None = None

    def __check_init__(self) -> None:
        for name in ("moments_every", "particles_every"):
            if getattr(self, name) is not None:
                _checks.integer(name, getattr(self, name), least=1)
        if self.quantity is not None and not callable(self.quantity):
            raise TypeError(f"quantity must be a function (theta, x), got {self.quantity!r}.")

    def completed(self, fixed: Fixed) -> Save:
        """The same for a run that sees only the learned leaves of theta and x."""
        if self.quantity is None or (fixed.theta is None and fixed.x is None):
            return self
        quantity = CompletedQuantity(self.quantity, fixed)
        return Save(self.moments_every, self.particles_every, quantity)

    def check(self, theta: PyTree, particles: PyTree) -> None:
        """Raise an error if the quantity has no moments."""
        jax.eval_shape(lambda t, x: observe(self.quantity, t, x), theta, particles)


def observe(quantity: Any, theta: PyTree, particles: PyTree) -> PyTree:
    """The quantity at every particle; the particles themselves where it is `None`."""
    if quantity is None:
        return particles
    observed = jax.vmap(quantity, in_axes=(None, 0))(theta, particles)
    leaves = jax.tree.leaves(observed)
    if not leaves or any(map(jnp.iscomplexobj, leaves)):
        raise TypeError(
            "quantity must return an array of real numbers, or a pytree of them, got "
            f"{jax.tree.map(jnp.result_type, observed)}."
        )
    # The mean of booleans is a probability.
    dtype = _trees.dtype(particles)
    return jax.tree.map(
        lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.astype(dtype),
        observed,
    )


class Moments(NamedTuple):
    """Running mean and sum of squared deviations over steps and particles."""

    seen: Float[Array, ""]
    mean: PyTree
    squares: PyTree

    @classmethod
    def empty(cls, observed: PyTree) -> Moments:
        """Nothing seen yet; `observed` has the leading particle axis."""
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), observed)
        dtype = _trees.dtype(observed)
        return cls(jnp.zeros((), dtype), zeros, zeros)

    def add(self, observed: PyTree, due: Bool[Array, ""] | bool = True) -> Moments:
        """Merge the particles of a step (Chan, Golub and LeVeque's pairwise update).

        When `due` is false the weight is 0, which is cheaper than a conditional, whose branches
        would copy the moments.
        """
        weight = jnp.asarray(due, self.seen.dtype)
        batch = _trees.num_particles(observed)
        seen = self.seen + weight * batch
        share = weight * batch / jnp.maximum(seen, 1)
        means = jax.tree.map(lambda leaf: _over_particles(leaf) / batch, observed)
        shift = jax.tree.map(jnp.subtract, means, self.mean)
        mean = jax.tree.map(lambda m, s: m + s * share, self.mean, shift)
        squares = jax.tree.map(
            lambda total, leaf, m, s: (
                total
                + weight * _over_particles(jnp.square(leaf - m[None]))
                + jnp.square(s) * (self.seen * share)
            ),
            self.squares,
            observed,
            means,
            shift,
        )
        return Moments(seen, mean, squares)

    def variance(self) -> PyTree:
        """The variance over all that was added."""
        if isinstance(self.seen, jax.core.Tracer):
            return jax.tree.map(lambda s: s / jnp.maximum(self.seen, 1.0), self.squares)
        # Outside a program by NumPy: JAX would compile one for each operation.
        seen = np.maximum(np.asarray(self.seen), 1)
        return jax.tree.map(lambda s: jax.device_put(np.asarray(s) / seen), self.squares)


def _over_particles(leaf: Array) -> Array:
    """The sum over the particles."""
    if len(leaf) > UNROLL_UP_TO:
        return jnp.sum(leaf, axis=0)
    return functools.reduce(jnp.add, list(leaf))
