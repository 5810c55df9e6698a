r"""What is measured of a model where a run starts: the curvature of $g_1$, and scales for theta.

$L$ is the Lipschitz constant of $\nabla g_1$ in $(\theta, x)$, in the metric of the theta scale:
the largest modulus among the eigenvalues of $P^{1/2} \nabla^2 g_1 P^{1/2}$. It is measured by power
iteration at the given points, so it is a local number: start where the run starts.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from pipla import _trees
from pipla.algorithms._normals import normals_like
from pipla.algorithms.base import Algorithm, Curvature
from pipla.models.model import Model, hessian, theta_block, theta_parts, x_block

#: The number of particles at which the curvature is measured.
PROBES = 4
#: The number of particles over which the curvature in theta is averaged.
THETA_PROBES = 16


class LocalGeometry:
    """A model at a start; each quantity is measured when it is asked for, and once."""

    def __init__(
        self, model: Model, theta: PyTree, particles: PyTree, probes: int = PROBES
    ) -> None:
        self.model, self.theta, self.particles, self.probes = model, theta, particles, probes
        self._theta_scale: PyTree = None
        self._curvatures: list[tuple[list[np.ndarray], Curvature]] = []

    def theta_scale(self) -> PyTree:
        r"""One scale per leaf of theta that brings theta to the pace of x.

        Where theta sits in the non-smooth term: 1/d of the block of x it is coupled to. Where it
        sits in the smooth part only (a non-centred model): the ratio of the stiffnesses,
        $L_x / L_\theta$, of the two diagonal blocks of the Hessian, but at most 1: far from the
        data the likelihood is flat, and Newton's step would leave for good.
        """
        if self._theta_scale is None:
            # Sizes alone count here; slicing in JAX would compile a program.
            one = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), self.particles)
            everything = _trees.size(one)
            sizes = self.model.nonsmooth.coupled_sizes(self.theta, one)
            ratios = stiffness_ratios(self.model, self.theta, self.particles)

            # In NumPy: every JAX operation outside a compiled program is compiled by itself.
            def leaf_scale(size: int | None, ratio: Array, leaf: Array) -> Array | None:
                if leaf is None:  # not a leaf of theta that the term leaves alone: theta has none
                    return None
                if size is not None:
                    value: Any = 1 / size
                else:
                    value = min(float(ratio), 1.0) if float(ratio) > 0 else 1 / everything
                return jax.device_put(np.asarray(value, leaf.dtype))

            self._theta_scale = jax.tree.map(
                leaf_scale, sizes, ratios, self.theta, is_leaf=lambda leaf: leaf is None
            )
        return self._theta_scale

    def curvature(self, theta_scale: PyTree) -> Curvature:
        """The curvature of g1 in the metric of this scale. Parts whose scale is 0 do not count."""
        scale = jax.tree.map(
            lambda p, t: np.asarray(p, t.dtype),
            jax.tree.broadcast(theta_scale, self.theta),
            self.theta,
        )
        numbers = jax.tree.leaves(scale)
        for known, curvature in self._curvatures:
            if all(map(np.array_equal, known, numbers)):
                return curvature
        curvature = _extremes(self.model, self.theta, self.particles, scale, self.probes)
        self._curvatures.append((numbers, curvature))
        return curvature

    def covers(self, algorithm: Algorithm) -> bool:
        """Whether theory covers this algorithm here: no objection, no broken condition."""
        conditions = all(condition.holds for condition in algorithm.conditions(self))
        return conditions and not algorithm.objections(self.model)

    def largest_smoothing(self) -> float:
        """The largest smoothing for which the joint prox stays in theta's own basin."""
        one = _one_particle(self.particles)
        return float(self.model.nonsmooth.largest_smoothing(self.theta, one))


def stiffness(model: Model, theta: PyTree, x: PyTree) -> Float[Array, ""]:
    """The largest eigenvalue of the Hessian of g1 in x, at one x; measured where it is unknown."""
    known = model.smooth.stiffness(theta)
    return _stiffness(model, theta, x) if known is None else known


