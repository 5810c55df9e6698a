"""What speaks against the answer of a run.

A finished run is judged by `findings_of`. While it lasts, a `RunawayWatch` looks at it between its
chunks.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import PyTree

from pipla import _trees
from pipla.algorithms.base import Algorithm
from pipla.diagnostics import ConvergenceWarning, Finding, still_moving
from pipla.engine.chunk import Carry, Program
from pipla.models.model import Model

#: The largest duality gap per element of x that an answer does not notice: a gap of $g$ moves each
#: element by at most $\sqrt{2 \lambda g/d}$, and the noise of a step by $\sqrt{2 \lambda}$.
LARGEST_GAP = 0.5
#: A drift of theta that is at most this share of the distance from its start is not reported.
NEGLIGIBLE = 0.01
#: The factor by which the smoothing may exceed what the joint prox is stable for.
SMOOTHING_MARGIN = 4
#: The least standard deviation of x, in spacings of its floats: steps of a thirtieth of it are
#: still rounded to a tenth of themselves.
LEAST_RESOLUTION = 100


# The verdict on a finished run. #


def findings_of(
    model: Model,
    algorithm: Algorithm,
    trace: PyTree,
    burn_in: int,
    theta: PyTree,
    particles: PyTree,
    variance: PyTree | None,
    prox_gap: float,
) -> tuple[Finding, ...]:
    """What speaks against the answer of a run that ended here.

    Leaves of theta that have no trace are not judged: among so many numbers some have moved.
    `variance` is that of x over particles and steps, where it was kept.
    """
    found = (
        *(Finding("theta", sentence) for sentence in algorithm.objections(model)),
        _unsettled(trace, burn_in),
        _inexact(prox_gap, _trees.size(_trees.first(particles))),
        _unstable(model, algorithm, theta, particles),
        _outside(model, theta, particles),
        None if variance is None else rounded(model, particles, variance),
        _unused(model, algorithm, theta, particles),
    )
    return tuple(finding for finding in found if finding is not None)


def _unsettled(trace: PyTree, burn_in: int) -> Finding | None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(trace):
        values = np.asarray(leaf, np.float64)
        name, settled = f"theta{jax.tree_util.keystr(path)}", values[burn_in:]
        if still_moving(settled, NEGLIGIBLE * np.abs(values[-1] - values[0])):
            return Finding(
                name,
                f"{name} was still moving after burn-in, so that its average and error mean little",
                "run longer, or look at theta_scale; where the data determine x, use the centred "
                "model, where the prior does, pipla.noncentred",
            )
    return None


def _inexact(prox_gap: float, size: int) -> Finding | None:
    if not prox_gap > LARGEST_GAP * size:
        return None
    return Finding(
        "x",
        f"the proximal map was inexact (its duality gap reached {prox_gap:.3g} for {size} elements "
        "of x)",
        "raise max_iterations of the term, or check that the strength has not run away",
    )


def _unstable(
    model: Model,
    algorithm: Algorithm,
    theta: PyTree,
    particles: PyTree,
    where: str = "where theta ended",
) -> Finding | None:
    smoothing = algorithm.joint_smoothing()
    if smoothing is None:
        return None
    one = _trees.first(particles)
    largest = float(model.nonsmooth.largest_smoothing(theta, one))
    if not float(smoothing) > SMOOTHING_MARGIN * largest:
        return None
    return Finding(
        "theta",
        f"smoothing = {float(smoothing):.3g} is too large {where}; the joint prox of a learned "
        f"strength is stable up to {largest:.3g} there, and pulls theta away (E12)",
        "start nearer to the answer, or use pipla.noncentred, pipla.RPL or "
        "theta_update='closed-form'",
    )


def _outside(model: Model, theta: PyTree, particles: PyTree) -> Finding | None:
    count = outside(model, theta, particles)
    if not count:
        return None
    return Finding(
        "x",
        f"{count} of {_trees.num_particles(particles)} particles ended outside the support of the "
        "non-smooth term",
        "pipla.PIPGLA and pipla.PGLA keep them inside a fixed constraint, pipla.fit and "
        "pipla.noncentred inside one that moves with theta",
    )


def rounded(model: Model, particles: PyTree, variance: PyTree) -> Finding | None:
    """A finding if most numbers of a leaf of x vary by little more than their floats' spacing.

    Constraints are not judged: x may rest on a wall, where it does not vary at all.
    """
    if not model.nonsmooth.finite:
        return None
    variances = jax.tree.leaves(variance)
    for (path, leaf), found in zip(
        jax.tree_util.tree_leaves_with_path(particles), variances, strict=True
    ):
        values = np.asarray(leaf)
        size = np.median(np.abs(values), axis=0)
        spacing = np.where(size > 0, np.spacing(size), 0.0)  # a sparse x may be 0 throughout
        coarse = np.sqrt(np.asarray(found)) < LEAST_RESOLUTION * spacing
        if coarse.size and np.mean(coarse) > 0.5:
            name = f"x{jax.tree_util.keystr(path)}"
            return Finding(
                name,
                f"{name} is decided by rounding; near {float(np.median(size)):.3g} neighbouring "
                f"{values.dtype.name} numbers are {float(np.median(spacing)):.2g} apart, and x "
                f"varies by no more than {LEAST_RESOLUTION} of these",
                "subtract a constant from the data and from x, or enable float64 "
                "(`jax_enable_x64`)",
            )
    return None


def outside(model: Model, theta: PyTree, particles: PyTree) -> int:
    """The number of particles at which the non-smooth term is infinite."""
    if model.nonsmooth.finite:
        return 0
    values = jax.vmap(model.nonsmooth.value, in_axes=(None, 0))(theta, particles)
    return int(jnp.sum(jnp.isinf(values)))


def _unused(model: Model, algorithm: Algorithm, theta: PyTree, particles: PyTree) -> Finding | None:
    names = unused(model, theta, particles) if algorithm.learns_theta else []
    if not names:
        return None
    return Finding(
        ", ".join(names),
        f"{', '.join(names)}: neither smooth nor the non-smooth term depends on it, so that its "
        "value means nothing",
        "use it in the model, leave it out, or sample x at a fixed theta (theta_update='frozen')",
    )


def unused(model: Model, theta: PyTree, particles: PyTree) -> list[str]:
    """The leaves of theta on which the potential does not depend."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(theta)]
    reached = [path for path, _ in model.nonsmooth.reach() if path is not None]
    if all(any(_keys(path)[: len(part)] == part for part in reached) for path in paths):
        return []  # known without tracing the model
    x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), particles)
    program = jax.make_jaxpr(model.potential)(theta, x).jaxpr
    _, used = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
    return [
        f"theta{jax.tree_util.keystr(path)}"
        for path, is_used in zip(paths, used, strict=False)  # the others are of x
        if not is_used
    ]


def _keys(path: Any) -> tuple[Any, ...]:
    """The path of a leaf as terms write it: keys, names and indices."""
    return tuple(getattr(k, "key", getattr(k, "name", getattr(k, "idx", None))) for k in path)


# A look at a run that has not ended. #


class RunawayWatch:
    """Looks at a run between its chunks, and warns at once, and once, if it runs away.

    The numbers of an algorithm suit its start. Where theta travels to, the smoothing may be too
    large, or the iterations of the prox too few. The run continues and none of its numbers
    changes, but whoever waits for it should know. Sweeps are not watched.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._silent = bool(program.lanes)

    def look(self, carry: Carry, prox_gap: Any, step: int) -> None:
        """Warn if the answer would not be believed if the run ended after this step."""
        if self._silent:
            return
        model, algorithm = self._program.model, self._program.algorithm
        theta, particles = carry.state.theta, carry.state.particles
        found = _unstable(model, algorithm, theta, particles, "where theta is") or _inexact(
            float(prox_gap), _trees.size(particles) // _trees.num_particles(particles)
        )
        if found is not None:
            self._silent = True
            warnings.warn(f"after step {step}: {found}", ConvergenceWarning, stacklevel=5)
