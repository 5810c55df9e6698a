"""Run an algorithm on a model, and resume a run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms.base import Algorithm, Curvature, checked_algorithm
from pipla.diagnostics import Finding, warn_of
from pipla.engine.batches import BatchMeans, LargeParts
from pipla.engine.chunk import Carry, Program, by_size, start
from pipla.engine.compiled import CompiledChunks, History
from pipla.engine.doubts import findings_of, outside
from pipla.engine.driver import Outcome, check_surroundings, drive
from pipla.engine.hooks import Callback, Progress
from pipla.engine.packing import numbers_of, with_scale_like, with_stored_numbers
from pipla.engine.result import (
    Result,
    Status,
    provenance,
    restored,
    snapshot_of,
    warn_of_other_model,
)
from pipla.engine.save import Save, observe
from pipla.models.model import Model, checked_point, without_fixed_leaves
from pipla.tuning.conditions import broken_conditions, warn_broken
from pipla.tuning.curvature import LocalGeometry


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
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    check: bool = True,
    chunk_size: int | None = None,
) -> Result:
    """Run `algorithm` on `model` for `num_steps` steps.

    Arguments:
        model: what to fit.
        algorithm: how, for example `pipla.PIPGLA(step_size=0.01)`. Numbers left out are chosen
            for this start, as by `pipla.tuning.suggest`.
        theta: where theta starts: any pytree of floats, modules included. In a module, arrays of
            floats are learned; its other leaves (functions, Python numbers, text) are carried
            along.
        particles: where the particles start, likewise; the leading axis of every array of floats
            counts them, and other leaves of modules have no such axis.
        num_steps: the number of steps.
        key: `jax.random.key(seed)`. Equal keys give equal runs, however they are chunked.
        burn_in: the number of steps left out of the averages; half of them by default.
        save: what to keep; see `pipla.Save`.
        callbacks: functions called between compiled chunks with a view of the run, which may stop
            it; see `pipla.hooks`.
        progress: show a progress bar; by default only on a terminal.
        check: warn when the settings break a condition of the theory (costs a power iteration).
        chunk_size: the most steps between two looks at the clock; never changes a number.

    Returns:
        A `Result`. Ctrl-C returns what there is, with `status` INTERRUPTED. A non-finite value
        ends the run with the last good state and `status` NONFINITE.
    """
    check_surroundings()
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    burn_in = checked_burn_in(burn_in, num_steps)
    _checks.random_key("key", key)
    save = checked_save(save)
    checked_chunk_size(chunk_size)
    callbacks = checked_callbacks(callbacks, progress)
    _checks.boolean("check", check)
    checked_algorithm(algorithm)
    _checks.resolution("particles", particles)
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    theta, particles = checked_point(model, theta, particles)
    algorithm.check(theta, particles)
    save = save.completed(model.fixed)
    save.check(theta, particles)
    check_support(algorithm, model, theta, particles)
    geometry = LocalGeometry(model, theta, particles)
    algorithm = as_dtype(algorithm.completed(geometry), particles)
    if check and not geometry.covers(algorithm):
        warn_broken(algorithm, geometry)
    program = Program(model, algorithm, key, save.quantity)
    carry = start(program, theta, particles, save.moments_every is not None)
    chunks = CompiledChunks(program, save, burn_in, num_steps)
    return _result(chunks, drive(chunks, History(carry), callbacks, chunk_size))


def resume(
    result: Result | str | Path,
    model: Model,
    *,
    num_steps: int,
    theta: PyTree = None,
    particles: PyTree = None,
    algorithm: Algorithm | None = None,
    save: Save | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    chunk_size: int | None = None,
) -> Result:
    """Resume a run for `num_steps` more steps, bit for bit as if it had never stopped.

    Arguments:
        result: a `Result`, or the folder it was saved in. A sweep is resumed by its own method
            `SweepResult.resume`.
        model: the model it was run on. Another one, with other data or numbers, is warned of.
        theta, particles: only needed when they were modules, or held functions, and the result
            comes from a file, which holds no code: those of the original run, of which only the
            structure and the leaves that are not learned are used.
        algorithm: only needed when it holds code (`theta_optimizer`), or is one of your own that
            is not registered (`pipla.algorithms.register`).
        save: only needed when it held code (`quantity`).
        callbacks, progress, chunk_size: as in `run`.
    """
    if not isinstance(result, Result | str | Path):
        raise TypeError(
            f"result must be a pipla.Result or the folder of one, got {type(result).__name__}."
        )
    check_surroundings()
    if not isinstance(result, Result):
        from pipla.engine.storage import load_result

        result = load_result(result)
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    algorithm = algorithm if algorithm is not None else result.algorithm
    if algorithm is None:
        raise ValueError(
            "algorithm is needed to resume this run: it holds code (an optimiser), or is an "
            "algorithm that is not registered, and result files hold no code."
        )
    checked_chunk_size(chunk_size)
    callbacks = checked_callbacks(callbacks, progress)
    snapshot = result.snapshot
    if save is None and snapshot.has_quantity:
        raise ValueError(
            "save is needed to resume this run: it held code (a quantity), and results hold none."
        )
    kept = Save(snapshot.moments_every, snapshot.particles_every)
    save = checked_save(kept if save is None else save)
    checked_algorithm(algorithm)
    last, present = algorithm.answer(result.theta_last), algorithm.answer(result.particles)
    theta = in_structure_of("theta", theta, last, result.modules)
    particles = in_structure_of("particles", particles, present, result.modules)
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    save = save.completed(model.fixed)
    stored = result.numbers if result.algorithm is None else numbers_of(result.algorithm)
    algorithm = with_scale_like(with_stored_numbers(algorithm, stored), theta)
    algorithm.completed(_OriginalRun())
    try:
        theta, particles = checked_point(model, theta, particles)
    except (TypeError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"model and result do not fit: {error}") from error
    algorithm.check(theta, particles)
    program = Program(model, as_dtype(algorithm, particles), snapshot.key(), save.quantity)
    blank = start(program, theta, particles, save.moments_every is not None)
    carry = restored(snapshot, blank)
    warn_of_other_model(snapshot, model)
    saved = result.saved_particles
    if saved is not None:
        kept = jax.eval_shape(
            lambda t, x: observe(save.quantity, t, x), carry.state.theta, carry.state.particles
        )
        saved = _trees.like("particles", kept, saved)
    history = History(
        carry,
        result.num_steps,
        traces=(_trees.like("theta", carry.state.theta, result.theta_trace),)
        if result.num_steps
        else (),
        saved_particles=() if saved is None else (saved,),
        prox_gap=np.asarray(result.prox_gap),
        seconds=result.seconds,
        compile_seconds=result.compile_seconds,
        batches=batches_of(result.large, carry),
    )
    until = result.num_steps + num_steps
    chunks = CompiledChunks(program, save, result.burn_in, until)
    return _result(chunks, drive(chunks, history, callbacks, chunk_size))


def in_structure_of(name: str, template: PyTree, found: PyTree, modules: dict[str, str]) -> PyTree:
    """Theta or particles of a result, in the structure and with the fixed leaves of `template`."""
    if template is None:
        if name in modules:
            raise ValueError(
                f"{name} is needed to resume this result: it held code ({modules[name]}), and "
                f"files hold none; give the {name} of the original run (its numbers are not used)."
            )
        return found
    _checks.leaves(name, template)
    learned, fixed = _trees.split(template)
    return _trees.combine(_trees.like(name, learned, found), fixed)


def batches_of(large: LargeParts | None, carry: Carry, lanes: int = 0) -> BatchMeans:
    """The batch means of a result that is resumed from this carry."""
    if large is None or carry.batch is None:
        return BatchMeans()
    return large.resumed(carry.batch.mean, lanes)


class _OriginalRun:
    """The geometry of a run that is resumed: its numbers were chosen, and are not chosen again."""

    def theta_scale(self) -> PyTree:
        raise ValueError(
            "algorithm must have the numbers of the original run (step_size, smoothing, "
            "theta_scale), but some were left out: give them, or `result.algorithm`."
        )

    def curvature(self, theta_scale: PyTree) -> Curvature:
        return self.theta_scale()

    def largest_smoothing(self) -> float:
        return self.theta_scale()


def _result(chunks: CompiledChunks, outcome: Outcome[History]) -> Result:
    history, status, message = outcome
    state, moments, batch = history.carry
    seen = moments if moments is not None and float(moments.seen) > 0 else None
    small, large = by_size(state.theta)
    trace = joined(history.traces, small)
    if status is Status.NONFINITE:
        message = _what_broke(chunks, history)
    program, gap = chunks.program, float(history.prox_gap)
    found: tuple[Finding, ...] = ()
    if status is not Status.NONFINITE:
        model, algorithm = program.model, program.algorithm
        answer = algorithm.answer
        found = findings_of(
            model,
            algorithm,
            answer(trace),
            chunks.burn_in,
            answer(state.theta),
            answer(state.particles),
            None if seen is None or program.quantity is not None else answer(seen.variance()),
            gap,
        )
    if found:
        message = "; ".join([message, *map(str, found)])
        status = Status.UNRELIABLE if status is Status.COMPLETED else status
        warn_of(found, stacklevel=4)
    fixed = program.model.fixed
    return Result(
        theta_trace=trace,
        particles=fixed.complete_x(state.particles),
        x_mean=None if seen is None else fixed.complete_x(seen.mean),
        x_variance=None if seen is None else seen.variance(),
        saved_particles=joined(history.saved_particles, None),
        status=status,
        message=message,
        num_steps=history.step,
        burn_in=chunks.burn_in,
        prox_gap=gap,
        seconds=history.seconds,
        compile_seconds=history.compile_seconds,
        algorithm=program.algorithm,
        versions=provenance(),
        snapshot=snapshot_of(history.carry, program.key, chunks.save, program.model),
        findings=found,
        large=None if batch is None else LargeParts.of(large, history.batches, batch),
        fixed=fixed.theta,
    )


def _what_broke(chunks: CompiledChunks, history: History) -> str:
    state = history.carry.state
    program = chunks.program
    answer = program.algorithm.answer
    causes = broken_conditions(
        program.algorithm, program.model, answer(state.theta), answer(state.particles), "there"
    )
    reason = f" {causes[0]}." if causes else ""
    return (
        f"theta or a particle became non-finite at step {history.step + 1}; the state after step "
        f"{history.step} is kept.{reason} What to try: halve step_size, or look for a log or a "
        "division by zero in smooth."
    )


def joined(pieces: Sequence[PyTree], otherwise: PyTree) -> PyTree:
    """Pieces one after the other; with none, `otherwise` as a trace of a single row."""
    if not pieces:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], otherwise)
    return jax.tree.map(lambda *rows: np.concatenate(rows), *pieces)


# What `run`, `resume` and `sweep` check alike. #


def check_support(algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree) -> None:
    """Refuse a start outside the support for algorithms that would never enter it."""
    count = outside(model, theta, particles) if algorithm.needs_support else 0
    if count:
        raise ValueError(
            f"particles: {count} of them start where the non-smooth term is infinite, and "
            f"{algorithm.label} would never accept a move from there; start inside the support, "
            "for example at `model.nonsmooth.prox(theta, x, None, 1.0)[1]`."
        )


def checked_burn_in(burn_in: int | None, num_steps: int) -> int:
    """The burn-in, by default half of the steps."""
    if burn_in is None:
        return num_steps // 2
    burn_in = _checks.integer("burn_in", burn_in, least=0)
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


def checked_chunk_size(chunk_size: int | None) -> None:
    """At least 1, or left out."""
    if chunk_size is not None:
        _checks.integer("chunk_size", chunk_size, least=1)


def checked_callbacks(callbacks: Any, progress: bool | None) -> list[Callback]:
    """The callbacks of a run, with a progress bar among them where one is wanted.

    `progress=None` shows it on a terminal, if rich is installed.
    """
    if progress is not None:
        _checks.boolean("progress", progress)
    if callable(callbacks) or isinstance(callbacks, str) or not isinstance(callbacks, Sequence):
        raise TypeError(
            f"callbacks must be a list of functions or hooks, got {type(callbacks).__name__}."
        )
    for callback in callbacks:
        if not callable(callback):
            raise TypeError(
                "callbacks must be functions of a view or hooks such as pipla.hooks.Evaluate, got "
                f"{type(callback).__name__}."
            )
    shown = progress
    if shown is None:
        shown = sys.stderr.isatty() and importlib.util.find_spec("rich") is not None
    return [*([Progress()] if shown else []), *callbacks]


def as_dtype(algorithm: Algorithm, particles: PyTree) -> Algorithm:
    """The algorithm with its numbers in the dtype of the particles, so that nothing is promoted."""
    dtype = jax.tree.leaves(particles)[0].dtype
    floats, rest = eqx.partition(algorithm, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: leaf.astype(dtype), floats), rest)
