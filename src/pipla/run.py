"""Run an algorithm: the only loop there is, in compiled chunks, with any algorithm."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import checks, tuning
from pipla.algorithms.base import Algorithm
from pipla.loop import Carry, advance, capacity_for, start
from pipla.model import Model
from pipla.progress import Progress
from pipla.result import Result, Snapshot, Status, load, provenance
from pipla.save import Save

#: Seconds a chunk should take: short enough for a lively bar and a prompt Ctrl-C.
CHUNK_SECONDS = 0.25


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
    num_steps = checks.whole("num_steps", num_steps, least=1)
    burn_in = checked_burn_in(burn_in, num_steps)
    checks.random_key("key", key)
    save = checked_save(save)
    theta, particles = checked_start(model, algorithm, theta, particles)
    algorithm = as_dtype(tuning.complete(algorithm, model, theta, particles), particles)
    if check:
        tuning.warn_broken(algorithm, model, theta, particles)
    carry = start(algorithm, model, theta, particles, save)
    task = _Task(model, algorithm, save, key, burn_in)
    return _drive(task, _Sofar(carry, 0), num_steps, progress, chunk_size)


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
    if not isinstance(result, Result):
        result = load(result)
    num_steps = checks.whole("num_steps", num_steps, least=1)
    algorithm = algorithm if algorithm is not None else result.algorithm
    if algorithm is None:
        raise ValueError(
            "algorithm is needed to resume this run: it holds code (an optimiser or an algorithm "
            "of your own), and result files hold none."
        )
    snapshot = result.snapshot
    save = save or Save(snapshot.moments_every, snapshot.particles_every)
    theta = jax.tree.map(lambda trace: jnp.asarray(trace[-1]), result.theta_trace)
    particles = jax.tree.map(jnp.asarray, result.particles)
    theta, particles = checked_start(model, algorithm, theta, particles)
    algorithm = as_dtype(algorithm, particles)
    blank = jax.eval_shape(lambda: start(algorithm, model, theta, particles, save))
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(blank)]
    if shapes != [(leaf.shape, leaf.dtype) for leaf in snapshot.leaves]:
        raise ValueError(
            "model, algorithm or save does not fit the result: the state to go on from has other "
            "shapes. Give those of the original run."
        )
    leaves = [jnp.asarray(leaf) for leaf in snapshot.leaves]
    carry = jax.tree.unflatten(jax.tree.structure(blank), leaves)
    task = _Task(model, algorithm, save, snapshot.key(), result.burn_in)
    before = _Sofar(
        carry,
        result.num_steps,
        traces=[result.theta_trace] if result.num_steps else [],
        clouds=[] if result.saved_particles is None else [result.saved_particles],
        gap=result.prox_gap,
        seconds=result.seconds,
        compile_seconds=result.compile_seconds,
    )
    return _drive(task, before, result.num_steps + num_steps, progress, chunk_size)


class _Task(NamedTuple):
    """What stays the same throughout a run."""

    model: Model
    algorithm: Algorithm
    save: Save
    key: Key[Array, ""]
    burn_in: int

    def advance(self, carry: Carry, first: int, count: int, capacity: int) -> Any:
        numbers = (jnp.asarray(n, jnp.int32) for n in (first, count, self.burn_in))
        chunk = advance(
            self.algorithm, self.model, self.save, self.key, carry, *numbers, capacity
        )
        return jax.block_until_ready(chunk)


class _Sofar:
    """What a run has made so far."""

    def __init__(
        self,
        carry: Carry,
        done: int,
        *,
        traces: list[PyTree] | None = None,
        clouds: list[PyTree] | None = None,
        gap: float = 0.0,
        seconds: float = 0.0,
        compile_seconds: float = 0.0,
    ) -> None:
        self.carry, self.done = carry, done
        self.traces, self.clouds = traces or [], clouds or []
        self.gap, self.seconds, self.compile_seconds = gap, seconds, compile_seconds

    def add(self, chunk: Any, count: int, save: Save) -> None:
        self.carry, self.done = chunk.carry, self.done + count
        self.traces.append(jax.tree.map(lambda rows: np.asarray(rows)[:count], chunk.trace))
        self.gap = max(self.gap, float(chunk.prox_gap))
        if save.particles_every is not None and self.done % save.particles_every == 0:
            cloud = jax.tree.map(lambda leaf: np.asarray(leaf)[None], chunk.carry.state.particles)
            self.clouds.append(cloud)


def _drive(
    task: _Task, sofar: _Sofar, until: int, progress: bool | None, chunk_size: int | None
) -> Result:
    """Chunk after chunk until the end, an interruption or a non-finite value."""
    # The buffer does not depend on chunk_size, so that another one compiles nothing.
    capacity = most = capacity_for(sofar.carry.state.theta)
    if chunk_size is not None:
        most = min(capacity, checks.whole("chunk_size", chunk_size, least=1))
    status, message = Status.COMPLETED, f"completed {until} steps"
    name = getattr(task.algorithm, "name", "") or type(task.algorithm).__name__
    size = min(16, most)
    with Progress(name, until, progress) as bar:
        try:
            began = time.perf_counter()
            task.advance(sofar.carry, sofar.done, 0, capacity)  # no step: compiles
            sofar.compile_seconds += time.perf_counter() - began
            while sofar.done < until:
                count = _next_count(sofar.done, until, size, task.save.particles_every)
                began = time.perf_counter()
                chunk = task.advance(sofar.carry, sofar.done, count, capacity)
                if not bool(chunk.finite):
                    status, message = Status.NONFINITE, _roll_back(task, sofar, count, capacity)
                    break
                sofar.add(chunk, count, task.save)
                took = time.perf_counter() - began
                sofar.seconds += took
                size = _next_size(size, count, took, most)
                bar.update(sofar.done, sofar.carry.state.theta)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
            message = f"interrupted after {sofar.done} of {until} steps; resume() goes on from there"
    return _result(task, sofar, status, message)


def _next_count(done: int, until: int, size: int, particles_every: int | None) -> int:
    count = min(size, until - done)
    if particles_every is not None:  # a chunk ends where a cloud is to be kept
        count = min(count, particles_every - done % particles_every)
    return count


def _next_size(size: int, count: int, seconds: float, most: int) -> int:
    """Grow towards CHUNK_SECONDS a chunk, at most fourfold at a time."""
    wanted = int(count * CHUNK_SECONDS / max(seconds, 1e-6))
    return max(1, min(wanted, 4 * size, most))


def _roll_back(task: _Task, sofar: _Sofar, count: int, capacity: int) -> str:
    """Go to the last step of a bad chunk after which all is finite; say what happened.

    Steps are functions of the key and their number, so the chunk can be run again up to any
    step: bisection finds the last good one.
    """
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        if bool(task.advance(sofar.carry, sofar.done, middle, capacity).finite):
            good = middle
        else:
            bad = middle
    if good:
        sofar.add(task.advance(sofar.carry, sofar.done, good, capacity), good, task.save)
    state = sofar.carry.state
    causes = tuning.broken_conditions(task.algorithm, task.model, state.theta, state.particles)
    advice = (
        f"{causes[0]}; lower it"
        if causes
        else "halve step_size, or look for a log or division by zero in smooth"
    )
    return (
        f"theta or a particle became non-finite at step {sofar.done + 1}; the state after step "
        f"{sofar.done} is kept. What to try: {advice}."
    )


def _result(task: _Task, sofar: _Sofar, status: Status, message: str) -> Result:
    state, moments = sofar.carry
    seen = moments is not None and float(moments.count) > 0
    leaves = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(sofar.carry))
    return Result(
        theta_trace=_joined(sofar.traces, state.theta),
        particles=state.particles,
        x_mean=moments.mean if seen and moments is not None else None,
        x_variance=moments.variance() if seen and moments is not None else None,
        saved_particles=_joined(sofar.clouds, None),
        status=status,
        message=message,
        num_steps=sofar.done,
        burn_in=task.burn_in,
        prox_gap=sofar.gap,
        seconds=sofar.seconds,
        compile_seconds=sofar.compile_seconds,
        algorithm=task.algorithm,
        versions=provenance(),
        snapshot=Snapshot(
            leaves=leaves,
            key_data=np.asarray(jax.random.key_data(task.key)),
            key_kind=str(jax.random.key_impl(task.key)),
            moments_every=task.save.moments_every,
            particles_every=task.save.particles_every,
        ),
    )


def _joined(pieces: list[PyTree], otherwise: PyTree) -> PyTree:
    """Pieces one after the other; with none, `otherwise` as a trace of a single row."""
    if not pieces:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], otherwise)
    return jax.tree.map(lambda *rows: np.concatenate(rows), *pieces)


# What `run`, `resume` and `sweep` check alike. #


def checked_start(
    model: Model, algorithm: Algorithm, theta: PyTree, particles: PyTree
) -> tuple[PyTree, PyTree]:
    """Theta and particles as float arrays of one dtype, or an error that names the argument."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a pipla.Model, got {type(model).__name__}.")
    if not isinstance(algorithm, Algorithm):
        hint = f"; call it: `{algorithm.__name__}()`" if callable(algorithm) else ""
        raise TypeError(
            f"algorithm must be one such as pipla.PIPGLA(), got {type(algorithm).__name__}{hint}."
        )
    theta = checks.floating("theta", theta)
    particles = checks.floating("particles", particles)
    if not jax.tree.leaves(theta):
        raise ValueError("theta is empty; give a float, an array or a pytree of them.")
    checks.cloud(particles)
    checks.finite("theta", theta)
    checks.finite("particles", particles)
    theta, particles = one_dtype((theta, particles))
    algorithm.check(theta, particles)
    model.check(theta, particles)
    return theta, particles


def one_dtype(tree: PyTree) -> PyTree:
    """`tree` with all leaves in their common dtype."""
    dtype = jnp.result_type(*jax.tree.leaves(tree))
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)


def checked_burn_in(burn_in: int | None, num_steps: int) -> int:
    """The burn-in, by default half of the steps."""
    if burn_in is None:
        return num_steps // 2
    burn_in = checks.whole("burn_in", burn_in, least=0)
    if burn_in >= num_steps:
        raise ValueError(
            f"burn_in must be smaller than num_steps = {num_steps}, got {burn_in}: nothing would "
            "be left to average."
        )
    return burn_in


def checked_save(save: Save | None) -> Save:
    """The save policy, by default theta's trace and the moments of x."""
    if save is not None and not isinstance(save, Save):
        raise TypeError(f"save must be a pipla.Save, got {type(save).__name__}.")
    return save or Save()


def as_dtype(algorithm: Algorithm, particles: PyTree) -> Algorithm:
    """The algorithm with its numbers in the dtype of the particles, so that nothing is promoted."""
    dtype = jax.tree.leaves(particles)[0].dtype
    floats, rest = eqx.partition(algorithm, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: leaf.astype(dtype), floats), rest)
