"""Replicates and grids: many runs of one model as one vmapped program, compiled once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pipla import _checks, _trees
from pipla._extras import extra
from pipla.algorithms.base import Algorithm, checked_algorithm
from pipla.diagnostics import monte_carlo_error
from pipla.engine.batches import LargeParts
from pipla.engine.chunk import Program, by_size, start
from pipla.engine.compiled import CompiledChunks, History
from pipla.engine.devices import mesh_for, place
from pipla.engine.driver import Outcome, check_surroundings, drive
from pipla.engine.hooks import Callback
from pipla.engine.packing import with_scale_like
from pipla.engine.result import Snapshot, Status, restored, snapshot_of, warn_of_other_model
from pipla.engine.run import (
    as_dtype,
    batches_of,
    check_support,
    checked_burn_in,
    checked_callbacks,
    checked_chunk_size,
    checked_save,
    in_structure_of,
    joined,
)
from pipla.engine.save import Moments, Save
from pipla.models.model import Model, checked_point, without_fixed_leaves
from pipla.tuning.curvature import LocalGeometry


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """What a sweep returns; leading axes of everything: settings, replicates.

    Attributes:
        theta, theta_mcse: averages after burn-in and their Monte-Carlo errors.
        theta_trace: axes: settings, replicates, steps, theta; `None` for large leaves of theta, as
            in `Result`.
        particles: the last particles.
        x_mean, x_variance: moments after burn-in; `None` when not saved.
        finite: which runs stayed finite. The trace of the others is NaN from some step on, and
            their particles and moments are those of their last finite step.
        last_finite: the number of that step; -1 for runs that stayed finite.
        prox_gap: the largest duality gap of an iterative prox in each run.
        keys: replicate r alone is `run(..., key=keys[r])`.
        seconds, compile_seconds: wall time of all the steps, and of compiling.
        status, message: how the sweep ended.
        algorithms: with a leading axis of runs in every number; `None` after loading one that
            holds code.
        snapshot: everything the next step needs, for `resume`.
        large, fixed, modules: as in `Result`.
    """

    theta_trace: PyTree
    particles: PyTree
    x_mean: PyTree
    x_variance: PyTree
    finite: Bool[np.ndarray, "settings replicates"]
    last_finite: Int[np.ndarray, "settings replicates"]
    prox_gap: Float[np.ndarray, "settings replicates"]
    keys: Key[Array, " replicates"]
    num_steps: int
    burn_in: int
    seconds: float
    compile_seconds: float
    status: Status
    message: str
    algorithms: Algorithm | None
    snapshot: Snapshot
    large: LargeParts | None = None
    fixed: PyTree = None
    modules: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.status is Status.INTERRUPTED

    @functools.cached_property
    def theta(self) -> PyTree:
        """Averages of theta after burn-in."""
        small = jax.tree.map(
            lambda t: t[:, :, self.burn_in :].mean(axis=2, dtype=np.float64), self.theta_trace
        )
        return _trees.combine(small, self._large("mean"), self.fixed)

    @functools.cached_property
    def theta_mcse(self) -> PyTree:
        """Their Monte-Carlo standard errors, each within its own run."""
        small = jax.tree.map(
            lambda t: monte_carlo_error(np.moveaxis(t[:, :, self.burn_in :], 2, 0)),
            self.theta_trace,
        )
        return _trees.combine(small, self._large("stderr"))

    @property
    def theta_last(self) -> PyTree:
        """Theta after the last step."""
        small = jax.tree.map(lambda t: t[:, :, -1], self.theta_trace)
        return _trees.combine(small, None if self.large is None else self.large.last, self.fixed)

    def _large(self, what: str) -> PyTree:
        """Mean or error of theta's large leaves; NaN in runs that did not stay finite."""
        numbers = None if self.large is None else getattr(self.large, what)(axis=2)

        def leaf(values: np.ndarray) -> np.ndarray:
            finite = np.expand_dims(self.finite, tuple(range(2, values.ndim)))
            return np.where(finite, values, np.nan)

        return jax.tree.map(leaf, numbers)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with one row per run: settings, theta and its error, how it ended.

        It has a column for each number that differs between the settings. Leaves of theta with
        more than a hundred numbers are left out.
        """
        from pipla.engine.tables import columns

        with extra("pandas", "a table of a sweep"):
            import pandas
        return pandas.DataFrame(columns(self))

    def save(self, path: str | Path) -> Path:
        """Write the result to a folder of its own, in one step; `pipla.load` reads it."""
        from pipla.engine.storage import save  # which needs to know what a result is

        return save(self, path)

    def __repr__(self) -> str:
        from pipla.engine.tables import table

        return "\n".join(table(self))

    def resume(
        self,
        model: Model,
        *,
        num_steps: int,
        theta: PyTree = None,
        particles: PyTree = None,
        save: Save | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> SweepResult:
        """Resume all runs for `num_steps` more steps, bit for bit as if they had never stopped.

        `save` is only needed when it held code (`quantity`); `theta` and `particles` when they
        held code (modules) and the sweep comes from a file, as in `pipla.resume`.
        """
        check_surroundings()
        num_steps = _checks.integer("num_steps", num_steps, least=1)
        callbacks = checked_callbacks(callbacks, progress)
        snapshot = self.snapshot
        if self.algorithms is None:
            raise ValueError(
                "this sweep cannot be resumed from its file: its algorithms hold code (an "
                "optimiser), or are not registered, and files hold no code."
            )
        if save is None and snapshot.has_quantity:
            raise ValueError("save is needed to resume this sweep: it held code (a quantity).")
        save = checked_save(Save(snapshot.moments_every) if save is None else save)
        grid = self.finite.shape
        theta = in_structure_of("theta", theta, self.theta_last, self.modules)
        particles = in_structure_of("particles", particles, self.particles, self.modules)
        model, theta, particles = without_fixed_leaves(model, theta, particles)
        save = save.completed(model.fixed)
        theta, particles = jax.tree.map(
            lambda leaf: jnp.asarray(leaf).reshape(-1, *leaf.shape[2:]), (theta, particles)
        )
        algorithms = with_scale_like(self.algorithms, theta)
        program = Program(model, algorithms, snapshot.key(), save.quantity)
        blank = start(program, theta, particles, save.moments_every is not None)
        carry = restored(snapshot, blank)
        warn_of_other_model(snapshot, model)
        trace = jax.tree.map(
            lambda t: np.moveaxis(t.reshape(-1, *t.shape[2:]), 1, 0),
            _trees.like("theta", theta, self.theta_trace),
        )
        history = History(
            carry,
            self.num_steps,
            traces=(trace,),
            prox_gap=self.prox_gap.ravel(),
            last_finite=self.last_finite.ravel(),
            seconds=self.seconds,
            compile_seconds=self.compile_seconds,
            batches=batches_of(self.large, carry, len(program.lanes)),
        )
        chunks = _chunks(program, save, self.burn_in, self.num_steps + num_steps, grid)
        history = history._replace(carry=place(history.carry, chunks.mesh))
        return _sweep_result(chunks, drive(chunks, history, callbacks), self.keys)


def sweep(
    model: Model,
    algorithms: Algorithm | Sequence[Algorithm],
    *,
    theta: PyTree,
    particles: PyTree,
    num_steps: int,
    key: Key[Array, ""],
    num_replicates: int = 1,
    start_per_replicate: bool = False,
    pair: bool = False,
    burn_in: int | None = None,
    save: Save | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    chunk_size: int | None = None,
) -> SweepResult:
    """Run a grid of settings times `num_replicates` seeds as one compiled, vmapped program.

    Arguments:
        algorithms: one algorithm, or several that differ in their numbers only:
            `[pipla.PIPGLA(step_size=s) for s in (0.01, 0.02)]`. One whose `step_size` or
            `smoothing` is an array of n numbers stands for n of them.
        theta, particles: one start for all; with `start_per_replicate=True` one more leading
            axis, of length `num_replicates`.
        pair: instead of the grid, run replicate r with `algorithms[r]` (one setting in the result).
        key: replicate r gets `fold_in(key, r)`, the same for every setting.
        (the rest as in `pipla.run`)

    When JAX has several devices that divide the number of runs, the runs are distributed over them.
    """
    check_surroundings()
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    burn_in = checked_burn_in(burn_in, num_steps)
    num_replicates = _checks.integer("num_replicates", num_replicates, least=1)
    _checks.random_key("key", key)
    for name, value in (("pair", pair), ("start_per_replicate", start_per_replicate)):
        _checks.boolean(name, value)
    save = checked_save(save)
    callbacks = checked_callbacks(callbacks, progress)
    checked_chunk_size(chunk_size)
    if save.particles_every is not None:
        raise ValueError("save: a sweep keeps no particles; leave particles_every at None.")
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    thetas, particles = _starts(theta, particles, num_replicates, start_per_replicate)
    first = _trees.first((thetas, particles))
    settings = _settings(algorithms, model, first, pair, num_replicates)
    save = save.completed(model.fixed)
    save.check(*first)
    geometry = LocalGeometry(model, *first)
    stacked = _stack([as_dtype(a.completed(geometry), particles) for a in settings])
    keys = jax.vmap(lambda r: jax.random.fold_in(key, r))(jnp.arange(num_replicates))

    # Lanes: replicates run fastest, settings slowest.
    grid = (1 if pair else len(settings), num_replicates)
    repeats = 1 if pair else num_replicates
    lane_algorithms = _map_arrays(lambda leaf: jnp.repeat(leaf, repeats, axis=0), stacked)
    lane_keys, thetas, particles = (
        jax.tree.map(lambda leaf: jnp.concatenate([leaf] * grid[0]), tree)
        for tree in (keys, thetas, particles)
    )
    program = Program(model, lane_algorithms, lane_keys, save.quantity)
    chunks = _chunks(program, save, burn_in, num_steps, grid)
    carry = start(program, thetas, particles, save.moments_every is not None)
    history = History(place(carry, chunks.mesh))
    outcome = drive(chunks, history, callbacks, chunk_size)
    if outcome.status is Status.INTERRUPTED and not outcome.history.traces:
        raise KeyboardInterrupt
    return _sweep_result(chunks, outcome, keys)


def _chunks(
    program: Program, save: Save, burn_in: int, num_steps: int, grid: tuple[int, ...]
) -> CompiledChunks:
    """Chunks of many lanes, which the devices share if they divide them evenly."""
    mesh = mesh_for(program.lanes)
    algorithm, key = place((program.algorithm, program.key), mesh)
    shared = Program(program.model, algorithm, key, program.quantity)
    return CompiledChunks(shared, save, burn_in, num_steps, grid, mesh)


def _sweep_result(
    chunks: CompiledChunks, outcome: Outcome[History], keys: Key[Array, " n"]
) -> SweepResult:
    history, status, message = outcome
    grid = chunks.grid

    def on_grid(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*grid, *leaf.shape[1:]), tree)

    state, moments, batch = history.carry
    seen = moments if history.step > chunks.burn_in else None
    last = np.broadcast_to(history.last_finite, chunks.program.lanes)
    trace = jax.tree.map(
        lambda t: _until_lost(np.moveaxis(t, 0, 1), last), joined(history.traces, None)
    )
    large = by_size(state.theta, 1)[1]
    fixed = chunks.program.model.fixed
    if status is Status.NONFINITE:
        message = f"no run stayed finite; the last one was lost at step {int(last.max()) + 1}"
    elif np.any(last >= 0):
        message += f"; {int(np.sum(last >= 0))} of {last.size} runs did not stay finite"
    return SweepResult(
        theta_trace=on_grid(trace),
        particles=fixed.complete_x(on_grid(state.particles)),
        x_mean=None if seen is None else fixed.complete_x(on_grid(seen.mean)),
        x_variance=None if seen is None else on_grid(jax.vmap(Moments.variance)(seen)),
        finite=on_grid(last < 0),
        last_finite=on_grid(last),
        prox_gap=on_grid(np.broadcast_to(history.prox_gap, last.shape)),
        keys=keys,
        num_steps=history.step,
        burn_in=min(chunks.burn_in, history.step - 1),
        seconds=history.seconds,
        compile_seconds=history.compile_seconds,
        status=status,
        message=message,
        algorithms=chunks.program.algorithm,
        snapshot=snapshot_of(history.carry, chunks.program.key, chunks.save, chunks.program.model),
        large=None if batch is None else LargeParts.of(large, history.batches, batch, grid),
        fixed=fixed.theta,
    )


def _until_lost(trace: np.ndarray, last: np.ndarray) -> np.ndarray:
    """NaN after the last finite step of each lane; axes: lanes, steps."""
    trace = np.array(trace)
    for lane in np.flatnonzero(last >= 0):
        trace[lane, last[lane] :] = np.nan
    return trace


def _settings(
    algorithms: Any, model: Model, start: tuple[PyTree, PyTree], pair: bool, num_replicates: int
) -> list[Algorithm]:
    """The algorithms of a sweep, one per setting, checked at the first start."""
    given = algorithms if isinstance(algorithms, list | tuple) else [algorithms]
    for algorithm in given:
        checked_algorithm(algorithm)
    settings = [setting for algorithm in given for setting in algorithm.settings()]
    if not settings:
        raise ValueError("algorithms is empty; give at least one algorithm.")
    checked_point(model, *start)
    for setting in settings:
        setting.check(*start)
        check_support(setting, model, *start)
    if pair and len(settings) != num_replicates:
        raise ValueError(
            f"algorithms: pair=True needs one for each of the {num_replicates} replicates, got "
            f"{len(settings)}."
        )
    return settings


def _starts(
    theta: PyTree, particles: PyTree, num_replicates: int, per_replicate: bool
) -> tuple[PyTree, PyTree]:
    theta, particles = _trees.one_dtype(
        (_checks.floating("theta", theta), _checks.floating("particles", particles))
    )
    for name, tree in (("theta", theta), ("particles", particles)):
        _checks.finite(name, tree)
        if per_replicate:
            for leaf in jax.tree.leaves(tree):
                if leaf.ndim == 0 or leaf.shape[0] != num_replicates:
                    raise ValueError(
                        f"{name} needs a leading axis of length num_replicates = {num_replicates} "
                        f"when start_per_replicate=True, got shape {leaf.shape}."
                    )
    if per_replicate:
        return theta, particles
    return jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf[None], (num_replicates, *leaf.shape)), (theta, particles)
    )


def _stack(settings: list[Algorithm]) -> Algorithm:
    """One algorithm whose numbers have a leading axis of settings."""
    arrays, statics = zip(*(eqx.partition(a, eqx.is_array) for a in settings), strict=True)
    shapes = [jax.tree.map(jnp.shape, each) for each in arrays]
    if any((s, a) != (statics[0], shapes[0]) for s, a in zip(statics, shapes, strict=True)):
        raise ValueError(
            "algorithms of one sweep may differ in their numbers only; run one sweep for each "
            "kind, set the same numbers in all of them, and give all the same theta_optimizer "
            "(one object: JAX cannot compare two)."
        )
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), statics[0])


def _map_arrays(function: Callable[..., Any], tree: PyTree) -> PyTree:
    arrays, static = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.tree.map(function, arrays), static)
