r"""Whether `smooth` is a log density, where minus the log density is wanted.

A likelihood of given data is a bounded function of x, or grows in some directions only (the density
of an observation of 0 as its scale goes to 0). So $g_1$ may level off as x goes to infinity, but it
does not fall for ever wherever x goes. The log likelihood does: far from the data, nothing fits.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from pipla import _trees
from pipla.diagnostics import Finding
from pipla.models.model import Model

#: Random directions, each tried forwards and backwards.
DIRECTIONS = 4
#: How far x goes, in lengths of the prior per element. A factor of 10 each time: also a logarithm,
#: that of Student's t, falls by the same amount from each to the next.
DISTANCES = (10.0, 100.0, 1000.0)
#: The least fall from one distance to the next; also relative to the value, for rounding.
LEAST_FALL, ROUNDING = 1.0, 1e-4

SENTENCE = (
    "smooth grows with the fit; is it minus the log density? In every direction that was tried, "
    "it falls without bound as x goes to infinity"
)


def check_sign(model: Model, theta: PyTree, x: PyTree) -> Finding | None:
    """Raise where the posterior does not exist; a finding where only the prior saves it."""
    if model.smooth.bounded:
        return None
    smooth, prior = (np.asarray(values, np.float64) for values in _far_away(model, theta, x))
    if not _falls(smooth):
        return None
    with np.errstate(invalid="ignore"):
        whole = smooth + prior
    if _falls(whole):
        raise ValueError(
            f"{SENTENCE}, and the whole potential with it: there is no posterior. Return minus "
            "the log likelihood, which is small where the data are likely."
        )
    return Finding("smooth", SENTENCE)


def _falls(values: np.ndarray) -> bool:
    """Whether values fall from each distance to the next on every ray; (rays, distances)."""
    before, after = values[:, :-1], values[:, 1:]
    with np.errstate(invalid="ignore"):  # infinite minus infinite is NaN, and no fall
        fall = before - after
        enough = fall > np.maximum(LEAST_FALL, ROUNDING * np.where(fall < np.inf, abs(after), 0))
    return bool(np.all(enough | (after == -np.inf)))


@_trees.bounded_jit()
def _far_away(fixed: Model, arrays: Model, theta: PyTree, x: PyTree) -> tuple[Array, Array]:
    """The two parts of the potential, at each distance on each ray."""
    model = eqx.combine(fixed, arrays)
    start, unravel = ravel_pytree(x)
    units = jax.tree.map(
        lambda unit, leaf: jnp.broadcast_to(jnp.where(jnp.isfinite(unit), unit, 1.0), leaf.shape),
        model.nonsmooth.time_unit(theta, x),
        x,
    )
    ways = jax.random.normal(jax.random.key(0), (DIRECTIONS, start.size), start.dtype)
    ways = jnp.concatenate([ways, -ways]) * jnp.sqrt(ravel_pytree(units)[0])[None]
    far = jnp.asarray(DISTANCES, start.dtype)
    points = start[None, None] + far[None, :, None] * ways[:, None]

    def one(point: Array) -> tuple[Array, Array]:
        there = unravel(point)
        return model.smooth_value(theta, there), model.nonsmooth.value(theta, there)

    return jax.lax.map(jax.vmap(one), points)
