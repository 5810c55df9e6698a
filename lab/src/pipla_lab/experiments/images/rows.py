"""Row and preset types of image experiments, and the summary of a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from pipla.imaging.metrics import mse, psnr, ssim
from pipla_lab.data import Deblurring
from pipla_lab.experiments.base import Entry, Outcome, Preset
from pipla_lab.experiments.images.restorers import Restored, Restorer
from pipla_lab.experiments.results import Row

#: A number of steps, or an array of such numbers.
Steps = TypeVar("Steps", float, np.ndarray)
#: The strength has converged within this relative distance of the reference, the posterior mean
#: within this many decibels.
STRENGTH_BAND = 0.02
PSNR_BAND = 0.05


@dataclasses.dataclass(frozen=True)
class ImagePreset(Preset):
    """How much is run.

    Attributes:
        replicates: the number of noise realisations.
        num_steps: the steps of rows with small step sizes.
        slow_replicates: noise realisations for rows that take thousands of steps.
        guitar_steps: `num_steps` for the guitar, whose noise is so small that it needs more.
        published_steps, published_theta: steps of the published rows, and where theta starts. The
            paper draws the start from [-15, 10]; its figure of the guitar has -10.5, from where
            theta takes a thousand steps of .01 to arrive.
        crop: the size of the square that is cut from the middle of camera and boat; `None` for
            the whole images. The guitar is never cropped.
        reference_steps: steps of the reference at its larger step size; twice as many at the
            smaller one.
        reference_replicates: runs of the reference at each step size.
    """

    num_steps: int
    slow_replicates: int = 1
    guitar_steps: int = 3000
    published_steps: int = 3000
    published_theta: float = -10.5
    crop: int | None = None
    reference_steps: int = 600
    reference_replicates: int = 2


@dataclasses.dataclass(frozen=True)
class ImageEntry(Entry):
    """One way to restore one image, which is the entry's `detail`.

    Attributes:
        restorer: the method.
        num_particles: N.
        gradients: evaluations of the likelihood's gradient or flow per particle and step.
        fixed_steps: the number of steps, where it is not the preset's; 0 for methods without steps.
    """

    restorer: Restorer
    _: dataclasses.KW_ONLY
    num_particles: int = 1
    gradients: float = 1.0
    fixed_steps: int | None = None

    @property
    def image(self) -> str:
        """The name of the image."""
        return self.detail

    @property
    def label(self) -> str:
        """A name for figures."""
        return f"{self.algorithm} ({self.variant})"

    def steps(self, preset: ImagePreset) -> int:
        """The number of steps."""
        if self.fixed_steps is not None:
            return self.fixed_steps
        if self.variant == "published":
            return preset.published_steps
        steps = preset.guitar_steps if self.image == "guitar" else preset.num_steps
        return max(round(steps / self.gradients), 1)

    def evaluations(self, steps: Steps) -> Steps:
        """Gradients or flows of the likelihood in `steps` steps, over all particles."""
        return steps * self.gradients * self.num_particles

    def replicates(self, preset: ImagePreset) -> int:
        """The number of noise realisations that the row is run with."""
        return preset.replicates if self.fixed_steps is not None else preset.slow_replicates


@dataclasses.dataclass(kw_only=True)
class ImageRow(Row):
    r"""The results of one row: the fields of `Row`, and those below. Means over noise realisations.

    Attributes:
        strength: the regularisation strength $t = e^\theta$; `None` for methods without one.
        psnr, ssim, mse: quality of the posterior mean, or of a peer's only image.
        map_psnr, map_ssim: quality of the MAP estimate, where there is one.
        particle_mse: the mean MSE of the particles at the end.
        std: the mean posterior standard deviation of a pixel.
        theta_trace_sd: the standard deviation of theta over the last half of the steps.
        evaluations_to_strength, seconds_to_strength: the cost until the strength has converged.
        evaluations_to_psnr, seconds_to_psnr: the cost until the posterior mean has converged.
        each: the values of each noise realisation.
    """

    strength: float | None
    psnr: float
    ssim: float
    mse: float
    map_psnr: float | None
    map_ssim: float | None
    particle_mse: float | None
    std: float | None
    theta_trace_sd: float | None
    evaluations_to_strength: float | None
    seconds_to_strength: float | None
    evaluations_to_psnr: float | None
    seconds_to_psnr: float | None
    each: dict[str, list[float | None]]

    @property
    def image(self) -> str:
        """The name of the image."""
        return self.detail


def summarise(
    entry: ImageEntry,
    problems: Sequence[Deblurring],
    found: Sequence[Restored],
    reference: dict[str, Any],
) -> Outcome[ImageRow]:
    """Means over the noise realisations; curves and images of the first one."""
    first = found[0]
    steps = len(first.trace) if first.trace is not None else 0
    pairs = list(zip(found, problems, strict=True))
    quality: dict[str, list[Any]] = {
        "psnr": [psnr(r.mean, p.truth) for r, p in pairs],
        "ssim": [ssim(r.mean, p.truth) for r, p in pairs],
        "mse": [mse(r.mean, p.truth) for r, p in pairs],
    }
    each: dict[str, list[float | None]] = {
        "strength": [None if r.theta is None else float(np.exp(r.theta)) for r in found],
        "map_psnr": [_quality(psnr, r.map, p) for r, p in pairs],
        "map_ssim": [_quality(ssim, r.map, p) for r, p in pairs],
        "seconds": [r.seconds for r in found],
        **quality,
    }
    theta = np.array([r.theta for r in found if r.theta is not None])
    strength_cost = _cost(entry, first, _strength_step(first, reference["theta"]))
    psnr_cost = _cost(entry, first, _psnr_step(first, reference["psnr"]))
    row = ImageRow(
        **entry.names(),
        step_size=first.step_size,
        smoothing=first.smoothing,
        num_particles=entry.num_particles if steps else None,
        num_steps=steps or None,
        replicates=len(found),
        finite=float(np.mean([r.finite for r in found])),
        theta_mean=float(theta.mean()) if len(theta) else None,
        theta_sd=float(theta.std(ddof=1)) if len(theta) > 1 else None,
        theta_trace_sd=None if first.trace is None else float(first.trace[steps // 2 :].std()),
        bias=float(theta.mean()) - reference["theta"] if len(theta) else None,
        distance_to_reference=_rms(theta - reference["theta"]),
        evaluations=float(entry.evaluations(steps)) if steps else None,
        seconds=float(np.mean([r.seconds for r in found])),
        compile_seconds=sum(r.compile_seconds for r in found),
        strength=_mean(each["strength"]),
        psnr=float(np.mean(quality["psnr"])),
        ssim=float(np.mean(quality["ssim"])),
        mse=float(np.mean(quality["mse"])),
        map_psnr=_mean(each["map_psnr"]),
        map_ssim=_mean(each["map_ssim"]),
        particle_mse=first.particle_mse,
        std=None if first.std is None else float(first.std.mean()),
        evaluations_to_strength=strength_cost[0],
        seconds_to_strength=strength_cost[1],
        evaluations_to_psnr=psnr_cost[0],
        seconds_to_psnr=psnr_cost[1],
        each=each,
    )
    return Outcome(row, _series(first, problems[0]))


def first_lasting(holds: np.ndarray, steps: np.ndarray) -> int | None:
    """The first of `steps` from which on `holds` is true for as many steps again."""
    for place in np.flatnonzero(holds):
        if holds[(steps >= steps[place]) & (steps <= 2 * steps[place])].all():
            return int(steps[place])
    return None


def _strength_step(found: Restored, theta: float) -> int | None:
    """The step from which on the strength is within `STRENGTH_BAND` of the reference."""
    if found.trace is None:
        return None
    near = np.abs(np.expm1(found.trace - theta)) <= STRENGTH_BAND
    return first_lasting(near, np.arange(1, len(near) + 1))


def _psnr_step(found: Restored, decibels: float) -> int | None:
    """The step from which on the posterior mean is within `PSNR_BAND` of the reference's PSNR."""
    if found.curves is None:
        return None
    return first_lasting(found.curves["psnr"] >= decibels - PSNR_BAND, found.curves["steps"])


