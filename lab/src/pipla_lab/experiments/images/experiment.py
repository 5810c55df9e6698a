"""Experiments about restored images: the quality that each row reaches, and its cost."""

from __future__ import annotations

import dataclasses
import functools
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import RPL
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.imaging.metrics import psnr
from pipla.imaging.restoration import restore
from pipla.report import Cell, Section, Table, Text, fixed
from pipla_lab.data import Deblurring, deblurring
from pipla_lab.data.image_deblurring import Protocol
from pipla_lab.experiments.base import Experiment, Outcome, mean_sd
from pipla_lab.experiments.images.restorers import Budget
from pipla_lab.experiments.images.rows import ImageEntry, ImagePreset, ImageRow, summarise
from pipla_lab.experiments.images.tables import SETTING, image_table, reference_sentence
from pipla_lab.experiments.published import published_problem
from pipla_lab.experiments.results import Results

#: The protocol by which each image is blurred.
PROTOCOLS: dict[str, Protocol] = {"guitar": "paper", "boat": "bsnr30", "camera": "bsnr30"}
#: The larger of the two step sizes from which the reference is extrapolated, and the first step
#: size of both runs.
REFERENCE_STEP = 0.02
FIRST_STEP = 0.3
#: Steps of the trial run from which the duration is estimated.
TRIAL_STEPS = 10


class Images:
    """The blurred images of a run, each made when it is first used.

    Arguments:
        names: which images there are.
        crop: the size of the crops of camera and boat; `None` for whole images.
        seed: the seed of the noise.
    """

    def __init__(self, names: Sequence[str], crop: int | None, seed: int) -> None:
        self.names, self.crop, self.seed = tuple(names), crop, seed
        self.problem = functools.lru_cache(maxsize=4)(self._problem)

    def _problem(self, image: str, replicate: int = 0, iterations: int = 5) -> Deblurring:
        """A blurred image. Each replicate has its own noise."""
        return deblurring(
            image,
            protocol=PROTOCOLS[image],
            crop=None if image == "guitar" else self.crop,
            seed=self.seed + replicate,
            iterations=iterations,
        )


