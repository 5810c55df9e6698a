"""Experiments in which pictures are what matters: how near each row came, and its cost."""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import RPL
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.experiments.base import Entry, Experiment, Method, Outcome, Task
from pipla.experiments.images.restorers import Amount
from pipla.experiments.images.rows import PROTOCOLS, PictureEntry, PicturePreset
from pipla.experiments.images.summary import summarise
from pipla.experiments.images.tables import SETTING, picture_table, reference_words
from pipla.experiments.published import published_problem
from pipla.experiments.results import Results
from pipla.imaging.metrics import psnr
from pipla.imaging.restoration import restore
from pipla.problems.image_deblurring import Deblurring, deblurring
from pipla.report.page import Section, Table, Text

#: The larger of the two step sizes from which the reference is extrapolated, and where both begin.
REFERENCE_STEP = 0.02
FIRST_STEP = 0.3
#: Steps of the trial from which the duration is estimated.
TRIAL_STEPS = 10


class Pictures:
    """The blurred pictures of a run, each made when it is asked for."""

    def __init__(self, crop: int | None, seed: int) -> None:
        self.crop, self.seed = crop, seed

    @functools.lru_cache(maxsize=4)  # noqa: B019 - lives as long as the run
    def problem(
        self, picture: str, replicate: int = 0, published: bool = False, iterations: int = 5
    ) -> Deblurring:
        """One of them; replicates have noises of their own."""
        problem = deblurring(
            picture,
            protocol=PROTOCOLS[picture],
            crop=None if picture == "guitar" else self.crop,
            seed=self.seed + replicate,
            iterations=iterations,
        )
        return published_problem(problem) if published else problem


class RestoredPictures(Method):
    """Rows are ways to restore a picture; the reference is the strength that maximises the marginal
    likelihood, by the exact flow at two small steps and extrapolation to none.
    """

    def available(self, experiment: Experiment, preset: PicturePreset) -> Sequence[Entry]:
        wanted = experiment.problem(bool(os.environ.get("PIPLA_DATA")))
        return [
            e for e in experiment.entries if isinstance(e, PictureEntry) and e.picture in wanted
        ]

    def expected(self, experiment: Experiment, results: Results) -> Sequence[Entry]:
        return [e for e in experiment.entries if e.detail in results.reference["pictures"]]

    def why_not(self, experiment: Experiment) -> str:
        pictures = experiment.problem(bool(os.environ.get("PIPLA_DATA")))
        return (
            f"Pictures are {' and '.join(pictures)}: guitar and boat lie in the folder that "
            "PIPLA_DATA names, camera comes with scikit-image."
        )

    def prepare(self, experiment: Experiment, preset: PicturePreset) -> tuple[Any, dict[str, Any]]:
        names = experiment.problem(bool(os.environ.get("PIPLA_DATA")))
        noted = {
            "data": f"pictures: {', '.join(names)}",
            "float64": jnp.result_type(float) == jnp.float64,
            "from_folder": bool(os.environ.get("PIPLA_DATA")),
        }
        return list(names), noted

    def estimate(self, task: Task, entries: Sequence[Entry], results: Results) -> float:
        """From a few steps of the recommended rule, by evaluations and pixels."""
        rows = [entry for entry in entries if isinstance(entry, PictureEntry)]
        pictures = _pictures(task)
        sizes = {row.picture: pictures.problem(row.picture).truth.size for row in rows}
        trial = pictures.problem(rows[0].picture)
        found = restore(
            trial.operator, trial.observed, trial.noise, num_steps=TRIAL_STEPS, maximise=False
        ).result
        one = found.seconds / (2 * TRIAL_STEPS * trial.truth.size)
        wanted = sum(
            row.replicates(task.preset)
            * row.evaluations(task.preset, row.steps(task.preset))
            * sizes[row.picture]
            for row in rows
        )
        if not results.reference:
            runs = task.preset.reference_replicates * 3 * task.preset.reference_steps
            wanted += 2 * runs * sum(sizes.values())
        return one * wanted + found.compile_seconds * len(rows)

    def reference(self, task: Task, progress: bool | None) -> dict[str, Any]:
        """Of every picture; `theta` and `stderr` are those of the first one."""
        each = {name: _reference(task, name, progress) for name in task.problem}
        first = next(iter(each.values()))
        return {
            "theta": first["theta"],
            "stderr": first["stderr"],
            "method": f"reflected-prox Langevin at steps {REFERENCE_STEP:g} and "
            f"{REFERENCE_STEP / 2:g}, {task.preset.reference_replicates} runs each, extrapolated "
            "to 0; the error is the Monte-Carlo error combined with half of the extrapolation",
            "seconds": sum(found["seconds"] for found in each.values()),
            "pictures": each,
        }

    def row(
        self, task: Task, entry: Entry, reference: dict[str, Any], progress: bool | None
    ) -> Outcome:
        assert isinstance(entry, PictureEntry)
        pictures = _pictures(task)
        problems, found = [], []
        for replicate in range(entry.replicates(task.preset)):
            published = entry.variant == "published"
            problem = pictures.problem(entry.picture, replicate, published)
            if published:
                problem = problem._replace(theta=task.preset.published_theta)
            amount = Amount(
                entry.particles(task.preset),
                entry.steps(task.preset),
                # Depends on the seed and the row only, not on which other rows are run.
                (task.seed + 1000 * replicate + zlib.crc32(entry.id.encode())) % 2**31,
                first=replicate == 0,
                progress=progress,
            )
            problems.append(problem)
            found.append(entry.restorer(problem, amount))
        return summarise(task, entry, problems, found, reference["pictures"][entry.picture])

    def compare(self, results: Results) -> None:
        """Nothing: each row is compared with the reference alone."""

    def sentence(self, row: dict[str, Any]) -> str:
        strength = "" if row["strength"] is None else f"t = {row['strength']:.4f}, "
        best = "" if row["map_psnr"] is None else f", MAP {row['map_psnr']:.2f} dB"
        return (
            f"{row['detail']}, {row['label']}: {strength}{row['psnr']:.2f} dB, SSIM "
            f"{row['ssim']:.3f}{best}, {row['seconds']:.1f} s"
        )

    def reference_sentence(self, reference: dict[str, Any]) -> str:
        return reference_words(reference)

    def setting(self, experiment: Experiment, results: Results) -> list[str]:
        settings = results.settings
        crop = settings["crop"]
        size = f", camera and boat cropped to {crop}×{crop}" if crop else ", whole"
        published = any(entry.variant == "published" for entry in experiment.entries)
        where = f" Published rows start at theta = {settings['published_theta']:g}."
        return [
            f"Data: {settings['data']}{size}. Preset {results.preset}, seed {results.seed}, "
            f"{'float64' if settings['float64'] else 'float32'}; noises: "
            f"{settings['replicates']}, and {settings['slow_replicates']} for rows of thousands of "
            f"steps.{where if published else ''}",
            f"{reference_words(results.reference)} ({results.reference['method']}).",
        ]

    def tables(self, results: Results) -> list[Section]:
        return [Section("Restorations", [Text(SETTING), picture_table(results)])]

    def summary(self, results: Results) -> Table:
        return picture_table(results)


