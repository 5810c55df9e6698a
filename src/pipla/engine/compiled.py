"""Compiled chunks of steps of an algorithm on a model, for one run or for many, as a sampler."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh
from jaxtyping import PyTree

from pipla._decompositions import one_at_a_time
from pipla.algorithms.base import Info
from pipla.engine.batches import BatchMeans
from pipla.engine.chunk import (
    Carry,
    Chunk,
    Program,
    Window,
    advance,
    by_size,
    capacity_for,
    next_info,
    observed,
)
from pipla.engine.devices import advance_over, blas_threads
from pipla.engine.doubts import RunawayWatch
from pipla.engine.driver import Started, note_first_run
from pipla.engine.hooks import View
from pipla.engine.save import Save


class History(NamedTuple):
    """What a run has made so far."""

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


class CompiledChunks(NamedTuple):
    """A program with what the host must know of it.

    Attributes:
        program: what is compiled.
        save: what is kept.
        burn_in: the steps before the first moments.
        num_steps: the steps that there will be, with those of the history.
        grid: the axes of a sweep, settings and replicates; `()` for a run.
        mesh: the devices that share the lanes; `None` for one.
    """

    program: Program
    save: Save
    burn_in: int
    num_steps: int
    grid: tuple[int, ...] = ()
    mesh: Mesh | None = None

    # What the driver asks for. #

    @property
    def name(self) -> str:
        """A word for the progress bar."""
        label = self.program.algorithm.label
        return f"{label} × {self.program.lanes[0]}" if self.program.lanes else label

    @property
    def unit(self) -> str:
        """What is counted."""
        return "steps"

    def start(self, history: History) -> Started[History]:
        """Compile what must be compiled."""
        note_first_run()
        # The buffer does not depend on the size of chunks, so that another one compiles nothing.
        traced, _ = by_size(history.carry.state.theta, len(self.program.lanes))
        capacity, watch = capacity_for(traced), RunawayWatch(self.program)
        nothing = (history.carry, self.window(history, 0), capacity)
        steps = self.advance
        turn = one_at_a_time(_traced(steps, *nothing))
        jax.block_until_ready(steps(*nothing))  # compiles
        compiled = time.perf_counter()
        jax.block_until_ready(self.advance(*nothing))  # what a chunk costs
        overhead = time.perf_counter() - compiled

        def more(history: History, count: int) -> History:
            with self._lapack_threads(history), turn:
                chunk = self.advance(history.carry, self.window(history, count), capacity)
                jax.block_until_ready(chunk)
            if np.any(history.alive & ~np.asarray(chunk.finite)):
                with turn:
                    return _rolled_back(self, history, chunk, count, capacity)
            return self._after(history, chunk, count)

        def look(history: History) -> None:
            watch.look(history.carry, history.prox_gap, history.step)

        return Started(more, look, capacity, overhead)

    def goal(self, history: History) -> int:
        """The steps that there will be, as far as is known."""
        return self.num_steps

    def ends(self, history: History) -> list[int]:
        """Steps beyond which the next piece must not go."""
        step, batch, ends = history.step, history.carry.batch, []
        if batch is not None:
            ends.append(max(step, self.burn_in) + history.batches.room(batch))
        if self.save.particles_every is not None:
            ends.append(step - step % self.save.particles_every + self.save.particles_every)
        return ends

    def is_finite(self, history: History) -> bool:
        """Whether all is well, so that another piece can follow."""
        return bool(np.any(history.alive))

    def has_answer(self, history: History) -> bool:
        """Every state is one."""
        return True

    def view(self, history: History) -> View:
        """What callbacks see."""
        return _View(self, history)

    # The chunks. #

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


class _View(View):
    """A view of a run or a sweep, whose arrays come to the host when they are asked for."""

    def __init__(self, chunks: CompiledChunks, history: History) -> None:
        gap = float(np.max(history.prox_gap))
        done = (history.step, chunks.num_steps, chunks.burn_in, history.seconds)
        super().__init__(*done, gap, chunks.grid)
        self._program, self._carry, self._traces = chunks.program, history.carry, history.traces

    @functools.cached_property
    def theta(self) -> PyTree:
        return self._program.model.fixed.complete_theta(self._on_grid(self._carry.state.theta))

    @functools.cached_property
    def particles(self) -> PyTree:
        return self._program.model.fixed.complete_x(self._on_grid(self._carry.state.particles))

    @functools.cached_property
    def x_mean(self) -> PyTree:
        moments = self._moments()
        if moments is None:
            return None
        return self._program.model.fixed.complete_x(self._on_grid(moments.mean))

    @functools.cached_property
    def x_variance(self) -> PyTree:
        moments = self._moments()
        if moments is None:
            return None
        variance = jax.vmap(type(moments).variance)(moments) if self.grid else moments.variance()
        return self._on_grid(variance)

    @functools.cached_property
    def theta_trace(self) -> PyTree:
        trace = jax.tree.map(lambda *rows: np.concatenate(rows), *self._traces)
        if not self.grid:
            return trace
        return jax.tree.map(lambda t: t.reshape(len(t), *self.grid, *t.shape[2:]), trace)

    @functools.cached_property
    def info(self) -> Info:
        return next_info(self._program, self._carry, jnp.asarray(self.step, jnp.int32))

    def _moments(self) -> Any:
        moments = self._carry.moments
        seen = moments is not None and float(np.max(moments.seen)) > 0
        return moments if seen else None

    def _on_grid(self, tree: PyTree) -> PyTree:
        arrays = jax.tree.map(np.asarray, tree)
        if not self.grid:
            return arrays
        return jax.tree.map(lambda leaf: leaf.reshape(*self.grid, *leaf.shape[1:]), arrays)


def _traced(chunk: Any, *arguments: Any) -> ClosedJaxpr:
    """The program of a chunk before it is compiled; it is not traced again for that."""
    return chunk.func.trace(*chunk.args, *arguments).jaxpr


def _rolled_back(
    chunks: CompiledChunks, history: History, chunk: Chunk, count: int, capacity: int
) -> History:
    """Each lane that became non-finite in a chunk goes back to its last finite state.

    Steps are functions of the key and their number, so the chunk can be run again up to any step:
    bisection finds the last good one. A single run ends there. In a sweep the other lanes
    continue; what the lost ones compute from here on is not kept.
    """

    def steps(count: int) -> Chunk:
        chunk = chunks.advance(history.carry, chunks.window(history, count), capacity)
        return jax.block_until_ready(chunk)

    lost = np.atleast_1d(history.alive & ~np.asarray(chunk.finite))
    good, bad = np.zeros(lost.shape, int), np.where(lost, count, 0)
    while np.max(bad - good) > 1:
        widest = np.argmax(bad - good)
        middle = int(good[widest] + bad[widest]) // 2
        finite = np.atleast_1d(np.asarray(steps(middle).finite))
        inside = (good < middle) & (middle < bad)
        good, bad = np.where(inside & finite, middle, good), np.where(inside & ~finite, middle, bad)
    if not chunks.program.lanes:
        kept = int(good[0])
        if kept:
            history = chunks._after(history, steps(kept), kept)
        return history._replace(last_finite=np.asarray(history.step))
    carry = chunk.carry
    for kept in np.unique(good[lost]):
        there = steps(int(kept)).carry
        carry = _take_lanes(lost & (good == kept), there, carry)
    last = np.where(lost, history.step + good, history.last_finite)
    return chunks._after(history, chunk._replace(carry=carry), count)._replace(last_finite=last)


def _take_lanes(which: np.ndarray, there: PyTree, here: PyTree) -> PyTree:
    """These lanes from `there`, the others from `here`."""

    def leaf(a: Any, b: Any) -> Any:
        return jax.numpy.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, there, here)
