r"""A Gaussian in the place of the likelihood, for which the flow is known exactly.

With $A$ near the Hessian of $g_1$, the diffusion
$\mathrm{d}X = -(\nabla g_1(X_0) + A(X - X_0))\,\mathrm{d}t + \sqrt2\,\mathrm{d}W$ is linear, and

$$ X_h = X_0 - \frac{1 - e^{-Ah}}{A} \nabla g_1(X_0) + \sqrt{\frac{1 - e^{-2Ah}}{A}}\; \xi. $$

For a Gaussian likelihood it is the exact flow. For others, stiffness and correlation of the data
no longer limit the step: only what $A$ misses does.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from pipla import _trees
from pipla._decompositions import eigh
from pipla.algorithms.forward_backward import projected
from pipla.algorithms.interwoven import longest_moves
from pipla.models.model import Model, x_block
from pipla.operators.eigenbasis import mean_decay

#: The most elements of x for which the Hessian is a matrix: beyond, its eigenvectors take seconds.
LARGEST_MATRIX = 1000
#: The most particles over which the Hessian is averaged.
MOST_PARTICLES = 8
#: The Hessian is measured again after this many steps, and after 2, 4, 8, … times as many.
REFRESH_AFTER = 5
#: In between it is measured again where a part of theta that only the likelihood uses has moved by
#: more than this part of its longest move, and no more often than so many times: with half of the
#: noise the curvature is four times the surrogate's, and beyond twice of it a flow is not stable.
THETA_MOVED, MOST_BETWEEN = 0.1, 40
#: Without a matrix, the step is at most this part of the shortest time of the likelihood.
EXPLICIT_STEP = 0.1
#: The longest unit of time near a constraint, in squared lengths of the layer there.
WALL_UNITS = 2.5
#: The longest drift of an element in one step, in lengths of the prior: far from the answer the
#: curvature may be too small by any factor (of $e^x$, say), and a Newton step too long.
LONGEST_DRIFT = 1.0
#: The longest drift, in standard deviations of the surrogate per root of the dimension: beyond, the
#: particle is where the surrogate does not hold, and a Newton step may lead further away.
LONGEST_STRETCH = 5.0
#: The unit of time is at most this, divided by the typical distance between the Hessian of a
#: particle and the surrogate: what the surrogate misses must be resolved by the step.
MISMATCH = 16.0


class Surrogate(eqx.Module):
    r"""$A = M^{-1/2} Q\,\mathrm{diag}(a)\,Q^\top M^{-1/2}$ for a metric $M$ of one number per leaf.

    The metric is the squared length scale of the prior, or where it has none that of the
    likelihood; in leaves that no term touches, the largest variance there. Time is counted in these
    units: a step $\gamma$ is $\gamma M$ in x.
    """

    units: PyTree  # M
    lengths: PyTree  # the squared length scale of the prior where M was measured; or infinite
    eigenvalues: Float[Array, " d"] | Float[Array, ""]
    rotation: Float[Array, "d d"] | None  # Q; `None` for a multiple of the identity
    steps: Int[Array, ""]
    theta: list[Array]  # where it was measured: the leaves that only the likelihood uses
    between: Int[Array, ""]  # how often it was measured because these had moved
    held: bool = eqx.field(static=True, default=False)  # whether somebody else measures it

    @classmethod
    def measured(
        cls, model: Model, theta: PyTree, particles: PyTree, steps: Int[Array, ""]
    ) -> Surrogate:
        """The mean Hessian over a few particles."""
        own = _likelihoods_own(model, theta), jnp.zeros((), jnp.int32)
        few = jax.tree.map(lambda leaf: leaf[:MOST_PARTICLES], particles)
        one = _trees.first(particles)
        units = model.nonsmooth.time_unit(theta, one)
        if _trees.size(one) > LARGEST_MATRIX:
            return cls(*cls._bounded(model, theta, few, units), steps, *own)
        flat, unravel = ravel_pytree(one)
        identity = jnp.eye(flat.size, dtype=flat.dtype)

        def matrix(x: PyTree) -> Array:
            times = x_block(model, theta, x, _trees.ones_per_leaf(one))
            return jax.vmap(lambda row: ravel_pytree(times(unravel(row)))[0])(identity)

        each = jax.lax.map(matrix, few)
        mean = jnp.mean(each, axis=0)
        lengths = units
        mean = (mean + mean.T) / 2
        units = jax.tree.map(
            lambda unit, curvature: jnp.where(
                jnp.isfinite(unit), unit, 1 / jnp.where(curvature > 0, curvature, 1.0)
            ),
            units,
            jax.tree.map(jnp.mean, unravel(jnp.abs(jnp.diagonal(mean)))),
        )
        units = _crossing_free_leaves(model, mean, units, one)
        units = _resolving_walls(model, theta, particles, units)
        root = _flat_root(units, one)
        apart = _typical_norm(root[None, :, None] * (each - mean[None]) * root[None, None])
        shorter = jnp.minimum(1, MISMATCH / jnp.where(apart > 0, apart, MISMATCH))
        units, root = _trees.scale(shorter, units), jnp.sqrt(shorter) * root
        # A direction that the data do not see, or in which the likelihood is not convex, is free.
        values, rotation = eigh(root[:, None] * mean * root[None])
        return cls(units, lengths, jnp.maximum(values, 0), rotation, steps, *own)

    @staticmethod
    def _bounded(
        model: Model, theta: PyTree, few: PyTree, units: PyTree
    ) -> tuple[PyTree, PyTree, Array, None]:
        """The largest eigenvalue alone, for an x too large for a matrix."""
        one = _trees.first(few)
        times = x_block(model, theta, one, _trees.ones_per_leaf(one))
        start = jax.tree.map(
            lambda leaf: jax.random.normal(jax.random.key(0), leaf.shape, leaf.dtype), one
        )
        largest = jnp.abs(_trees.dominant_eigenvalue(times, start, 30))
        largest = jnp.where(largest > 0, largest, 1.0)
        lengths = units
        units = jax.tree.map(lambda unit: jnp.minimum(unit, EXPLICIT_STEP / largest), units)
        return units, lengths, jnp.zeros((), largest.dtype), None

    def refreshed(self, model: Model, theta: PyTree, particles: PyTree) -> Surrogate:
        """Measured again when it is due, and one step older."""
        if self.held:
            return self
        turn = self.steps // REFRESH_AFTER
        whole = (self.steps % REFRESH_AFTER == 0) & (self.steps > 0)
        due = whole & (turn & (turn - 1) == 0)
        between = whole & ~due & self._is_stale(model, theta) & (self.between < MOST_BETWEEN)

        def again() -> Surrogate:
            return Surrogate.measured(model, theta, particles, self.steps)

        fresh = jax.lax.cond(due | between, again, lambda: self)
        return eqx.tree_at(
            lambda s: (s.steps, s.between),
            fresh,
            (self.steps + 1, self.between + between.astype(jnp.int32)),
        )

    def _is_stale(self, model: Model, theta: PyTree) -> Bool[Array, ""]:
        """Whether theta's own part in the likelihood is no longer what it was."""
        stale = jnp.zeros((), bool)
        longest = _likelihoods_own(model, longest_moves(model, theta))
        now = _likelihoods_own(model, theta)
        for new, old, most in zip(now, self.theta, longest, strict=True):
            stale |= jnp.any(jnp.abs(new - old) > THETA_MOVED * most)
        return stale

    def scale(self, model: Model, theta: PyTree, particles: PyTree) -> PyTree:
        """The metric now: since it was measured, theta may have changed the prior's length."""
        now = model.nonsmooth.time_unit(theta, _trees.first(particles))
        ratios = jax.tree.map(
            lambda new, old: jnp.where(jnp.isfinite(new), new / old, jnp.inf), now, self.lengths
        )
        least = jnp.min(jnp.stack([jnp.asarray(leaf) for leaf in jax.tree.leaves(ratios)]))
        return _trees.scale(jnp.where(jnp.isfinite(least), least, 1.0), self.units)

    def flow(self, particles: PyTree, gradients: PyTree, time: PyTree, noise: PyTree) -> PyTree:
        """Where the particles are after `time`; `noise` is $\\sqrt{2 h}\\, \\xi$."""
        one = _trees.first(particles)
        root = _flat_root(self.units, one)[None]
        # The same for every leaf: `time` is a multiple of the units.
        steps = jax.tree.leaves(jax.tree.map(jnp.divide, time, self.units))[0]
        exponent = jnp.atleast_1d(self.eigenvalues)[None] * steps
        decay, spread = mean_decay(exponent), jnp.sqrt(mean_decay(2 * exponent))
        flat = jax.vmap(lambda tree: ravel_pytree(tree)[0])
        drift, push = flat(gradients) * root, flat(noise) / root
        if self.rotation is None:
            drifted, pushed = steps * decay * drift, spread * push
        else:
            turned = steps * decay * (drift @ self.rotation)
            # The length of the drift in standard deviations of the surrogate.
            length = jnp.linalg.norm(
                jnp.sqrt(self.eigenvalues)[None] * turned, axis=1, keepdims=True
            )
            longest = LONGEST_STRETCH * jnp.sqrt(jnp.asarray(turned.shape[1], turned.dtype))
            turned = turned * jnp.minimum(1, longest / jnp.maximum(length, longest))
            drifted = turned @ self.rotation.T
            # White noise is as white in any orthogonal coordinates.
            pushed = (spread * push) @ self.rotation.T
        moved = pushed - jnp.clip(drifted, -LONGEST_DRIFT, LONGEST_DRIFT)
        unravel = ravel_pytree(one)[1]
        return _trees.add(particles, jax.vmap(unravel)(moved * root))

    def balanced(self, free: PyTree, points: PyTree, time: PyTree) -> PyTree:
        r"""Points at which the forces of likelihood and prior are equal on average.

        With $s = (Y - M)/(h/2)$, the force of the prior, a step leaves X on average where it was if
        $E[\nabla g_1(M)] = -\tfrac{Ah}{2} \coth\tfrac{Ah}{2}\, E[s]$ for a quadratic $g_1$. Soft
        directions are in balance at the proximal points M. In stiff ones the prox has moved M by
        $h/2\, s$, where $A^{-1} s$ would be right. The points

        $$ M + \bigl(\coth\tfrac{Ah}{2} - \tfrac{2}{Ah}\bigr)(Y - M) $$

        are in balance in all: near M in soft directions, near Y in stiff ones.
        """
        if self.rotation is None:
            return points
        one = _trees.first(points)
        root = _flat_root(self.units, one)[None]
        steps = jax.tree.leaves(jax.tree.map(jnp.divide, time, self.units))[0]
        flat = jax.vmap(lambda tree: ravel_pytree(tree)[0])
        apart = flat(_trees.subtract(free, points)) / root
        share = _langevin(self.eigenvalues * steps / 2)
        moved = ((apart @ self.rotation) * share[None]) @ self.rotation.T
        return _trees.add(points, jax.vmap(ravel_pytree(one)[1])(moved * root))


