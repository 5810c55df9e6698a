"""The one host loop: chunk after chunk, for one run or for many, with callbacks in between."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh
from jaxtyping import PyTree

from pipla._decompositions import one_at_a_time
from pipla.engine.batches import BatchMeans
from pipla.engine.chunk import (
    Carry,
    Chunk,
    Program,
    Window,
    advance,
    by_size,
    capacity_for,
    observed,
)
from pipla.engine.devices import advance_over, blas_threads
from pipla.engine.doubts import RunawayWatch
from pipla.engine.hooks import Callback, Hook, View
from pipla.engine.result import Status
from pipla.engine.save import Save

#: Seconds a chunk should take: short enough for a lively bar and a prompt Ctrl-C.
CHUNK_SECONDS = 0.25
#: A chunk takes at least this many times what one of no steps takes: the fixed cost of a chunk
#: (fetching the memory of many particles) should not matter.
CHUNK_OVERHEADS = 15


#: The process that imported this file, and the one in which the first run began.
_imported = os.getpid()
_first_run: int | None = None


class History(NamedTuple):
    """What a run has made so far. It is replaced as a whole, so that Ctrl-C never finds a half."""

    carry: Carry
    step: int = 0
    traces: tuple[PyTree, ...] = ()
    saved_particles: tuple[PyTree, ...] = ()
    prox_gap: np.ndarray = np.zeros(())
    #: For each lane the last step after which all was finite; -1 while it still is.
    last_finite: np.ndarray = np.full((), -1)
    seconds: float = 0.0
    compile_seconds: float = 0.0
    batches: BatchMeans = BatchMeans()  # of the large parts of theta

    @property
    def alive(self) -> np.ndarray:
        """Which lanes are still finite."""
        return self.last_finite < 0


class Outcome(NamedTuple):
    """How a run ended."""

    history: History
    status: Status
    message: str


class Driver(NamedTuple):
    """A program with what the host must know of it.

    Attributes:
        program: what is compiled.
        save: what is kept.
        burn_in: the steps before the first moments.
        grid: the axes of a sweep, settings and replicates; `()` for a run.
        mesh: the devices that share the lanes; `None` for one.
    """

    program: Program
    save: Save
    burn_in: int
    grid: tuple[int, ...] = ()
    mesh: Mesh | None = None

    def drive(
        self,
        history: History,
        until: int,
        callbacks: Sequence[Callback],
        chunk_size: int | None = None,
    ) -> Outcome:
        """Chunk after chunk until step `until`, an interruption or a non-finite value."""
        note_first_run()
        # The buffer does not depend on chunk_size, so that another one compiles nothing.
        traced, _ = by_size(history.carry.state.theta, len(self.program.lanes))
        capacity = most = capacity_for(traced)
        if chunk_size is not None:
            most = min(capacity, chunk_size)
        # A step may take seconds, and somebody waits for the first sign of life.
        size, reason = 1 if chunk_size is None else min(16, most), None
        watch = RunawayWatch(self.program)
        hooks = [callback for callback in callbacks if isinstance(callback, Hook)]
        try:
            for hook in hooks:
                hook.begin(self._name, until)
            began = time.perf_counter()
            nothing = (history.carry, self.window(history, 0), capacity)
            steps = self.advance
            turn = one_at_a_time(_traced(steps, *nothing))
            jax.block_until_ready(steps(*nothing))  # compiles
            compiled = time.perf_counter()
            jax.block_until_ready(self.advance(*nothing))  # what a chunk costs
            enough = max(CHUNK_SECONDS, CHUNK_OVERHEADS * (time.perf_counter() - compiled))
            spent = time.perf_counter() - began
            history = history._replace(compile_seconds=history.compile_seconds + spent)
            while history.step < until and np.any(history.alive) and reason is None:
                count = self._next_count(history, until, size, hooks)
                began = time.perf_counter()
                with self._lapack_threads(history), turn:
                    chunk = self.advance(history.carry, self.window(history, count), capacity)
                    jax.block_until_ready(chunk)
                if np.any(history.alive & ~np.asarray(chunk.finite)):
                    with turn:
                        history = _rolled_back(self, history, chunk, count, capacity)
                else:
                    history = self._after(history, chunk, count)
                took = time.perf_counter() - began
                history = history._replace(seconds=history.seconds + took)
                # Grow from the last chunk of `count` steps, at most fourfold at a time.
                size = max(1, min(int(count * enough / max(took, 1e-6)), 4 * size, most))
                watch.look(history.carry, history.prox_gap, history.step)
                reason = self._call(callbacks, history, until)
        except KeyboardInterrupt:
            message = f"interrupted after {history.step} of {until} steps; resume() continues there"
            return Outcome(history, Status.INTERRUPTED, message)
        finally:
            for hook in hooks:
                hook.end()
        if not np.any(history.alive):
            return Outcome(history, Status.NONFINITE, "")
        if reason is not None:
            message = f"stopped by a callback after {history.step} of {until} steps: {reason}"
            return Outcome(history, Status.STOPPED, message)
        return Outcome(history, Status.COMPLETED, f"completed {until} steps")

    def window(self, history: History, count: int) -> Window:
        """The next `count` steps."""
        return Window.of(history.step, count, self.burn_in, self.save.moments_every)

    @property
    def advance(self) -> Callable[[Carry, Window, int], Chunk]:
        """The compiled chunk. It changes nothing: the same steps may be repeated."""
        if self.mesh is None:
            return advance.kept(self.program)
        return functools.partial(advance_over.kept(self.program), self.mesh)

    def _lapack_threads(self, history: History) -> contextlib.AbstractContextManager[None]:
        """Where a particle is a matrix, the term may take its SVD, and LAPACK has its own pool."""
        leaves = jax.tree.leaves(history.carry.state.particles)
        if all(leaf.ndim - len(self.program.lanes) < 3 for leaf in leaves):
            return contextlib.nullcontext()
        return blas_threads(history.carry.state.particles)

    @property
    def _name(self) -> str:
        label = self.program.algorithm.label
        return f"{label} × {self.program.lanes[0]}" if self.program.lanes else label

    def _next_count(self, history: History, until: int, size: int, hooks: Sequence[Hook]) -> int:
        """The length of the next chunk, which ends where something is due."""
        step, batch = history.step, history.carry.batch
        ends = [until, step + size, *(hook.next_step(step) for hook in hooks)]
        if batch is not None:
            ends.append(max(step, self.burn_in) + history.batches.room(batch))
        if self.save.particles_every is not None:
            ends.append(step - step % self.save.particles_every + self.save.particles_every)
        return max(1, min(end for end in ends if end is not None) - step)

    def _after(self, history: History, chunk: Chunk, count: int) -> History:
        """The history with a chunk added."""
        step, saved = history.step + count, history.saved_particles
        if self.save.particles_every is not None and step % self.save.particles_every == 0:
            now = chunk.carry.state.particles
            if self.program.quantity is not None:
                now = observed(self.program, chunk.carry)
            saved = (*saved, jax.tree.map(lambda leaf: np.asarray(leaf)[None], now))
        carry, alive = chunk.carry, history.alive
        if not np.all(alive):  # lost lanes stay where they were
            carry = _take_lanes(~alive, history.carry, carry)
        batches = history.batches
        if carry.batch is not None and not batches.room(carry.batch):
            batches = batches.extended(carry.batch)
            carry = carry._replace(batch=carry.batch.emptied())
        gap = np.maximum(history.prox_gap, np.asarray(chunk.prox_gap))
        # Copied: a view of a few rows would keep the buffer for all that a chunk may have.
        trace = jax.tree.map(lambda rows: np.array(np.asarray(rows)[:count]), chunk.trace)
        return history._replace(
            carry=carry,
            step=step,
            traces=(*history.traces, trace),
            saved_particles=saved,
            batches=batches,
            prox_gap=np.where(alive, gap, history.prox_gap),
        )

    def _call(self, callbacks: Sequence[Callback], history: History, until: int) -> str | None:
        """The reason to stop that a callback gave, if one did."""
        if not callbacks:
            return None
        view = View(
            self.program,
            history.carry,
            history.traces,
            history.step,
            until,
            self.burn_in,
            history.seconds,
            history.prox_gap,
            self.grid,
        )
        reasons = [(callback, callback(view)) for callback in callbacks]
        for callback, answer in reasons:
            if answer:
                name = getattr(callback, "__name__", type(callback).__name__)
                return answer if isinstance(answer, str) else name
        return None


def _traced(chunk: Any, *arguments: Any) -> ClosedJaxpr:
    """The program of `Driver.advance` before it is compiled; it is not traced again for that."""
    return chunk.func.trace(*chunk.args, *arguments).jaxpr


def _rolled_back(
    driver: Driver, history: History, chunk: Chunk, count: int, capacity: int
) -> History:
    """Each lane that became non-finite in a chunk goes back to its last finite state.

    Steps are functions of the key and their number, so the chunk can be run again up to any step:
    bisection finds the last good one. A single run ends there. In a sweep the other lanes
    continue; what the lost ones compute from here on is not kept.
    """

    def steps(count: int) -> Chunk:
        chunk = driver.advance(history.carry, driver.window(history, count), capacity)
        return jax.block_until_ready(chunk)

    lost = np.atleast_1d(history.alive & ~np.asarray(chunk.finite))
    good, bad = np.zeros(lost.shape, int), np.where(lost, count, 0)
    while np.max(bad - good) > 1:
        widest = np.argmax(bad - good)
        middle = int(good[widest] + bad[widest]) // 2
        finite = np.atleast_1d(np.asarray(steps(middle).finite))
        inside = (good < middle) & (middle < bad)
        good, bad = np.where(inside & finite, middle, good), np.where(inside & ~finite, middle, bad)
    if not driver.program.lanes:
        kept = int(good[0])
        if kept:
            history = driver._after(history, steps(kept), kept)
        return history._replace(last_finite=np.asarray(history.step))
    carry = chunk.carry
    for kept in np.unique(good[lost]):
        there = steps(int(kept)).carry
        carry = _take_lanes(lost & (good == kept), there, carry)
    last = np.where(lost, history.step + good, history.last_finite)
    return driver._after(history, chunk._replace(carry=carry), count)._replace(last_finite=last)


def _take_lanes(which: np.ndarray, there: PyTree, here: PyTree) -> PyTree:
    """These lanes from `there`, the others from `here`."""

    def leaf(a: Any, b: Any) -> Any:
        return jax.numpy.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, there, here)


# JAX works with threads, and `os.fork` copies the memory of a process but not its threads: in the
# child the first computation waits for ever. (`multiprocessing` forks by default on Linux before
# Python 3.14.) #


def note_first_run() -> None:
    """Remember the process in which the first run began. Called when a run begins."""
    global _first_run
    if _first_run is None:
        _first_run = os.getpid()


def check_surroundings() -> None:
    """Raise an error where no run can begin: after a fork, or while JAX traces a program."""
    refuse_after_fork()
    if isinstance(jax.numpy.zeros(()), jax.core.Tracer):
        raise TypeError(
            "a run is a loop of compiled programs on the host, and cannot itself be traced: call "
            "pipla outside of jax.jit, jax.eval_shape, jax.lax.scan and their like. "
            "pipla.sweep runs many settings in one program."
        )


def refuse_after_fork() -> None:
    """Raise an error in a process that was forked from one that had used JAX."""
    here = os.getpid()
    if _first_run == here or (_first_run is None and _imported == here):
        return
    if _first_run is not None or _jax_was_inherited():
        raise RuntimeError(
            "this process was forked from one that had already used JAX, and JAX would hang in "
            "it. Start processes with multiprocessing.get_context('spawn'), or fork before the "
            "first use of JAX. Threads work, and pipla.sweep runs many settings in one process."
        )


def _jax_was_inherited() -> bool:
    """Whether JAX has started, but none of its threads are in this (forked) process."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: False)()
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:  # not Linux: better a run that may hang than a refusal without reason
        return False
    return started and threads <= threading.active_count()