RESTORED = RestoredPictures()


def _pictures(task: Task) -> Pictures:
    return _shared(task.preset.crop, task.seed)


@functools.lru_cache(maxsize=1)
def _shared(crop: int | None, seed: int) -> Pictures:
    return Pictures(crop, seed)


def _reference(task: Task, name: str, progress: bool | None) -> dict[str, Any]:
    """The strength without bias, its error, and how good the posterior mean is there."""
    problem = _pictures(task).problem(name, iterations=10)
    found: list[list[Result]] = []
    for share in (1, 2):
        steps, step = share * task.preset.reference_steps, REFERENCE_STEP / share
        found.append([])
        for replicate in range(task.preset.reference_replicates):
            result = run(
                problem.model,
                RPL(step, first=FIRST_STEP / step),
                theta=jnp.asarray(problem.theta, jnp.result_type(float)),
                particles=problem.cloud(jax.random.key(0), 2),
                num_steps=steps,
                burn_in=steps // 3,
                key=jax.random.key(task.seed + 10 * replicate + share),
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
        "strength_stderr": float(np.exp(theta)) * stderr,
        "psnr": psnr(np.mean([r.x_mean for r in found[1]], axis=0), problem.truth),
        "thetas": [large, small],
        "seconds": sum(result.seconds for results in found for result in results),
    }


def _mean_theta(results: Sequence[Result]) -> tuple[float, float]:
    """The mean over runs, and its error: by their spread, or by that inside of them if larger.

    Two runs may agree by chance.
    """
    thetas = [float(result.theta) for result in results]
    inside = float(np.sqrt(np.sum([float(r.theta_stderr) ** 2 for r in results]))) / len(results)
    between = float(np.std(thetas, ddof=1) / np.sqrt(len(thetas))) if len(thetas) > 1 else 0.0
    return float(np.mean(thetas)), max(inside, between)
