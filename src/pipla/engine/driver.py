"""Drive a run: chunk after chunk, with a look at the clock, the bar and the numbers in between."""

from __future__ import annotations

import time
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import tuning
from pipla.algorithms.base import Algorithm
from pipla.engine.chunk import Carry, Chunk, Place, advance, capacity_for
from pipla.engine.diagnostics import still_moving
from pipla.engine.hooks import Progress
from pipla.engine.result import Result, Snapshot, Status, as_numbers, provenance
from pipla.engine.save import Save
from pipla.models.model import Model

#: Seconds a chunk should take: short enough for a lively bar and a prompt Ctrl-C.
CHUNK_SECONDS = 0.25
#: A chunk takes at least so many times what one of no steps takes: the memory of a large cloud is
#: fetched anew for every chunk.
CHUNK_OVERHEADS = 15


class Task(NamedTuple):
    """What stays the same throughout a run."""

    model: Model
    algorithm: Algorithm
    save: Save
    key: Key[Array, ""]
    burn_in: int

    def advance(self, carry: Carry, first: int, count: int, capacity: int) -> Chunk:
        """`count` steps from step number `first`."""
        place = Place.at(first, count, self.burn_in, self.save)
        save = self.save.program()
        chunk = advance(self.algorithm, self.model, save, self.key, carry, place, capacity)
        return jax.block_until_ready(chunk)


class SoFar:
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

    def add(self, chunk: Chunk, count: int, save: Save) -> None:
        """Take over the result of a chunk."""
        trace = jax.tree.map(lambda rows: np.asarray(rows)[:count], chunk.trace)
        gap, done = float(chunk.prox_gap), self.done + count
        if save.particles_every is not None and done % save.particles_every == 0:
            cloud = jax.tree.map(lambda leaf: np.asarray(leaf)[None], chunk.carry.state.particles)
            self.clouds.append(cloud)
        # All that takes time is done: Ctrl-C finds either none of the chunk here or all of it.
        self.traces.append(trace)
        self.carry, self.done, self.gap = chunk.carry, done, max(self.gap, gap)


def drive(
    task: Task, sofar: SoFar, until: int, progress: bool | None, chunk_size: int | None
) -> Result:
    """Chunk after chunk until the end, an interruption or a non-finite value."""
    # The buffer does not depend on chunk_size, so that another one compiles nothing.
    capacity = most = capacity_for(sofar.carry.state.theta)
    if chunk_size is not None:
        most = min(capacity, chunk_size)
    status, message = Status.COMPLETED, f"completed {until} steps"
    name = getattr(task.algorithm, "name", "") or type(task.algorithm).__name__
    size = min(16, most)
    with Progress(name, until, progress) as bar:
        try:
            began = time.perf_counter()
            task.advance(sofar.carry, sofar.done, 0, capacity)  # no step: compiles
            compiled = time.perf_counter()
            task.advance(sofar.carry, sofar.done, 0, capacity)  # no step: what a chunk costs
            enough = max(CHUNK_SECONDS, CHUNK_OVERHEADS * (time.perf_counter() - compiled))
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
                size = _next_size(size, count, enough / max(took, 1e-6), most)
                bar.update(sofar.done, sofar.carry.state.theta)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
            message = (
                f"interrupted after {sofar.done} of {until} steps; resume() goes on from there"
            )
    return _result(task, sofar, status, message)


def _next_count(done: int, until: int, size: int, particles_every: int | None) -> int:
    count = min(size, until - done)
    if particles_every is not None:  # a chunk ends where a cloud is to be kept
        count = min(count, particles_every - done % particles_every)
    return count


def _next_size(size: int, count: int, factor: float, most: int) -> int:
    """Grow from the last chunk of `count` steps by this factor, at most fourfold at a time."""
    return max(1, min(int(count * factor), 4 * size, most))


def _roll_back(task: Task, sofar: SoFar, count: int, capacity: int) -> str:
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
    causes = tuning.broken_conditions(
        task.algorithm, task.model, state.theta, state.particles, "there"
    )
    reason = f" {causes[0]}." if causes else ""
    return (
        f"theta or a particle became non-finite at step {sofar.done + 1}; the state after step "
        f"{sofar.done} is kept.{reason} What to try: halve step_size, or look for a log or a "
        "division by zero in smooth."
    )


def _result(task: Task, sofar: SoFar, status: Status, message: str) -> Result:
    state, moments = sofar.carry
    seen = moments is not None and float(moments.seen) > 0
    leaves = tuple(map(as_numbers, jax.tree.leaves(sofar.carry)))
    trace = _joined(sofar.traces, state.theta)
    if any(still_moving(leaf[task.burn_in :]) for leaf in jax.tree.leaves(trace)):
        message += (
            "; theta was still moving after burn-in, so that its average and error mean little: "
            "run longer, or look at theta_scale; a learned strength that runs away wants a smaller "
            "smoothing, or pipla.noncentred"
        )
    return Result(
        theta_trace=trace,
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
            has_quantity=task.save.quantity is not None,
        ),
    )


def _joined(pieces: list[PyTree], otherwise: PyTree) -> PyTree:
    """Pieces one after the other; with none, `otherwise` as a trace of a single row."""
    if not pieces:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], otherwise)
    return jax.tree.map(lambda *rows: np.concatenate(rows), *pieces)
