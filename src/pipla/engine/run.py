"""Run an algorithm: the only loop there is, in compiled chunks, with any algorithm."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from pipla import _checks, tuning
from pipla.algorithms.base import Algorithm
from pipla.engine.chunk import start
from pipla.engine.driver import SoFar, Task, drive
from pipla.engine.prepare import (
    as_dtype,
    checked_burn_in,
    checked_chunk_size,
    checked_progress,
    checked_save,
    checked_start,
)
from pipla.engine.result import Result, as_leaf, as_numbers, load
from pipla.engine.save import Save
from pipla.models.model import Model


def run(
    model: Model,
    algorithm: Algorithm,
    *,
    theta: PyTree,
    particles: PyTree,
    num_steps: int,
    key: Key[Array, ""],
    burn_in: int | None = None,
    save: Save | None = None,
    progress: bool | None = None,
    check: bool = True,
    chunk_size: int | None = None,
) -> Result:
    """Run `algorithm` on `model` for `num_steps` steps.

    Arguments:
        model: what to fit.
        algorithm: how, for example `pipla.PIPGLA(step_size=0.01)`. Numbers left out are chosen
            by `pipla.tuning.suggest` at this start.
        theta: where theta starts: any pytree of floats.
        particles: where the cloud starts; the leading axis of every leaf counts the particles.
        num_steps: how many steps.
        key: `jax.random.key(seed)`. Equal keys give equal runs, however they are chunked.
        burn_in: steps left out of the averages; half of them by default.
        save: what to keep; see `pipla.Save`.
        progress: show a progress bar; by default only on a terminal.
        check: warn when the settings break a condition of the theory (costs a power iteration).
        chunk_size: the most steps between two looks at the clock; never changes a number.

    Returns:
        A `Result`. Ctrl-C returns what there is, with `status` INTERRUPTED. A non-finite value
        ends the run with the last good state and `status` NONFINITE.
    """
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    burn_in = checked_burn_in(burn_in, num_steps)
    _checks.random_key("key", key)
    save = checked_save(save)
    checked_chunk_size(chunk_size)
    checked_progress(progress)
    _checks.boolean("check", check)
    theta, particles = checked_start(model, algorithm, theta, particles)
    save.check(theta, particles)
    algorithm = as_dtype(tuning.complete(algorithm, model, theta, particles), particles)
    if check:
        tuning.warn_broken(algorithm, model, theta, particles)
    carry = start(algorithm, model, theta, particles, save.program())
    task = Task(model, algorithm, save, key, burn_in)
    return drive(task, SoFar(carry, 0), num_steps, progress, chunk_size)


def resume(
    result: Result | str | Path,
    model: Model,
    *,
    num_steps: int,
    algorithm: Algorithm | None = None,
    save: Save | None = None,
    progress: bool | None = None,
    chunk_size: int | None = None,
) -> Result:
    """Go on with a run for `num_steps` more steps, bit for bit as if it had never stopped.

    Arguments:
        result: a `Result`, or the folder it was saved in.
        model: the model it was run on.
        algorithm: only needed when it holds code (`theta_optimizer`, or one of your own).
        save: only needed when it held code (`quantity`).
    """
    if not isinstance(result, Result | str | Path):
        raise TypeError(
            f"result must be a pipla.Result or the folder of one, got {type(result).__name__}."
        )
    if not isinstance(result, Result):
        result = load(result)
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    algorithm = algorithm if algorithm is not None else result.algorithm
    if algorithm is None:
        raise ValueError(
            "algorithm is needed to resume this run: it holds code (an optimiser or an algorithm "
            "of your own), and result files hold none."
        )
    if isinstance(algorithm, Algorithm) and algorithm.missing():
        raise ValueError(
            "algorithm must have the numbers of the original run, but "
            f"{algorithm.missing()[0]} was left out."
        )
    checked_chunk_size(chunk_size)
    checked_progress(progress)
    snapshot = result.snapshot
    if save is None and snapshot.has_quantity:
        raise ValueError(
            "save is needed to resume this run: it held code (a quantity), and results hold none."
        )
    save = checked_save(save or Save(snapshot.moments_every, snapshot.particles_every))
    theta = jax.tree.map(lambda trace: jnp.asarray(trace[-1]), result.theta_trace)
    particles = jax.tree.map(jnp.asarray, result.particles)
    theta, particles = checked_start(model, algorithm, theta, particles)
    algorithm = as_dtype(algorithm, particles)
    blank = start(algorithm, model, theta, particles, save.program())
    likes, structure = jax.tree.flatten(blank)
    shapes = [(leaf.shape, leaf.dtype) for leaf in map(as_numbers, likes)]
    if shapes != [(leaf.shape, leaf.dtype) for leaf in snapshot.leaves]:
        raise ValueError(
            "model, algorithm or save does not fit the result: the state to go on from has other "
            "shapes or dtypes. Give those of the original run, and set jax_enable_x64 as it was."
        )
    carry = jax.tree.unflatten(structure, map(as_leaf, snapshot.leaves, likes))
    task = Task(model, algorithm, save, snapshot.key(), result.burn_in)
    before = SoFar(
        carry,
        result.num_steps,
        traces=[result.theta_trace] if result.num_steps else [],
        clouds=[] if result.saved_particles is None else [result.saved_particles],
        gap=result.prox_gap,
        seconds=result.seconds,
        compile_seconds=result.compile_seconds,
    )
    return drive(task, before, result.num_steps + num_steps, progress, chunk_size)
