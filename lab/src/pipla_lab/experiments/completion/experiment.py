"""Experiments whose rows are ways to complete a matrix."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from pipla.report import Cell, Section, Table, Text, fixed
from pipla_lab.experiments.base import Entry, Experiment, Outcome, Preset, mean_sd
from pipla_lab.experiments.completion.matrices import Matrix
from pipla_lab.experiments.completion.methods import Completed, Method
from pipla_lab.experiments.results import Results, Row

#: From this share of observed entries on, a step of `complete` works on the whole table.
DENSE = 0.15


@dataclasses.dataclass(frozen=True)
class CompletionPreset(Preset):
    """How much is run.

    Attributes:
        replicates: noise realisations, or splits.
        rows, columns: of the matrix, or of the densest part of the ratings; 0 for all.
        nuclear_steps, factor_steps: steps of the recommended rule with either prior.
        paper_steps, paper_replicates: steps and replicates of the paper's algorithms.
        reference_steps: steps of the run that shows what is not identifiable.
        fate_steps: steps of the paper's algorithm on a small matrix, to its end.
    """

    rows: int
    columns: int
    nuclear_steps: int = 100
    factor_steps: int = 600
    paper_steps: int = 100
    paper_replicates: int = 1
    reference_steps: int = 600
    fate_steps: int = 3000


@dataclasses.dataclass(frozen=True)
class CompletionEntry(Entry):
    """One way to complete the matrix.

    Attributes:
        method: the way.
        steps: the name of the preset's number of steps; empty for methods without steps.
        num_particles: the number of particles.
        paper: the paper's NMSE in %, of the whole matrix and of the missing entries.
    """

    method: Method
    _: dataclasses.KW_ONLY
    steps: str = ""
    num_particles: int | None = None
    paper: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        return f"{self.algorithm} ({self.variant})"

    def num_steps(self, preset: CompletionPreset) -> int:
        """The number of steps, 0 for methods without."""
        return int(getattr(preset, self.steps)) if self.steps else 0

    def replicates(self, preset: CompletionPreset) -> int:
        """The number of matrices that the row is run on."""
        return preset.paper_replicates if self.steps == "paper_steps" else preset.replicates


@dataclasses.dataclass(kw_only=True)
class CompletionRow(Row):
    """The results of one row: the fields of `Row`, and means over replicates of those below.

    Attributes:
        nmse, nmse_missing: of the average over time and particles, in %.
        particle_nmse, particle_nmse_missing: of one particle at the end, the paper's measure.
        particles_nmse, particles_nmse_missing: of the mean over the particles at the end.
        rmse: at held-out observations.
        coverage: the share of missing entries, or of held-out observations, in 90 % intervals.
        width: the mean width of these intervals.
        noise, rank: what the run takes for them.
        theta_mcse: the Monte-Carlo error of theta.
        paper: the paper's NMSE in %: whole matrix, missing entries.
        each: the values of each replicate.
    """

    nmse: float | None
    nmse_missing: float | None
    particle_nmse: float | None
    particle_nmse_missing: float | None
    particles_nmse: float | None
    particles_nmse_missing: float | None
    rmse: float | None
    coverage: float | None
    width: float | None
    noise: float | None
    rank: float | None
    theta_mcse: float | None
    paper: list[float] | None
    each: dict[str, list[float | None]]


class CompletionJob(NamedTuple):
    """What all rows of one run share."""

    preset: CompletionPreset
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompletionExperiment(
    Experiment[CompletionEntry, CompletionPreset, CompletionJob, CompletionRow]
):
    """Rows are ways to complete a matrix.

    Attributes:
        matrix: the matrix of a preset and a seed.
        ready: whether its data are there.
        where: a sentence that says where they are looked for.
        compared_with: what rows are compared with; see `Experiment.reference`.
        columns: the headings of the table and the cells of a row.
    """

    row_type: ClassVar[type[CompletionRow]] = CompletionRow

    matrix: Callable[[CompletionPreset, int], Matrix]
    ready: Callable[[], bool]
    where: str
    compared_with: Callable[[CompletionJob], dict[str, Any]]
    columns: dict[str, Callable[[CompletionRow], Any]]

    def available(self, preset: CompletionPreset) -> Sequence[CompletionEntry]:
        return self.entries if self.ready() else []

    def expected(self, results: Results[CompletionRow]) -> Sequence[CompletionEntry]:
        return self.entries

    def unavailable(self) -> str:
        return self.where

    def prepare(self, preset: CompletionPreset, seed: int) -> tuple[CompletionJob, dict[str, Any]]:
        shape = self.matrix(preset, seed).observed.shape
        return CompletionJob(preset, seed), {
            "data": f"{self.name}, {shape[0]} × {shape[1]}",
            "from_folder": "PIPLA_DATA" in self.where,
            "float64": jnp.result_type(float) == jnp.float64,
        }

    def estimate(
        self,
        job: CompletionJob,
        entries: Sequence[CompletionEntry],
        results: Results[CompletionRow],
    ) -> float:
        """By entries and steps, as measured on two quiet cores; the program of a row takes 2.5 s.

        Ten decompositions take 1.1 µs per entry and step. Factors take .15 µs per observation and
        step where many of the entries are observed and .9 µs in a sparse table; they are fitted up
        to three times if the rank is large.
        """
        observed = self.matrix(job.preset, job.seed).observed
        size = observed.shape[0] * observed.shape[1]
        per_observation = 1.5e-7 if observed.share > DENSE else 9e-7
        total = 0.0
        for entry in entries:
            each, steps = 2e-5 * size, entry.num_steps(job.preset)
            if entry.steps:
                factors = entry.steps == "factor_steps"
                each = steps * (
                    per_observation * len(observed.values) if factors else 1.1e-6 * size
                )
            total += 2.5 + entry.replicates(job.preset) * each
        return total

    def reference(self, job: CompletionJob, progress: bool | None) -> dict[str, Any]:
        return self.compared_with(job)

    def row(
        self,
        job: CompletionJob,
        entry: CompletionEntry,
        reference: dict[str, Any],
        progress: bool | None,
    ) -> Outcome[CompletionRow]:
        matrices, found = [], []
        for replicate in range(entry.replicates(job.preset)):
            matrices.append(self.matrix(job.preset, job.seed + replicate))
            seed = (job.seed + 1000 * replicate + zlib.crc32(entry.id.encode())) % 2**31
            found.append(entry.method(matrices[-1], entry.num_steps(job.preset), seed))
        return summarise(entry, matrices, found, reference)

    def compare(self, results: Results[CompletionRow]) -> None:
        """Nothing to do: each row is compared with the reference alone."""

    def sentence(self, row: CompletionRow) -> str:
        error = (
            f"RMSE {row.rmse:.4f}"
            if row.rmse is not None
            else f"NMSE {row.nmse or 0:.4g} %, missing {row.nmse_missing or 0:.4g} %"
        )
        cover = "" if row.coverage is None else f", 90 % intervals hold {100 * row.coverage:.1f} %"
        return f"{row.label}: {error}{cover}, {row.seconds:.1f} s"

    def reference_sentence(self, reference: dict[str, Any]) -> str:
        return str(reference["method"])

    def setting(self, results: Results[CompletionRow]) -> list[str]:
        settings = results.settings
        return [
            f"Data: {settings['data']}. Preset {results.preset}, seed {results.seed}, "
            f"{'float64' if settings['float64'] else 'float32'}; replicates: "
            f"{settings['replicates']}.",
            str(results.reference["method"]),
        ]

    def tables(self, results: Results[CompletionRow]) -> list[Section]:
        parts: list[Any] = [self.summary(results)]
        if results.reference.get("identifiability"):
            parts += [Text(UNIDENTIFIABLE), _noises(results.reference["identifiability"])]
        return [Section("Completions", parts)]

    def summary(self, results: Results[CompletionRow]) -> Table:
        body = [[cell(row) for cell in self.columns.values()] for row in results.rows]
        return Table(tuple(self.columns), body)

    def compared(self, row: CompletionRow) -> dict[str, Cell | None]:
        return {
            "NMSE missing": fixed(row.nmse_missing, 4),
            "RMSE": fixed(row.rmse, 4),
            "coverage": fixed(row.coverage, 3),
            "theta": mean_sd(row.theta_mean, row.theta_sd, 3),
            "seconds": fixed(row.seconds, 1),
        }


UNIDENTIFIABLE = (
    "theta2, the logarithm of the noise, cannot be learned under a nuclear norm (E17): the "
    "marginal likelihood rises as sigma falls, and a run that learns sigma stops where its step no "
    "longer resolves it. An estimate would not depend on the step; these numbers fall with it."
)


def _noises(pairs: Sequence[Sequence[float]]) -> Table:
    return Table(("step", "“learned” sigma"), [[fixed(a, 4), fixed(b, 3)] for a, b in pairs])


def summarise(
    entry: CompletionEntry,
    matrices: Sequence[Matrix],
    found: Sequence[Completed],
    reference: dict[str, Any],
) -> Outcome[CompletionRow]:
    """Means over replicates; images of the first."""
    each: dict[str, list[float | None]] = {}
    for done, matrix in zip(found, matrices, strict=True):
        for name, value in measured(done, matrix).items():
            each.setdefault(name, []).append(value)
    means: dict[str, Any] = {name: _mean(values) for name, values in each.items()}
    theta = np.array([done.theta for done in found if done.theta is not None])
    known, errors = reference.get("theta"), [done.theta_mcse for done in found]
    row = CompletionRow(
        **entry.names(),
        step_size=None,
        smoothing=None,
        num_particles=entry.num_particles,
        num_steps=found[0].num_steps,
        replicates=len(found),
        finite=float(np.mean([done.finite for done in found])),
        theta_mean=float(theta.mean()) if len(theta) else None,
        theta_sd=float(theta.std(ddof=1)) if len(theta) > 1 else None,
        theta_mcse=_mean(errors),
        bias=float(theta.mean()) - known if len(theta) and known is not None else None,
        distance_to_reference=(
            float(np.sqrt(np.mean((theta - known) ** 2)))
            if len(theta) and known is not None
            else None
        ),
        evaluations=None,
        seconds=float(np.mean([done.seconds for done in found])),
        compile_seconds=float(np.sum([done.compile_seconds for done in found])),
        paper=None if entry.paper is None else list(entry.paper),
        each=each,
        **means,
    )
    return Outcome(row, _series(found[0], matrices[0]))


def measured(done: Completed, matrix: Matrix) -> dict[str, float | None]:
    """Errors and coverage of one completion."""
    found: dict[str, float | None] = {
        f"{kind}nmse{part}": None
        for kind in ("", "particle_", "particles_")
        for part in ("", "_missing")
    }
    found |= {"rmse": None, "coverage": None, "width": None, "noise": done.noise}
    found["rank"] = None if done.rank is None else float(done.rank)
    if matrix.truth is not None:
        missing = np.isnan(matrix.observed.filled(np.nan))
        images = {"": done.mean, "particle_": done.particle, "particles_": done.particle_mean}
        for kind, image in images.items():
            if image is not None:
                found[f"{kind}nmse"] = nmse(image, matrix.truth)
                found[f"{kind}nmse_missing"] = nmse(image[missing], matrix.truth[missing])
        truth = matrix.truth[missing]
        ends = None if done.interval is None else [end[missing] for end in done.interval]
    else:
        assert matrix.test is not None
        truth = matrix.test.values
        predicted = done.mean[matrix.test.rows, matrix.test.columns]
        found["rmse"] = float(np.sqrt(np.mean((predicted - truth) ** 2)))
        ends = None if done.interval is None else list(done.interval)
    if ends is not None:
        found["coverage"] = float(np.mean((ends[0] <= truth) & (truth <= ends[1])))
        found["width"] = float(np.mean(ends[1] - ends[0]))
    return found


def nmse(found: np.ndarray, truth: np.ndarray) -> float | None:
    """The squared error relative to the truth's square, in %; `None` where it is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(100 * np.sum((found.astype(np.float64) - truth) ** 2) / np.sum(truth**2))
    return error if np.isfinite(error) else None


def _series(done: Completed, matrix: Matrix) -> dict[str, np.ndarray]:
    if matrix.truth is None:
        return {}
    images = {"truth": matrix.truth, "observed": matrix.observed.filled(0.0), "mean": done.mean}
    if done.particle is not None:
        images["particle"] = done.particle
    series = {
        name: np.clip(np.nan_to_num(np.round(image)), 0, 255).astype(np.uint8)
        for name, image in images.items()
    }
    if done.std is not None:
        series["std"] = done.std.astype(np.float16)
    return series


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