def _one_particle(particles: PyTree) -> PyTree:
    """The first particle. On the CPU NumPy slices it: JAX would compile a program for that."""

    def one(leaf: Array) -> Array:
        if any(device.platform != "cpu" for device in leaf.devices()):
            return leaf[0]
        return jax.device_put(np.asarray(leaf)[0])

    return jax.tree.map(one, particles)


@_trees.bounded_jit()
def _stiffness(fixed: Model, arrays: Model, theta: PyTree, x: PyTree) -> Float[Array, ""]:
    model = eqx.combine(fixed, arrays)
    ones = jax.tree.map(lambda leaf: jnp.ones((), leaf.dtype), x)
    block = x_block(model, theta, x, ones)
    return jnp.abs(_trees.dominant_eigenvalue(block, _random_direction(x)))


@_trees.bounded_jit("probes")
def _extremes(
    fixed: Model, arrays: Model, theta: PyTree, particles: PyTree, scale: PyTree, probes: int
) -> Curvature:
    model = eqx.combine(fixed, arrays)
    particles = _first(particles, probes)
    root = jax.tree.map(jnp.sqrt, (scale, model.particle_scale(theta, particles)))

    def at(x: PyTree) -> Curvature:
        product = hessian(model, theta, x)

        def times(v: PyTree) -> PyTree:
            return _trees.multiply(root, product(*_trees.multiply(root, v)))

        # Where the scale is 0 the start is 0, and stays so.
        start = jax.tree.map(
            lambda v, r: jnp.where(r > 0, v, 0), _random_direction((theta, x)), root
        )

        # Shifted by the dominant eigenvalue the other end of the spectrum dominates. A loop over
        # the two ends, the first with shift 0: XLA then compiles the power iteration once.
        def end(number: Array, ends: Array) -> Array:
            shift = ends[0]
            value = _trees.dominant_eigenvalue(
                lambda v: jax.tree.map(lambda h, u: h - shift * u, times(v), v), start
            )
            return ends.at[number].set(shift + value)

        ends = jax.lax.fori_loop(0, 2, end, jnp.zeros(2, _trees.dtype(x)))
        return Curvature(jnp.max(jnp.abs(ends)), jnp.min(ends))

    ends = jax.vmap(at)(particles)
    return Curvature(jnp.max(ends.largest), jnp.min(ends.smallest))


@_trees.bounded_jit()
def stiffness_ratios(fixed: Model, arrays: Model, theta: PyTree, particles: PyTree) -> PyTree:
    r"""$L_x / L_\theta$ for each leaf of theta; 0 where the smooth part does not curve in it.

    $L_\theta$ is that of the part which the leaf belongs to (`theta_parts`).
    """
    model = eqx.combine(fixed, arrays)
    particles = _first(particles, THETA_PROBES)
    root = jax.tree.map(jnp.sqrt, model.particle_scale(theta, particles))
    leaves, structure = jax.tree.flatten(theta)

    def for_x(x: PyTree) -> Array:
        block = x_block(model, theta, x, root)
        return jnp.abs(_trees.dominant_eigenvalue(block, _random_direction(x)))

    def for_theta(part: tuple[int, ...]) -> Array:
        def times(v: list[Array]) -> list[Array]:
            def at(x: PyTree) -> list[Array]:
                return theta_block(model, theta, x, part)(v)

            # Theta's drift is the mean over the particles, and so is its curvature.
            return _trees.mean(jax.vmap(at)(particles))

        start = _random_direction([leaves[number] for number in part])
        return jnp.abs(_trees.dominant_eigenvalue(times, start))

    stiffest = jnp.max(jax.vmap(for_x)(particles))
    ratios = list(leaves)
    for part in theta_parts(model, theta):
        block = for_theta(part)
        ratio = jnp.where(block > 0, stiffest / jnp.where(block > 0, block, 1.0), 0.0)
        for number in part:
            ratios[number] = ratio
    return jax.tree.unflatten(structure, ratios)


def _first(particles: PyTree, most: int) -> PyTree:
    """The first `most` particles, sliced inside the compiled program."""
    return jax.tree.map(lambda leaf: leaf[:most], particles)


def _random_direction(like: PyTree) -> PyTree:
    return normals_like(jax.random.key(0), like)