def _likelihoods_own(model: Model, theta: PyTree) -> list[Array]:
    """The leaves of theta that no term uses: noise levels, say."""
    touched = [path for path, _ in model.nonsmooth.reach() if path is not None]
    return [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(theta)
        if not any(_trees.overlap(_trees.path_keys(path), other) for other in touched)
    ]


def _langevin(t: Array) -> Array:
    r"""$\coth t - 1/t$: $t/3$ for small $t$, 1 for large $t$."""
    small = t < 0.1
    safe = jnp.where(small, 1.0, t)
    return jnp.where(small, t / 3 - t**3 / 45, 1 / jnp.tanh(safe) - 1 / safe)


def _crossing_free_leaves(
    model: Model, mean: Float[Array, "d d"], units: PyTree, one: PyTree
) -> PyTree:
    r"""Units long enough to cross the posterior in leaves of x that no term touches.

    An intercept, say: no prox follows the flow there, so that nothing but the surrogate limits its
    time. The inverse of its curvature would be its variance with the rest of x held fixed. Beside
    counts, one of which may fix a sum of coefficients, that is hundreds of times smaller than its
    variance, and the intercept would take as many steps more. The variance is that of the Gaussian
    with the precision $|A| + M^{-1}$, $M$ being the metric of the other leaves.
    """
    touched = [path for _, path in model.nonsmooth.reach()]
    paths = [_trees.path_keys(path) for path, _ in jax.tree_util.tree_leaves_with_path(one)]
    free = [not any(_trees.overlap(path, other) for other in touched) for path in paths]
    if not any(free):
        return units
    unravel = ravel_pytree(one)[1]
    leaves, structure = jax.tree.flatten(units)
    inverse = [
        jnp.zeros_like(leaf) if own else 1 / leaf for leaf, own in zip(leaves, free, strict=True)
    ]
    precision = mean + jnp.diag(_flat_root(jax.tree.unflatten(structure, inverse), one) ** 2)
    size = jnp.sqrt(jnp.abs(jnp.diagonal(precision)))
    size = jnp.where(size > 0, size, 1.0)
    values, vectors = eigh(precision / size[:, None] / size[None])
    # Where the likelihood is not convex, its curvature has the size of a squared length as well.
    # A direction that nothing determines has no length: its elements count as independent.
    values = jnp.abs(values)
    values = jnp.where(values > len(size) * jnp.finfo(size.dtype).eps, values, 1.0)
    variances = jax.tree.leaves(unravel(vectors**2 @ (1 / values) / size**2))
    wider = [
        jnp.maximum(leaf, jnp.max(variance)) if own else leaf
        for leaf, variance, own in zip(leaves, variances, free, strict=True)
    ]
    return jax.tree.unflatten(structure, wider)