class ImageJob(NamedTuple):
    """What all rows of one run share."""

    images: Images
    preset: ImagePreset
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageExperiment(Experiment[ImageEntry, ImagePreset, ImageJob, ImageRow]):
    """Rows are ways to restore an image. The reference is the strength that maximises the marginal
    likelihood: exact flow at two small step sizes, extrapolated to 0.

    Attributes:
        images: the names of the images with (`True`) and without (`False`) `$PIPLA_DATA`.
    """

    row_type: ClassVar[type[ImageRow]] = ImageRow

    images: Callable[[bool], Sequence[str]]

    def available(self, preset: ImagePreset) -> Sequence[ImageEntry]:
        return [entry for entry in self.entries if entry.image in self._names()]

    def expected(self, results: Results[ImageRow]) -> Sequence[ImageEntry]:
        return [entry for entry in self.entries if entry.image in results.reference["images"]]

    def unavailable(self) -> str:
        return (
            f"The images are {' and '.join(self._names())}: guitar and boat are read from the "
            "folder in PIPLA_DATA, camera comes with scikit-image."
        )

    def prepare(self, preset: ImagePreset, seed: int) -> tuple[ImageJob, dict[str, Any]]:
        names = self._names()
        return ImageJob(Images(names, preset.crop, seed), preset, seed), {
            "data": f"images: {', '.join(names)}",
            "from_folder": bool(os.environ.get("PIPLA_DATA")),
            "float64": jnp.result_type(float) == jnp.float64,
        }

    def estimate(
        self, job: ImageJob, entries: Sequence[ImageEntry], results: Results[ImageRow]
    ) -> float:
        """From a few steps of the recommended rule, by evaluations and pixels."""
        names = {entry.image for entry in entries}
        sizes = {name: job.images.problem(name).truth.size for name in names}
        trial = job.images.problem(entries[0].image)
        found = restore(
            trial.observed, trial.operator, noise=trial.noise, num_steps=TRIAL_STEPS, maximise=False
        ).result
        one = found.seconds / (2 * TRIAL_STEPS * trial.truth.size)
        wanted = sum(
            entry.replicates(job.preset)
            * entry.evaluations(entry.steps(job.preset))
            * sizes[entry.image]
            for entry in entries
        )
        if not results.reference:
            runs = job.preset.reference_replicates * 3 * job.preset.reference_steps
            wanted += 2 * runs * sum(sizes.values())
        return one * wanted + found.compile_seconds * len(entries)

    def reference(self, job: ImageJob, progress: bool | None) -> dict[str, Any]:
        """One reference per image; `theta` and `stderr` are those of the first image."""
        each = {name: _reference(job, name, progress) for name in job.images.names}
        first = next(iter(each.values()))
        return {
            "theta": first["theta"],
            "stderr": first["stderr"],
            "method": f"reflected-prox Langevin at steps {REFERENCE_STEP:g} and "
            f"{REFERENCE_STEP / 2:g}, {job.preset.reference_replicates} runs each, extrapolated "
            "to 0; the error is the Monte-Carlo error combined with half of the extrapolation",
            "seconds": sum(found["seconds"] for found in each.values()),
            "images": each,
        }

    def row(
        self, job: ImageJob, entry: ImageEntry, reference: dict[str, Any], progress: bool | None
    ) -> Outcome[ImageRow]:
        problems, found = [], []
        for replicate in range(entry.replicates(job.preset)):
            problem = job.images.problem(entry.image, replicate)
            if entry.variant == "published":
                problem = published_problem(problem, job.preset.published_theta)
            budget = Budget(
                entry.num_particles,
                entry.steps(job.preset),
                # Depends on the seed and the row only, not on the other rows of the run.
                (job.seed + 1000 * replicate + zlib.crc32(entry.id.encode())) % 2**31,
                first=replicate == 0,
                progress=progress,
            )
            problems.append(problem)
            found.append(entry.restorer(problem, budget))
        return summarise(entry, problems, found, reference["images"][entry.image])

    def compare(self, results: Results[ImageRow]) -> None:
        """Nothing to do: each row is compared with the reference alone."""

    def sentence(self, row: ImageRow) -> str:
        strength = "" if row.strength is None else f"t = {row.strength:.4f}, "
        quality = "" if row.map_psnr is None else f", MAP {row.map_psnr:.2f} dB"
        return (
            f"{row.image}, {row.label}: {strength}{row.psnr:.2f} dB, SSIM "
            f"{row.ssim:.3f}{quality}, {row.seconds:.1f} s"
        )

    def reference_sentence(self, reference: dict[str, Any]) -> str:
        return reference_sentence(reference)

    def setting(self, results: Results[ImageRow]) -> list[str]:
        settings = results.settings
        crop = settings["crop"]
        size = f", camera and boat cropped to {crop}×{crop}" if crop else ", whole"
        published = any(entry.variant == "published" for entry in self.entries)
        where = f" Published rows start at theta = {settings['published_theta']:g}."
        return [
            f"Data: {settings['data']}{size}. Preset {results.preset}, seed {results.seed}, "
            f"{'float64' if settings['float64'] else 'float32'}; noise realisations: "
            f"{settings['replicates']}, and {settings['slow_replicates']} for rows of thousands of "
            f"steps.{where if published else ''}",
            f"{reference_sentence(results.reference)} ({results.reference['method']}).",
        ]

    def tables(self, results: Results[ImageRow]) -> list[Section]:
        return [Section("Restorations", [Text(SETTING), image_table(results)])]

    def summary(self, results: Results[ImageRow]) -> Table:
        return image_table(results)

    def compared(self, row: ImageRow) -> dict[str, Cell | None]:
        return {
            "theta": mean_sd(row.theta_mean, row.theta_sd, 3),
            "PSNR": fixed(row.psnr, 2),
            "distance": fixed(row.distance_to_reference, 4),
            "seconds": fixed(row.seconds, 1),
        }

    def _names(self) -> Sequence[str]:
        return self.images(bool(os.environ.get("PIPLA_DATA")))


def _reference(job: ImageJob, name: str, progress: bool | None) -> dict[str, Any]:
    """The strength without bias, its error, and the PSNR of the posterior mean."""
    problem = job.images.problem(name, iterations=10)
    found: list[list[Result]] = []
    for share in (1, 2):
        steps, step = share * job.preset.reference_steps, REFERENCE_STEP / share
        found.append([])
        for replicate in range(job.preset.reference_replicates):
            result = run(
                problem.model,
                RPL(step, first=FIRST_STEP / step),
                theta=jnp.asarray(problem.theta, jnp.result_type(float)),
                particles=problem.particles(jax.random.key(0), 2),
                num_steps=steps,
                burn_in=steps // 3,
                key=jax.random.key(job.seed + 10 * replicate + share),
                save=Save(moments_every=1),
                progress=progress,
            )
            if result.status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            found[-1].append(result)
    (large, error_large), (small, error_small) = (_mean_theta(results) for results in found)
    shift = small - large
    theta = small + shift
    stderr = float(np.sqrt(error_large**2 + (2 * error_small) ** 2 + (shift / 2) ** 2))
    return {
        "theta": theta,
        "stderr": stderr,
        "strength": float(np.exp(theta)),
        "strength_mcse": float(np.exp(theta)) * stderr,
        "psnr": psnr(np.mean([r.x_mean for r in found[1]], axis=0), problem.truth),
        "thetas": [large, small],
        "seconds": sum(result.seconds for results in found for result in results),
    }


def _mean_theta(results: Sequence[Result]) -> tuple[float, float]:
    """The mean over runs and its standard error: between runs or within runs, the larger one.

    Two runs may agree by chance.
    """
    thetas = [float(result.theta) for result in results]
    within = float(np.sqrt(np.sum([float(r.theta_mcse) ** 2 for r in results]))) / len(results)
    between = float(np.std(thetas, ddof=1) / np.sqrt(len(thetas))) if len(thetas) > 1 else 0.0
    return float(np.mean(thetas)), max(within, between)
