r"""The curvature of $g_1$ by power iteration on Hessian-vector products; no matrix is formed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla.algorithms.noise import normals_like
from pipla.models.model import Model, num_particles


class Curvature(NamedTuple):
    r"""$L$, the largest modulus among the eigenvalues of the (scaled) Hessian of g1, and $\mu$,
    the smallest eigenvalue, over a few particles.

    Power iteration sees a small $\mu$ beside a large $L$ only up to a few percent of $L$.
    """

    largest: Float[Array, ""]
    smallest: Float[Array, ""]


def measure_curvature(
    model: Model, theta: PyTree, particles: PyTree, theta_scale: PyTree = 1.0, probes: int = 4
) -> Curvature:
    """The extreme eigenvalues of the Hessian of g1, in the metric, at up to `probes` particles.

    Parts of theta whose scale is 0 do not move, and do not count.
    """
    scale = jax.tree.map(
        lambda p, t: jnp.asarray(p, t.dtype), jax.tree.broadcast(theta_scale, theta), theta
    )
    return _extremes(model, theta, some(particles, probes), scale)


def stiffness(model: Model, theta: PyTree, x: PyTree) -> Float[Array, ""]:
    """The largest eigenvalue of the Hessian of g1 in x, at one x; where g1 knows it, for free."""
    known = getattr(model.smooth, "stiffness", lambda theta: None)(theta)
    if known is not None:
        return known
    return _stiffness(model, theta, x)


@eqx.filter_jit
def _stiffness(model: Model, theta: PyTree, x: PyTree) -> Float[Array, ""]:
    still = jax.tree.map(jnp.zeros_like, theta)
    hessian = _hessian(model, theta, x)
    return jnp.abs(_dominant(lambda v: hessian((still, v))[1], _anywhere(x)))


def some(particles: PyTree, most: int) -> PyTree:
    """At most so many of the particles."""
    return jax.tree.map(lambda leaf: leaf[: min(most, num_particles(particles))], particles)


@eqx.filter_jit
def _extremes(model: Model, theta: PyTree, particles: PyTree, scale: PyTree) -> Curvature:
    root = jax.tree.map(jnp.sqrt, (scale, model.particle_scale(theta, particles)))

    def at(x: PyTree) -> Curvature:
        hessian = _hessian(model, theta, x)

        def times(v: PyTree) -> PyTree:
            scaled = jax.tree.map(jnp.multiply, root, v)
            return jax.tree.map(jnp.multiply, root, hessian(scaled))

        # Where the scale is 0 the start is, and stays so.
        start = jax.tree.map(
            lambda v, r: jnp.where(r > 0, v, 0), normals_like(jax.random.key(0), (theta, x)), root
        )
        extreme = _dominant(times, start)
        # Shifted by the dominant eigenvalue the other end of the spectrum dominates.
        other = _dominant(lambda v: jax.tree.map(lambda h, u: h - extreme * u, times(v), v), start)
        ends = jnp.stack([extreme, extreme + other])
        return Curvature(jnp.max(jnp.abs(ends)), jnp.min(ends))

    ends = jax.vmap(at)(particles)
    return Curvature(jnp.max(ends.largest), jnp.min(ends.smallest))


@eqx.filter_jit
def stiffness_ratios(model: Model, theta: PyTree, particles: PyTree) -> PyTree:
    r"""$L_x / L_\theta$ for each leaf of theta; 0 where the smooth part does not curve in it."""
    root = jax.tree.map(jnp.sqrt, model.particle_scale(theta, particles))
    still = jax.tree.map(jnp.zeros_like, theta)

    def x_block(x: PyTree) -> Array:
        hessian = _hessian(model, theta, x)

        def times(v: PyTree) -> PyTree:
            out = hessian((still, jax.tree.map(jnp.multiply, root, v)))[1]
            return jax.tree.map(jnp.multiply, root, out)

        return jnp.abs(_dominant(times, _anywhere(x)))

    leaves, structure = jax.tree.flatten(theta)

    def theta_block(number: int) -> Array:
        def times(v: Array) -> Array:
            padded = [v if i == number else jnp.zeros_like(t) for i, t in enumerate(leaves)]
            direction = jax.tree.unflatten(structure, padded)

            def at(x: PyTree) -> Array:
                out = _hessian(model, theta, x)((direction, jax.tree.map(jnp.zeros_like, x)))
                return jax.tree.leaves(out[0])[number]

            # Theta's drift is the mean over the cloud, so its curvature is, too.
            return jnp.mean(jax.vmap(at)(particles), axis=0)

        return jnp.abs(_dominant(times, _anywhere(leaves[number])))

    stiffest = jnp.max(jax.vmap(x_block)(particles))
    blocks = jax.tree.unflatten(structure, [theta_block(i) for i in range(len(leaves))])
    return jax.tree.map(
        lambda b: jnp.where(b > 0, stiffest / jnp.where(b > 0, b, 1.0), 0.0), blocks
    )


def _hessian(model: Model, theta: PyTree, x: PyTree) -> Callable[[PyTree], PyTree]:
    """The Hessian of g1 at one particle, as a product with a pair (theta, x)."""

    def gradient(theta: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        return jax.grad(model.smooth_value, argnums=(0, 1))(theta, x)

    return lambda v: jax.jvp(gradient, (theta, x), v)[1]


def _anywhere(like: PyTree) -> PyTree:
    """A random direction."""
    return normals_like(jax.random.key(0), like)


def _dominant(times: Any, start: PyTree, iterations: int = 60) -> Float[Array, ""]:
    """The eigenvalue of largest modulus of a symmetric operator, by power iteration."""

    def dot(a: PyTree, b: PyTree) -> Any:
        return sum(jax.tree.leaves(jax.tree.map(lambda u, v: jnp.sum(u * v), a, b)))

    def length(v: PyTree) -> Any:
        # In units of its largest entry: squares would overflow long before the eigenvalue does.
        most = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(u)) for u in jax.tree.leaves(v)])
        unit = jnp.where(most > 0, most, 1.0)
        scaled = jax.tree.map(lambda leaf: leaf / unit, v)
        return unit * jnp.sqrt(dot(scaled, scaled))

    def body(_: Any, v: PyTree) -> PyTree:
        norm = length(v)
        return times(jax.tree.map(lambda leaf: leaf / jnp.where(norm > 0, norm, 1.0), v))

    v = jax.lax.fori_loop(0, iterations, body, start)
    norm = length(v)
    v = jax.tree.map(lambda leaf: leaf / jnp.where(norm > 0, norm, 1.0), v)
    out = times(v)
    # Not the Rayleigh quotient itself: where both ends of the spectrum have the same modulus, v is
    # a mixture of them, whose quotient lies anywhere in between and whose length does not.
    return jnp.where(dot(v, out) < 0, -1.0, 1.0) * length(out)
