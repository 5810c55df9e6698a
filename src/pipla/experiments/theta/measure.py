"""One row: replicates by `pipla.sweep`, their summary, and the series that figures need."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import MetropolisAdjusted
from pipla.algorithms.base import Algorithm
from pipla.engine.save import Save
from pipla.engine.sweep import sweep
from pipla.experiments.base import APPROXIMATION, Entry, Outcome, Task
from pipla.models.model import Model
from pipla.models.noncentred import noncentred
from pipla.tuning.rule import recommended

#: Individual runs kept for figures.
SAMPLES = 8


class Runs(NamedTuple):
    """Theta of every replicate after every step."""

    trace: np.ndarray  # replicates, steps
    seconds: float
    compile_seconds: float


def row(task: Task, entry: Entry, reference: float, progress: bool | None = None) -> Outcome:
    """Run the replicates of a row and summarise them."""
    runs = replicate(task, entry, entry.steps(task.preset), progress)
    return summarise(task, entry, runs, reference)


def replicate(
    task: Task,
    entry: Entry,
    num_steps: int,
    progress: bool | None = None,
    most: int | None = None,
) -> Runs:
    """The replicates of a row, a batch at a time; at most `most` of them."""
    model, algorithm, begin, read = _setup(task, entry)
    total = min(task.preset.replicates, most or task.preset.replicates)
    key = _key(task, entry.id)
    thetas = _starts(task)
    count = entry.particles(task.preset)
    clouds = jax.vmap(lambda key, theta: task.problem.cloud(key, count, theta))
    pieces, seconds, compile_seconds = [], 0.0, 0.0
    for number, first in enumerate(range(0, total, task.preset.batch)):
        batch_key = jax.random.fold_in(key, number)
        start_key, run_key = jax.random.split(batch_key)
        theta = jnp.asarray(thetas[first : min(first + task.preset.batch, total)])
        theta = theta.astype(jnp.result_type(float))
        keys = jax.random.split(start_key, len(theta))
        theta, cloud = begin(theta, clouds(keys, theta))
        result = sweep(
            model,
            algorithm,
            theta=theta,
            particles=cloud,
            num_steps=num_steps,
            key=run_key,
            num_replicates=len(theta),
            start_per_replicate=True,
            save=Save(moments_every=None),
            progress=progress,
        )
        if result.interrupted:
            raise KeyboardInterrupt
        pieces.append(read(np.asarray(result.theta_trace[0], np.float64)))
        seconds += result.seconds
        compile_seconds += result.compile_seconds
    return Runs(np.concatenate(pieces), seconds, compile_seconds)


def summarise(task: Task, entry: Entry, runs: Runs, reference: float) -> Outcome:
    """The numbers of a row. Replicates that did not stay finite are left out, and counted."""
    preset, truth = task.preset, task.problem.truth
    steps = runs.trace.shape[1]
    share = entry.average_share or preset.average_last / preset.num_steps
    window = max(round(share * steps), 1)
    finite = np.isfinite(runs.trace).all(axis=1)
    trace = runs.trace[finite]
    average, last = trace[:, -window:].mean(axis=1), trace[:, -1]
    algorithm = entry.make() if entry.make else None
    numbers = {
        "algorithm": entry.algorithm,
        "prox": entry.prox,
        "variant": entry.variant,
        "id": entry.id,
        "label": entry.label,
        "detail": entry.detail,
        "step_size": _number(getattr(algorithm, "step_size", None)),
        "smoothing": _number(getattr(algorithm, "smoothing", None)),
        "num_particles": entry.particles(preset),
        "num_steps": steps,
        "replicates": len(runs.trace),
        "finite": float(finite.mean()),
        "theta_mean": _mean(average),
        "theta_sd": _sd(average),
        "theta_last_mean": _mean(last),
        "theta_last_sd": _sd(last),
        "theta_variance": _mean(trace[:, -window:].var(axis=0, ddof=1)) if len(trace) > 1 else None,
        "bias": _mean(average - reference),
        "distance_to_reference": _rms(average - reference),
        "distance_last": _rms(last - reference),
        "evaluations": float(entry.evaluations(preset, steps)),
        "seconds": runs.seconds,
        "compile_seconds": runs.compile_seconds,
        "paper": dict(entry.paper),
        "note": entry.note,
    }
    for name, theta in (("last", last), ("average", average)):
        nmse = None if not truth else 100 * (theta / truth - 1) ** 2
        numbers[f"nmse_{name}"] = None if nmse is None else _mean(nmse)
        numbers[f"nmse_{name}_sd"] = None if nmse is None else _sd(nmse)
    return Outcome(numbers, _series(task, entry, trace, reference, share))


def _series(
    task: Task, entry: Entry, trace: np.ndarray, reference: float, share: float
) -> dict[str, np.ndarray]:
    """Curves at some 300 of the steps: dense at first, then even."""
    steps = trace.shape[1]
    wanted = np.concatenate([np.geomspace(1, steps, 200), np.linspace(1, steps, 150)])
    at = np.unique(np.round(wanted).astype(np.int64))
    kept = trace[:, at - 1]
    # The estimate after n steps: the average over the last share of them.
    total = np.concatenate([np.zeros((len(trace), 1)), np.cumsum(trace, axis=1)], axis=1)
    window = np.maximum(np.round(share * at).astype(np.int64), 1)
    estimate = (total[:, at] - total[:, at - window]) / window
    curves = {
        "steps": at,
        "evaluations": entry.evaluations(task.preset, at),
        "sample": kept[:SAMPLES],
        "mean": kept.mean(axis=0) if len(kept) else np.full(len(at), np.nan),
        "rms": np.sqrt(((kept - reference) ** 2).mean(axis=0)) if len(kept) else kept.sum(axis=0),
        "estimate_rms": np.sqrt(((estimate - reference) ** 2).mean(axis=0))
        if len(kept)
        else kept.sum(axis=0),
        "last": trace[:, -1],
    }
    if task.problem.truth:
        curves["nmse"] = 100 * ((kept / task.problem.truth - 1) ** 2)
        curves["nmse"] = curves["nmse"].mean(axis=0) if len(kept) else kept.sum(axis=0)
    return curves


def find_reference(task: Task, progress: bool | None = None) -> dict[str, Any]:
    """The maximiser: exact where it is known, else by Metropolis-adjusted particles."""
    if task.problem.maximiser is not None:
        return {"theta": task.problem.maximiser, "stderr": 0.0, "method": "exact", "seconds": 0.0}
    preset = task.preset
    count = preset.reference_replicates
    model, back = noncentred(task.problem.model)
    start_key, run_key = jax.random.split(_key(task, "reference"))
    theta = jnp.asarray(task.experiment.reference_start, jnp.result_type(float))
    cloud = task.problem.cloud(start_key, preset.num_particles, theta)
    if task.experiment.positive:  # inside the box, or no proposal is ever accepted; and around 0
        cloud = jnp.clip(cloud - theta, -0.9 * theta, 0.9 * theta)
    result = sweep(
        model,
        MetropolisAdjusted(),
        theta=theta,
        particles=jax.vmap(back.inverse, in_axes=(None, 0))(theta, cloud),
        num_steps=preset.reference_steps,
        key=run_key,
        num_replicates=count,
        burn_in=preset.reference_steps // 3,
        save=Save(moments_every=None),
        progress=progress,
    )
    if result.interrupted:
        raise KeyboardInterrupt
    each = np.asarray(result.theta[0], np.float64)
    each = np.abs(each) if task.experiment.positive else each
    return {
        "theta": float(each.mean()),
        "stderr": float(each.std(ddof=1) / np.sqrt(count)),
        "method": f"Metropolis-adjusted particles: {count} runs of {preset.reference_steps} steps, "
        "the first third left out; the error is that of the mean over runs",
        "seconds": result.seconds,
    }


class _Setup(NamedTuple):
    model: Model
    algorithm: Algorithm
    begin: Callable[[Any, Any], tuple[Any, Any]]
    read: Callable[[np.ndarray], np.ndarray]


def _setup(task: Task, entry: Entry) -> _Setup:
    """Model, algorithm, how to start, and how to read theta."""
    model = task.problem.model
    if entry.make is not None:
        term = model.nonsmooth
        if hasattr(term, "approximation"):
            choice: Any = {"approximation": APPROXIMATION[entry.prox]}
            term = dataclasses.replace(term, **choice)
        plain = Model(model.smooth, term, model.data, metric=model.metric)
        return _Setup(plain, entry.make(), lambda theta, cloud: (theta, cloud), lambda t: t)
    rule = recommended(model)

    def begin(theta: Any, cloud: Any) -> tuple[Any, Any]:
        if task.experiment.positive:
            theta = jnp.where(theta == 0, 0.5, jnp.abs(theta))
        return theta, jax.vmap(rule.start)(theta, cloud)

    read = np.abs if task.experiment.positive else np.asarray
    return _Setup(rule.model, rule.algorithm, begin, read)


def _starts(task: Task) -> np.ndarray:
    """Theta of every replicate at the start: the same for all rows."""
    rng = np.random.default_rng([task.seed, 20250715])
    return np.asarray(task.experiment.starts(rng, task.preset.replicates), np.float64)


def _key(task: Task, name: str) -> Any:
    """A key that depends on the seed and the name only, not on which other rows are run."""
    return jax.random.fold_in(jax.random.key(task.seed), zlib.crc32(name.encode()))


def _number(value: Any) -> float | None:
    return None if value is None else float(f"{float(value):.6g}")


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _sd(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _rms(values: np.ndarray) -> float | None:
    return float(np.sqrt((values**2).mean())) if len(values) else None
