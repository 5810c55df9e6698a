"""`pipla.extrapolate`: the answer of any algorithm without the bias of its step."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms.base import Algorithm, Both
from pipla.algorithms.wrappers.paired import Paired, extrapolated
from pipla.diagnostics import monte_carlo_error
from pipla.engine.chunk import Carry, Program, start
from pipla.engine.compiled import CompiledChunks, History
from pipla.engine.driver import check_surroundings, drive
from pipla.engine.result import Status
from pipla.engine.run import as_dtype, checked_algorithm, checked_burn_in, joined
from pipla.engine.save import Moments, Save
from pipla.models.model import Model, checked_point, without_fixed_leaves
from pipla.tuning.curvature import LocalGeometry


@dataclasses.dataclass(frozen=True, repr=False)
class Extrapolation:
    """What an algorithm says at its step size, at half of it, and at none.

    Attributes:
        theta: extrapolated to a step size of 0.
        theta_mcse: its Monte-Carlo standard error.
        theta_bias: what the full step size adds to theta.
        theta_bias_mcse: the Monte-Carlo standard error of that.
        theta_coarse, theta_fine: at the step size and at half of it.
        x_mean, x_variance: of x, extrapolated.
        theta_trace: theta at every step, a pair.
        status, message: how the run ended.
    """

    theta: PyTree
    theta_mcse: PyTree
    theta_bias: PyTree
    theta_bias_mcse: PyTree
    theta_coarse: PyTree
    theta_fine: PyTree
    x_mean: PyTree
    x_variance: PyTree
    theta_trace: Both
    status: Status
    message: str

    def __repr__(self) -> str:
        theta, error = _trees.brief(self.theta), _trees.brief(self.theta_mcse)
        bias = _trees.brief(self.theta_bias)
        return f"Extrapolation(theta={theta} ± {error}, bias of the step {bias})"


def extrapolate(
    model: Model,
    algorithm: Algorithm,
    *,
    theta: PyTree,
    particles: PyTree,
    num_steps: int,
    key: Key[Array, ""],
    burn_in: int | None = None,
) -> Extrapolation:
    """Run an algorithm with its step size and with half of it, and extrapolate to none.

    The bias of a step is of first order, so that twice the finer answer minus the coarser one has
    none to that order. Both runs share their random numbers and are one program; together they
    cost three runs. A bias that does not depend on the step size, such as that of a fixed
    smoothing, stays.

    Arguments:
        model, theta, particles, key, burn_in: as in `pipla.run`.
        algorithm: any whose step can be rescaled.
        num_steps: of the coarser run; the finer one makes twice as many.
    """
    check_surroundings()
    checked_algorithm(algorithm)
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    burn_in = checked_burn_in(burn_in, num_steps)
    _checks.random_key("key", key)
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    theta, particles = checked_point(model, theta, particles)
    algorithm.check(theta, particles)
    completed = algorithm.completed(LocalGeometry(model, theta, particles))
    completed.rescaled(0.5)  # an error where there is no step to change
    program = Program(model, as_dtype(Paired(completed), particles), key)
    state = start(program, theta, particles, False).state
    nothing = Moments.empty(state.particles)
    chunks = CompiledChunks(program, Save(), burn_in, num_steps)
    history, status, message = drive(chunks, History(Carry(state, nothing)), [])
    moments = history.carry.moments or nothing
    trace = joined(history.traces, history.carry.state.theta)
    settled = jax.tree.map(lambda rows: rows[burn_in:].astype(np.float64), trace)
    both, difference = extrapolated(settled), jax.tree.map(np.subtract, settled[0], settled[1])
    fixed = model.fixed
    return Extrapolation(
        theta=fixed.complete_theta(_mean(both)),
        theta_mcse=jax.tree.map(monte_carlo_error, both),
        theta_bias=jax.tree.map(lambda rows: 2 * rows.mean(axis=0), difference),
        theta_bias_mcse=jax.tree.map(lambda rows: 2 * monte_carlo_error(rows), difference),
        theta_coarse=fixed.complete_theta(_mean(settled[0])),
        theta_fine=fixed.complete_theta(_mean(settled[1])),
        x_mean=fixed.complete_x(extrapolated(moments.mean)),
        x_variance=extrapolated(moments.variance()),
        theta_trace=trace,
        status=status,
        message=message,
    )


def _mean(rows: PyTree) -> PyTree:
    """Over the steps, in double precision."""
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), rows)
