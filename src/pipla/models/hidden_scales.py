r"""Scales that a user wrote into `smooth`: $g_1(\theta, z) = f(e^{A\theta} z)$.

Such a model is non-centred by hand: the prior of z has no theta, and $x = e^{A\theta} z$ is what
the data see. Where the data dominate, theta crawls while z is held fixed, and its observed
information is a small difference of large numbers. With x held fixed it is as easy as that of a
learned `Strength`. The rates $A$ are found from the derivatives of $g_1$ alone, by

$$ \partial_{\theta_k} g_1(\theta, z) = \sum_j A_{kj}\, z_j\, \partial_{z_j} g_1(\theta, z)
   \quad \text{for all } \theta, z. $$

They choose coordinates and no more: in any coordinates the potential is the whole one, so that a
smooth part with something else of theta in it (a weak prior, say) is still what is fitted.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from pipla import _trees
from pipla._decompositions import eigh
from pipla.models.model import Model
from pipla.prox.base import Term

#: Points at which the identity is checked, half of them at another theta: a rate that changes with
#: theta, such as that of $x = \theta z$, is not one.
POINTS = 8
#: How well the identity holds, relative to its largest part: rounding alone does less in single
#: precision, and a theta that does anything else of note does more.
TOLERANCE = 1e-3
#: Rates are rounded to this many decimals, so that a resumed fit finds the same ones.
DECIMALS = 4
#: The most elements of x, each of which costs a gradient.
LARGEST_X = 1000


class HiddenScales(eqx.Module):
    """The rates $A$, with theta and z flattened."""

    rates: Float[Array, "k d"]

    @property
    def own(self) -> Bool[Array, " k"]:
        """Which numbers of theta are such scales."""
        return jnp.any(self.rates != 0, axis=1)

    def moved(self, step: Float[Array, " k"], z: PyTree) -> PyTree:
        """One particle z after this step of theta, with x held fixed."""
        flat, unravel = ravel_pytree(z)
        return unravel(jnp.exp(-(step @ self.rates.astype(flat.dtype))) * flat)

    def log_volume(self, step: Float[Array, " k"]) -> Array:
        """Minus the log determinant of `moved`, which the potential gains."""
        return jnp.sum(step @ self.rates.astype(step.dtype))

    def best_step(self, model: Model, theta: PyTree, particles: PyTree) -> Float[Array, " k"]:
        """Newton's step of theta with x held fixed, where $g_1$ has no curvature in theta."""
        flat, unravel = ravel_pytree(theta)

        def prior(step: Array, z: PyTree) -> Array:
            return model.nonsmooth.value(theta, self.moved(step, z)) + self.log_volume(step)

        def whole(step: Array, z: PyTree) -> Array:
            there = model.smooth_value(unravel(flat + step), self.moved(step, z))
            return there + prior(step, z)

        start = jnp.zeros_like(flat)
        slope = jax.grad(lambda s: jnp.mean(jax.vmap(lambda z: whole(s, z))(particles)))(start)
        bend = jax.hessian(lambda s: jnp.mean(jax.vmap(lambda z: prior(s, z))(particles)))(start)
        # The other numbers of theta stay where they are, and so do scales of a z that is 0.
        own = self.own & (jnp.diagonal(bend) > 0)
        slope = jnp.where(own, slope, 0.0)
        if flat.size == 1:  # which costs a program with a decomposition less
            return -slope / jnp.where(own, bend[0], 1.0)
        bend = jnp.where(own[:, None] & own[None], bend, jnp.eye(flat.size, dtype=flat.dtype))
        values, vectors = eigh(bend)
        known = values > 1e-5 * jnp.max(values)  # two scales of the same z are one
        return -(vectors @ jnp.where(known, (vectors.T @ slope) / values, 0.0))

    def units(self, otherwise: PyTree) -> PyTree:
        """For each number of theta, the step that changes its scale by a factor e."""
        flat, unravel = ravel_pytree(otherwise)
        largest = jnp.max(jnp.abs(self.rates), axis=1).astype(flat.dtype)
        return unravel(jnp.where(largest > 0, 1 / jnp.where(largest > 0, largest, 1.0), flat))


def with_hidden_scales(model: Model, theta: PyTree, x: PyTree) -> Model:
    """The model with the scales that its smooth part hides, if there are any."""
    free = _free(model, theta)
    if not np.any(free) or _trees.size(x) > LARGEST_X:
        return model
    blocks = _homogeneous_blocks(model.nonsmooth, theta, x)
    if not len(blocks):
        return model
    rates = _rates(model, theta, x, free, blocks)
    if not np.any(rates):
        return model
    found = HiddenScales(jnp.asarray(rates, _trees.dtype(x)))
    return eqx.tree_at(lambda m: m.scales, model, found, is_leaf=lambda leaf: leaf is None)


