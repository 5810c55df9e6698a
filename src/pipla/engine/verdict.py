"""Whether to believe a finished run: what speaks against it, in sentences."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import _trees
from pipla.algorithms.base import Algorithm
from pipla.engine.diagnostics import still_moving
from pipla.models.model import Model

#: The largest duality gap per element of x that an answer does not notice: a gap of $g$ moves each
#: element by at most $\sqrt{2 \lambda g/d}$, and the noise of a step by $\sqrt{2 \lambda}$.
LARGEST_GAP = 0.5
#: The factor by which the smoothing may exceed what the joint prox is stable for.
SMOOTHING_MARGIN = 4


class ConvergenceWarning(UserWarning):
    """A run has ended, but its answer should not be believed yet."""


def doubts(
    model: Model,
    algorithm: Algorithm,
    trace: PyTree,
    burn_in: int,
    particles: PyTree,
    prox_gap: float,
) -> tuple[str, ...]:
    """What speaks against the answer of a run: one sentence each."""
    theta = jax.tree.map(lambda leaf: jnp.asarray(leaf[-1]), trace)
    found = (
        _unsettled(trace, burn_in),
        _inexact(prox_gap, _trees.size(_trees.first(particles))),
        _unstable(model, algorithm, theta, particles),
        _outside(model, theta, particles),
    )
    return tuple(sentence for sentence in found if sentence is not None)


def warn_of(sentences: tuple[str, ...], stacklevel: int = 3) -> None:
    """One warning per doubt."""
    for sentence in sentences:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=stacklevel)


def _unsettled(trace: PyTree, burn_in: int) -> str | None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(trace):
        values = np.asarray(leaf, np.float64)
        name, settled = f"theta{jax.tree_util.keystr(path)}", values[burn_in:]
        travelled = np.abs(values[-1] - values[0])
        if still_moving(settled, travelled):
            return (
                f"{name} was still moving after burn-in, so that its average and error mean "
                "little: run longer, or look at theta_scale; where the data determine x, use the "
                "centred model, where the prior does, pipla.noncentred"
            )
    return None


def _inexact(prox_gap: float, size: int) -> str | None:
    if not prox_gap > LARGEST_GAP * size:
        return None
    return (
        f"the proximal map was inexact: its duality gap reached {prox_gap:.3g} for {size} "
        "elements of x; raise max_iterations of the term, or check that the strength has not run "
        "away"
    )


def _unstable(model: Model, algorithm: Algorithm, theta: PyTree, particles: PyTree) -> str | None:
    smoothing = algorithm.joint_smoothing()
    if smoothing is None:
        return None
    one = _trees.first(particles)
    largest = float(model.nonsmooth.largest_smoothing(theta, one))
    if not float(smoothing) > SMOOTHING_MARGIN * largest:
        return None
    return (
        f"smoothing = {float(smoothing):.3g} is too large where theta ended: the joint prox of a "
        f"learned strength is stable up to {largest:.3g} there, and pulls theta away (E12); start "
        "nearer to the answer, or use pipla.noncentred, pipla.RPL or theta_update='closed-form'"
    )


def _outside(model: Model, theta: PyTree, particles: PyTree) -> str | None:
    count = outside(model, theta, particles)
    if not count:
        return None
    return (
        f"{count} of {_trees.num_particles(particles)} particles are outside the support of the "
        "non-smooth term: an algorithm without a proximal step ignores constraints; use "
        "pipla.PIPGLA or pipla.PGLA"
    )


def outside(model: Model, theta: PyTree, particles: PyTree) -> int:
    """The number of particles at which the non-smooth term is infinite."""
    if model.nonsmooth.finite:
        return 0
    values = jax.vmap(model.nonsmooth.value, in_axes=(None, 0))(theta, particles)
    return int(jnp.sum(jnp.isinf(values)))
