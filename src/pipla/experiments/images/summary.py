"""The numbers of a row of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipla.experiments.base import Outcome, Task
from pipla.experiments.images.restorers import Restored
from pipla.experiments.images.rows import PictureEntry
from pipla.imaging.metrics import mse, psnr, ssim
from pipla.problems.image_deblurring import Deblurring

#: A strength is right within this part of the reference; a posterior mean within so many decibels.
STRENGTH_BAND = 0.02
PSNR_BAND = 0.05


def summarise(
    task: Task,
    entry: PictureEntry,
    problems: Sequence[Deblurring],
    found: Sequence[Restored],
    reference: dict[str, Any],
) -> Outcome:
    """Means over the replicates; curves and pictures of the first one."""
    preset, first = task.preset, found[0]
    steps = len(first.trace) if first.trace is not None else 0
    each: dict[str, list[Any]] = {
        "strength": [None if r.theta is None else float(np.exp(r.theta)) for r in found],
        "psnr": [psnr(r.mean, p.truth) for r, p in zip(found, problems, strict=True)],
        "ssim": [ssim(r.mean, p.truth) for r, p in zip(found, problems, strict=True)],
        "mse": [mse(r.mean, p.truth) for r, p in zip(found, problems, strict=True)],
        "map_psnr": [_of(psnr, r.best, p) for r, p in zip(found, problems, strict=True)],
        "map_ssim": [_of(ssim, r.best, p) for r, p in zip(found, problems, strict=True)],
        "seconds": [r.seconds for r in found],
    }
    theta = [r.theta for r in found if r.theta is not None]
    evaluations = float(entry.evaluations(preset, steps)) if steps else None
    row = {
        "algorithm": entry.algorithm,
        "prox": entry.prox,
        "variant": entry.variant,
        "id": entry.id,
        "label": entry.label,
        "detail": entry.detail,
        "step_size": first.step_size,
        "smoothing": first.smoothing,
        "num_particles": entry.particles(preset) if steps else None,
        "num_steps": steps or None,
        "replicates": len(found),
        "finite": float(np.mean([r.finite for r in found])),
        "theta_mean": float(np.mean(theta)) if theta else None,
        "theta_sd": float(np.std(theta, ddof=1)) if len(theta) > 1 else None,
        "theta_trace_sd": _trace_sd(first.trace),
        "nmse_last": None,  # no theta generated a photograph
        "nmse_average": None,
        "bias": float(np.mean(theta)) - reference["theta"] if theta else None,
        "distance_to_reference": _distance(theta, reference["theta"]),
        "evaluations": evaluations,
        "compile_seconds": sum(r.compile_seconds for r in found),
        "cloud_mse": first.cloud_mse,
        "deviation": None if first.deviation is None else float(first.deviation.mean()),
        "each": each,
        "paper": dict(entry.paper),
        "note": entry.note,
        **{name: _mean(values) for name, values in each.items()},
        **_pace(entry, preset, first, reference),
    }
    return Outcome(row, _series(first, problems[0]))


def within(curve: np.ndarray, steps: np.ndarray) -> int | None:
    """The first of `steps` from which on `curve` (of booleans) holds for as many steps again."""
    for place in np.flatnonzero(curve):
        if curve[(steps >= steps[place]) & (steps <= 2 * steps[place])].all():
            return int(steps[place])
    return None


def _pace(
    entry: PictureEntry, preset: Any, found: Restored, reference: dict[str, Any]
) -> dict[str, float | None]:
    """What it took until the strength, and the posterior mean, were right."""
    pace: dict[str, float | None] = {}
    for name in ("strength", "psnr"):
        step = None
        if name == "strength" and found.trace is not None:
            near = np.abs(np.expm1(found.trace - reference["theta"])) <= STRENGTH_BAND
            step = within(near, np.arange(1, len(near) + 1))
        elif name == "psnr" and found.curves is not None:
            near = found.curves["psnr"] >= reference["psnr"] - PSNR_BAND
            step = within(near, found.curves["steps"])
        total = 0 if found.trace is None else len(found.trace)
        pace[f"evaluations_to_{name}"] = (
            None if step is None else float(entry.evaluations(preset, step))
        )
        # The steps of the curves, not those of `seconds`, which may hold the MAP, too.
        clock = None if found.curves is None else found.curves["seconds"][-1] / total
        pace[f"seconds_to_{name}"] = None if step is None or clock is None else float(clock * step)
    return pace


def _series(found: Restored, problem: Deblurring) -> dict[str, np.ndarray]:
    """Curves; pictures as bytes, which is how they are shown."""
    pictures = {
        "truth": problem.truth,
        "observed": problem.observed,
        "mean": found.mean,
        "best": found.best,
    }
    series = {
        name: np.clip(np.round(picture), 0, 255).astype(np.uint8)
        for name, picture in pictures.items()
        if picture is not None
    }
    if found.deviation is not None:
        series["deviation"] = found.deviation.astype(np.float16)
    if found.trace is not None:
        at = np.unique(np.round(np.geomspace(1, len(found.trace), 400)).astype(int))
        series |= {"trace_steps": at, "trace": found.trace[at - 1]}
    return series | {f"look_{name}": curve for name, curve in (found.curves or {}).items()}


def _of(measure: Any, picture: np.ndarray | None, problem: Deblurring) -> float | None:
    return None if picture is None else measure(picture, problem.truth)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _distance(theta: Sequence[float], reference: float) -> float | None:
    if not theta:
        return None
    return float(np.sqrt(np.mean((np.asarray(theta) - reference) ** 2)))


def _trace_sd(trace: np.ndarray | None) -> float | None:
    """How much theta still moves at the end."""
    return None if trace is None else float(trace[len(trace) // 2 :].std())
