"""Replicates and grids: many runs of one model as one vmapped program, compiled once."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import _checks, tuning
from pipla.algorithms.base import Algorithm
from pipla.engine.chunk import Chunk, Place, capacity_for, start
from pipla.engine.devices import advance_lanes, mesh_for, spread
from pipla.engine.diagnostics import monte_carlo_error
from pipla.engine.hooks import Progress
from pipla.engine.prepare import (
    as_dtype,
    checked_burn_in,
    checked_progress,
    checked_save,
    checked_start,
    one_dtype,
)
from pipla.engine.save import Save
from pipla.models.model import Model


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """What a sweep returns; leading axes of everything: settings, replicates.

    Attributes:
        theta, theta_stderr: averages after burn-in and their Monte-Carlo errors.
        theta_trace: axes: settings, replicates, steps, theta.
        particles: the last clouds.
        x_mean, x_variance: moments after burn-in; `None` when not saved.
        finite: which runs stayed finite. The others hold NaN from some step on.
        keys: replicate r alone is `run(..., key=keys[r])`.
        seconds, compile_seconds: wall time of all the steps, and of compiling.
    """

    theta_trace: PyTree
    particles: PyTree
    x_mean: PyTree
    x_variance: PyTree
    finite: np.ndarray
    keys: Key[Array, " replicates"]
    num_steps: int
    burn_in: int
    seconds: float
    compile_seconds: float
    interrupted: bool

    @property
    def theta(self) -> PyTree:
        """Averages of theta after burn-in."""
        return jax.tree.map(
            lambda t: t[:, :, self.burn_in :].mean(axis=2, dtype=np.float64), self.theta_trace
        )

    @property
    def theta_stderr(self) -> PyTree:
        """Their Monte-Carlo standard errors, each within its own run."""
        return jax.tree.map(
            lambda t: monte_carlo_error(np.moveaxis(t[:, :, self.burn_in :], 2, 0)),
            self.theta_trace,
        )

    @property
    def theta_last(self) -> PyTree:
        """Theta after the last step."""
        return jax.tree.map(lambda t: t[:, :, -1], self.theta_trace)


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
    progress: bool | None = None,
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

    When JAX has several devices that divide the number of runs, the runs are spread over them.
    """
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    burn_in = checked_burn_in(burn_in, num_steps)
    num_replicates = _checks.integer("num_replicates", num_replicates, least=1)
    _checks.random_key("key", key)
    save = checked_save(save)
    checked_progress(progress)
    if save.particles_every is not None:
        raise ValueError("save: a sweep keeps no clouds; leave particles_every at None.")
    given = algorithms if isinstance(algorithms, list | tuple) else [algorithms]
    settings: list[Any] = [setting for each in given for setting in _settings(each)]
    if not settings:
        raise ValueError("algorithms is empty; give at least one algorithm.")
    thetas, clouds = _starts(theta, particles, num_replicates, start_per_replicate)
    first = jax.tree.map(lambda leaf: leaf[0], (thetas, clouds))
    for algorithm in settings:
        checked_start(model, algorithm, *first)
    save.check(*first)
    stacked = _stack([as_dtype(tuning.complete(a, model, *first), clouds) for a in settings])
    keys = jax.vmap(lambda r: jax.random.fold_in(key, r))(jnp.arange(num_replicates))

    # Lanes: replicates run fastest, settings slowest.
    shape = (1 if pair else len(settings), num_replicates)
    lanes = shape[0] * shape[1]
    if pair and len(settings) != num_replicates:
        raise ValueError(
            f"algorithms: pair=True needs one for each of the {num_replicates} replicates, got "
            f"{len(settings)}."
        )
    repeats = 1 if pair else num_replicates
    lane_algorithms = _map_arrays(lambda leaf: jnp.repeat(leaf, repeats, axis=0), stacked)
    lane_keys, thetas, clouds = (
        jax.tree.map(lambda leaf: jnp.concatenate([leaf] * shape[0]), tree)
        for tree in (keys, thetas, clouds)
    )
    carry = eqx.filter_vmap(lambda a, t, x: start(a, model, t, x, save.program()))(
        lane_algorithms, thetas, clouds
    )
    mesh = mesh_for(lanes)
    lane_algorithms, lane_keys, carry = spread((lane_algorithms, lane_keys, carry), mesh)

    capacity = capacity_for(first[0], lanes)
    pieces, done, seconds, interrupted = [], 0, 0.0, False
    name = f"{getattr(settings[0], 'name', '') or type(settings[0]).__name__} × {lanes}"

    def steps(count: int) -> Chunk:
        place = Place.at(done, count, burn_in, save)
        return jax.block_until_ready(
            advance_lanes(
                lane_algorithms, model, save.program(), lane_keys, carry, place, capacity, mesh
            )
        )

    with Progress(name, num_steps, progress) as bar:
        began = time.perf_counter()
        chunk = steps(0)  # no step: compiles
        compile_seconds = time.perf_counter() - began
        try:
            while done < num_steps:
                began = time.perf_counter()
                count = min(capacity, num_steps - done)
                chunk = steps(count)
                pieces.append(jax.tree.map(lambda t, n=count: np.asarray(t)[:n], chunk.trace))
                carry, done = chunk.carry, done + count
                seconds += time.perf_counter() - began
                bar.update(done, jax.tree.map(lambda t: t[0], carry.state.theta))
        except KeyboardInterrupt:
            interrupted = True
            if not pieces:
                raise

    def grid(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*shape, *leaf.shape[1:]), tree)

    trace = jax.tree.map(lambda *rows: np.moveaxis(np.concatenate(rows), 0, 1), *pieces)
    moments = carry.moments
    seen = moments is not None and done > burn_in
    return SweepResult(
        theta_trace=grid(trace),
        particles=grid(carry.state.particles),
        x_mean=grid(moments.mean) if seen else None,
        x_variance=grid(jax.vmap(lambda m: m.variance())(moments)) if seen else None,
        finite=grid(chunk.finite),
        keys=keys,
        num_steps=done,
        burn_in=min(burn_in, done - 1),
        seconds=seconds,
        compile_seconds=compile_seconds,
        interrupted=interrupted,
    )


def _settings(algorithm: Any) -> list[Any]:
    """One algorithm for each number of its `step_size` and `smoothing`, if these are arrays."""
    scheme = getattr(algorithm, "scheme_itself", None)
    values = {name: getattr(scheme, name, None) for name in ("step_size", "smoothing")}
    arrays: dict[str, Any] = {
        name: value for name, value in values.items() if value is not None and jnp.ndim(value) == 1
    }
    lengths = {name: len(value) for name, value in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"step_size and smoothing must have equally many numbers, got {lengths}.")
    count = next(iter(lengths.values()), None)
    if count is None:
        return [algorithm]
    return [
        algorithm.filled({name: value[i] for name, value in arrays.items()}) for i in range(count)
    ]


def _starts(
    theta: PyTree, particles: PyTree, num_replicates: int, per_replicate: bool
) -> tuple[PyTree, PyTree]:
    theta, particles = one_dtype(
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