def _resolving_walls(model: Model, theta: PyTree, particles: PyTree, units: PyTree) -> PyTree:
    r"""Units short enough for the layer in which the data press x against a constraint.

    There x is exponential with mean $1/|\nabla g_1|$, which steps must resolve. An element counts
    where a move by that mean, downhill, meets the constraint: far from it, no gradient does harm.
    """
    terms = model.nonsmooth.summands()
    walls = [path for term in terms if not term.finite for _, path in term.reach()]
    if not walls:
        return units
    gradients = model.gradients(theta, particles).particles
    downhill = jax.tree.map(
        lambda x, gradient: x - 1 / jnp.where(gradient == 0, 1, gradient), particles, gradients
    )
    nearest = projected(theta, downhill, model)
    steepest = jax.tree.map(
        lambda gradient, there, near: jnp.max(
            jnp.mean(jnp.where(there == near, 0, gradient**2), axis=0)
        ),
        gradients,
        downhill,
        nearest,
    )
    layers = jax.tree.map(
        lambda unit, gradient: jnp.minimum(
            unit, WALL_UNITS / jnp.where(gradient > 0, gradient, WALL_UNITS / unit)
        ),
        units,
        steepest,
    )
    for path in walls:
        units = _trees.put_part(units, path, _trees.part("x", layers, path))
    return units


def _typical_norm(matrices: Float[Array, "n d d"]) -> Float[Array, ""]:
    """The mean of the spectral norms."""
    start = jax.random.normal(jax.random.key(0), matrices.shape[-1:], matrices.dtype)

    def norm(matrix: Array) -> Array:
        return jnp.abs(_trees.dominant_eigenvalue(lambda v: matrix @ v, start, 20))

    return jnp.mean(jax.lax.map(norm, matrices))


def _flat_root(units: PyTree, one: PyTree) -> Array:
    """The root of the metric for each element of x."""
    whole = jax.tree.map(lambda unit, leaf: jnp.broadcast_to(unit, leaf.shape), units, one)
    return jnp.sqrt(ravel_pytree(whole)[0])
