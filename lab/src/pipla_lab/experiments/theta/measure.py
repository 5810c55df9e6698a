"""One row: its replicates by `pipla.sweep`, their summary, and the series for the figures."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import IRPL, MetropolisAdjusted
from pipla.algorithms.base import Algorithm
from pipla.algorithms.wrappers.paired import Paired, extrapolated
from pipla.engine.save import Save
from pipla.engine.sweep import sweep
from pipla.fitting.fitter import STEP_SIZE
from pipla.fitting.verdict import order_of
from pipla.models.model import Model
from pipla.models.noncentred import noncentred
from pipla_lab.experiments.base import Outcome, six_digits
from pipla_lab.experiments.theta.rows import ThetaEntry, ThetaJob, ThetaRow

#: The number of individual runs that are kept for figures.
SAMPLES = 8
#: The option of a term of `pipla.prox` that an entry's `prox` stands for.
APPROXIMATION = {"approximate": "published", "iterative": "iterative", "exact": None, "none": None}


class Runs(NamedTuple):
    """Theta of every replicate after every step."""

    trace: np.ndarray  # replicates, steps
    seconds: float
    compile_seconds: float


def row(
    job: ThetaJob, entry: ThetaEntry, reference: float, progress: bool | None = None
) -> Outcome[ThetaRow]:
    """Run the replicates of a row and summarise them."""
    runs = replicate(job, entry, entry.steps(job.preset), progress)
    return summarise(job, entry, runs, reference)


def replicate(
    job: ThetaJob,
    entry: ThetaEntry,
    num_steps: int,
    progress: bool | None = None,
    most: int | None = None,
) -> Runs:
    """Run the replicates of a row, batch by batch; only the first `most` of them."""
    model, algorithm, begin, read = _setup(job, entry)
    total = min(job.preset.replicates, most or job.preset.replicates)
    key = _key(job, entry.id)
    count = entry.particles(job.preset)
    particles = jax.vmap(lambda key, theta: job.problem.particles(key, count, theta))
    pieces, seconds, compile_seconds = [], 0.0, 0.0
    for number, first in enumerate(range(0, total, job.preset.batch)):
        batch_key = jax.random.fold_in(key, number)
        start_key, run_key = jax.random.split(batch_key)
        theta = jnp.asarray(job.starts[first : min(first + job.preset.batch, total)])
        theta = theta.astype(jnp.result_type(float))
        keys = jax.random.split(start_key, len(theta))
        theta, start = begin(theta, particles(keys, theta))
        result = sweep(
            model,
            algorithm,
            theta=theta,
            particles=start,
            num_steps=num_steps,
            key=run_key,
            num_replicates=len(theta),
            start_per_replicate=True,
            save=Save(moments_every=None),
            progress=progress,
        )
        if result.interrupted:
            raise KeyboardInterrupt
        trace = jax.tree.map(lambda leaf: np.asarray(leaf[0], np.float64), result.theta_trace)
        pieces.append(read(trace))
        seconds += result.seconds
        compile_seconds += result.compile_seconds
    return Runs(np.concatenate(pieces), seconds, compile_seconds)


def summarise(job: ThetaJob, entry: ThetaEntry, runs: Runs, reference: float) -> Outcome[ThetaRow]:
    """Summarise a row. Replicates that did not stay finite are counted and left out."""
    preset, truth = job.preset, job.problem.truth
    steps = runs.trace.shape[1]
    share = entry.average_share or preset.average_last / preset.num_steps
    window = max(round(share * steps), 1)
    finite = np.isfinite(runs.trace).all(axis=1)
    trace = runs.trace[finite]
    average, last = trace[:, -window:].mean(axis=1), trace[:, -1]
    numbers = entry.make().numbers() if entry.make else {}
    nmse_last = _nmse(last, truth)
    nmse_average = _nmse(average, truth)
    row = ThetaRow(
        **entry.names(),
        step_size=six_digits(numbers.get("step_size")),
        smoothing=six_digits(numbers.get("smoothing")),
        num_particles=entry.particles(preset),
        num_steps=steps,
        replicates=len(runs.trace),
        finite=float(finite.mean()),
        theta_mean=_mean(average),
        theta_sd=_sd(average),
        theta_last_mean=_mean(last),
        theta_last_sd=_sd(last),
        theta_variance=_mean(trace[:, -window:].var(axis=0, ddof=1)) if len(trace) > 1 else None,
        bias=_mean(average - reference),
        distance_to_reference=_rms(average - reference),
        distance_last=_rms(last - reference),
        nmse_last=_mean(nmse_last),
        nmse_last_sd=_sd(nmse_last),
        nmse_average=_mean(nmse_average),
        nmse_average_sd=_sd(nmse_average),
        evaluations=float(entry.evaluations(preset, steps)),
        seconds=runs.seconds,
        compile_seconds=runs.compile_seconds,
        paper=dict(entry.paper),
    )
    return Outcome(row, _series(job, entry, trace, reference, share))


def _series(
    job: ThetaJob, entry: ThetaEntry, trace: np.ndarray, reference: float, share: float
) -> dict[str, np.ndarray]:
    """Curves at about 300 of the steps, on a logarithmic grid joined with a linear one."""
    steps = trace.shape[1]
    wanted = np.concatenate([np.geomspace(1, steps, 200), np.linspace(1, steps, 150)])
    at = np.unique(np.round(wanted).astype(np.int64))
    kept = trace[:, at - 1]
    # The estimate after n steps is the average over the last share of them.
    total = np.concatenate([np.zeros((len(trace), 1)), np.cumsum(trace, axis=1)], axis=1)
    window = np.maximum(np.round(share * at).astype(np.int64), 1)
    estimate = (total[:, at] - total[:, at - window]) / window
    curves = {
        "steps": at,
        "evaluations": entry.evaluations(job.preset, at),
        "sample": kept[:SAMPLES],
        "mean": kept.mean(axis=0) if len(kept) else np.full(len(at), np.nan),
        "rms": np.sqrt(((kept - reference) ** 2).mean(axis=0)) if len(kept) else kept.sum(axis=0),
        "estimate_rms": np.sqrt(((estimate - reference) ** 2).mean(axis=0))
        if len(kept)
        else kept.sum(axis=0),
        "last": trace[:, -1],
    }
    if job.problem.truth:
        curves["nmse"] = 100 * ((kept / job.problem.truth - 1) ** 2)
        curves["nmse"] = curves["nmse"].mean(axis=0) if len(kept) else kept.sum(axis=0)
    return curves


def find_reference(job: ThetaJob, progress: bool | None = None) -> dict[str, Any]:
    """The maximiser: exact where it is known, otherwise by Metropolis-adjusted particles."""
    if job.problem.maximiser is not None:
        return {"theta": job.problem.maximiser, "stderr": 0.0, "method": "exact", "seconds": 0.0}
    preset = job.preset
    count = preset.reference_replicates
    plain = noncentred(job.problem.model)
    start_key, run_key = jax.random.split(_key(job, "reference"))
    theta = jnp.asarray(job.reference_start, jnp.result_type(float))
    particles = job.problem.particles(start_key, preset.num_particles, theta)
    if job.positive:  # around 0 and inside the box; outside, no proposal is accepted
        particles = jnp.clip(particles - theta, -0.9 * theta, 0.9 * theta)
    result = sweep(
        plain.model,
        MetropolisAdjusted(),
        theta=theta,
        particles=plain.start(theta, particles),
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
    each = np.abs(each) if job.positive else each
    return {
        "theta": float(each.mean()),
        "stderr": float(each.std(ddof=1) / np.sqrt(count)),
        "method": f"Metropolis-adjusted particles: {count} runs of {preset.reference_steps} steps, "
        "without the first third; the error is the standard error of the mean over runs",
        "seconds": result.seconds,
    }


class _Setup(NamedTuple):
    model: Model
    algorithm: Algorithm
    begin: Callable[[Any, Any], tuple[Any, Any]]
    read: Callable[[Any], np.ndarray]


def _setup(job: ThetaJob, entry: ThetaEntry) -> _Setup:
    """The model, the algorithm, the map of the starts, and the map of theta's trace."""
    model = job.problem.model
    if entry.make is not None:
        term = model.nonsmooth
        if hasattr(term, "approximation"):
            choice: Any = {"approximation": APPROXIMATION[entry.prox]}
            term = dataclasses.replace(term, **choice)
        plain = Model(model.smooth, term, model.data, metric=model.metric)
        if entry.model is not None:
            plain = entry.model(plain)
        return _Setup(plain, entry.make(), lambda theta, particles: (theta, particles), np.asarray)

    def begin(theta: Any, particles: Any) -> tuple[Any, Any]:
        if job.positive:
            theta = jnp.where(theta == 0, 0.5, jnp.abs(theta))
        return theta, particles

    order = order_of(model)
    return _Setup(model, Paired(IRPL(STEP_SIZE)), begin, lambda both: extrapolated(both, order))


def _key(job: ThetaJob, name: str) -> Any:
    """A key that depends on the seed and the name only, not on the other rows of the run."""
    return jax.random.fold_in(jax.random.key(job.seed), zlib.crc32(name.encode()))


def _nmse(theta: np.ndarray, truth: float | None) -> np.ndarray:
    """The paper's error measure in %; empty where the generating theta is 0 or unknown."""
    return 100 * (theta / truth - 1) ** 2 if truth else np.zeros(0)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _sd(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _rms(values: np.ndarray) -> float | None:
    return float(np.sqrt((values**2).mean())) if len(values) else None