def _free(model: Model, theta: PyTree) -> Bool[np.ndarray, " k"]:
    """The numbers of theta that only a plain function of the smooth part uses."""
    own = model.smooth.sets_theta()
    taken = [path for path, _ in model.nonsmooth.reach() if path is not None]
    taken += [] if own is None else [own]
    return _mask(theta, taken) == 0


def _homogeneous_blocks(term: Term, theta: PyTree, x: PyTree) -> Float[np.ndarray, "b d"]:
    """The elements of x, term by term, whose prior is finite, without theta, and homogeneous.

    Along a ray from 0 such a prior has no kink. A separable one is a block per element.
    """
    flat, unravel = ravel_pytree(x)
    some = np.random.default_rng(1).normal(size=flat.size)

    def at(point: np.ndarray) -> PyTree:
        return unravel(jnp.asarray(point, flat.dtype))

    found = []
    for one in term.summands():
        if one.uses_theta or not one.finite or not one.reach():
            continue
        once, twice, half = (float(one.value(theta, at(c * some))) for c in (1.0, 2.0, 0.5))
        if once <= 0 or not np.isclose(twice * half, once**2, rtol=1e-4):
            continue
        mask = _mask(x, [path for _, path in one.reach()]) > 0
        rows = jnp.asarray(np.diag(some), flat.dtype)
        alone = jax.vmap(lambda row, one=one: one.value(theta, unravel(row)))(rows)
        separable = np.isclose(float(jnp.sum(alone)), once, rtol=1e-4)
        found += list(np.eye(mask.size)[mask]) if separable else [mask.astype(float)]
    return np.asarray(found).reshape(-1, flat.size)


def _mask(tree: PyTree, paths: list[_trees.Path]) -> Float[np.ndarray, " n"]:
    """1 in the parts of a tree that these paths lead to."""
    mask = jax.tree.map(np.zeros_like, tree)
    for path in paths:
        ones = jax.tree.map(np.ones_like, _trees.part("tree", mask, path))
        mask = _trees.put_part(mask, path, ones)
    return np.asarray(ravel_pytree(mask)[0])


def _rates(
    model: Model,
    theta: PyTree,
    x: PyTree,
    free: Bool[np.ndarray, " k"],
    blocks: Float[np.ndarray, "b d"],
) -> Float[np.ndarray, "k d"]:
    """The rates, 0 for what is no hidden scale.

    With all but one of the blocks at 0, the identity has a single term: the rate of that block.
    """
    flat, to_theta = ravel_pytree(theta)
    start, to_x = ravel_pytree(x)

    @jax.jit
    def gradients(thetas: Array, points: Array) -> tuple[Array, Array]:
        def value(theta: Array, z: Array) -> Array:
            return model.smooth_value(to_theta(theta), to_x(z))

        return jax.vmap(jax.grad(value, argnums=(0, 1)))(thetas, points)

    def derivatives(thetas: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """In theta, and in z times z."""
        here = jnp.asarray(thetas, flat.dtype), jnp.asarray(points, start.dtype)
        slopes, forces = (np.asarray(each, np.float64) for each in gradients(*here))
        with np.errstate(invalid="ignore"):  # 0 times infinity
            return slopes, points * forces

    rng = np.random.default_rng(0)
    at, inside = np.asarray(flat, np.float64), blocks.sum(axis=0) > 0
    unit = np.sqrt(_per_element(model.nonsmooth.time_unit(theta, x), x))
    unit = np.where(np.isfinite(unit), unit, 1.0)
    around = np.asarray(start, np.float64) + unit * rng.normal(size=(POINTS + 1, start.size))
    probes = np.where(inside, around[0] * blocks, around[0])
    slopes, pulls = derivatives(np.tile(at, (len(probes), 1)), probes)
    with np.errstate(all="ignore"):  # values that are not finite are no evidence
        ratios = np.round(slopes / np.sum(pulls * blocks, axis=1)[:, None], DECIMALS)
    ratios = np.where(np.isfinite(ratios), ratios, 0.0)
    rates = np.where(free[:, None], ratios.T @ blocks, 0.0)

    other = (np.arange(POINTS) % 2)[:, None] * free
    slopes, pulls = derivatives(at + 0.5 * other * rng.normal(size=other.shape), around[1:])
    with np.errstate(all="ignore"):
        parts = np.abs(pulls) @ np.abs(rates).T
        right = np.abs(slopes - pulls @ rates.T) <= TOLERANCE * parts
    known = np.all(right & (parts > 0) & (parts < np.inf), axis=0)
    return np.where(known[:, None], rates, 0.0)


def _per_element(units: PyTree, x: PyTree) -> Float[np.ndarray, " d"]:
    """One number per leaf as one per element."""
    whole = jax.tree.map(lambda unit, leaf: jnp.broadcast_to(unit, leaf.shape), units, x)
    return np.asarray(ravel_pytree(whole)[0], np.float64)