def _cost(
    entry: ImageEntry, found: Restored, step: int | None
) -> tuple[float | None, float | None]:
    """Evaluations and seconds until a step."""
    if step is None:
        return None, None
    seconds = None
    if found.curves is not None and found.trace is not None:
        # The clock of the curves: `Restored.seconds` may include the MAP estimate.
        seconds = float(found.curves["seconds"][-1] / len(found.trace) * step)
    return float(entry.evaluations(step)), seconds


def _series(found: Restored, problem: Deblurring) -> dict[str, np.ndarray]:
    """Curves, and images as bytes, which is how they are shown."""
    images = {
        "truth": problem.truth,
        "observed": problem.observed,
        "mean": found.mean,
        "map": found.map,
    }
    series = {
        name: np.clip(np.round(image), 0, 255).astype(np.uint8)
        for name, image in images.items()
        if image is not None
    }
    if found.std is not None:
        series["std"] = found.std.astype(np.float16)
    if found.trace is not None:
        at = np.unique(np.round(np.geomspace(1, len(found.trace), 400)).astype(int))
        series |= {"trace_steps": at, "trace": found.trace[at - 1]}
    return series | {f"look_{name}": curve for name, curve in (found.curves or {}).items()}


def _quality(
    measure: Callable[[np.ndarray, np.ndarray], float],
    image: np.ndarray | None,
    problem: Deblurring,
) -> float | None:
    return None if image is None else measure(image, problem.truth)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _rms(values: np.ndarray) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) else None
