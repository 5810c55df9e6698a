"""Row and preset types of experiments about theta."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from pipla.algorithms.base import Algorithm
from pipla.models.model import Model
from pipla.problems import Problem
from pipla_lab.experiments.base import Entry, Preset
from pipla_lab.experiments.results import Row

#: A number of steps, or an array of such numbers.
Steps = TypeVar("Steps", float, np.ndarray)


@dataclasses.dataclass(frozen=True)
class ThetaPreset(Preset):
    """How much is run.

    Attributes:
        replicates: independent runs of each row, each from its own start.
        num_steps: the steps of a row that evaluates the gradient once per step.
        average_last: the number of iterates in the average.
        num_particles: N.
        reference_replicates, reference_steps: runs and steps of the reference maximiser, where it
            is not known exactly.
        batch: replicates that run side by side.
    """

    num_steps: int = 5000
    average_last: int = 1000
    num_particles: int = 50
    reference_replicates: int = 8
    reference_steps: int = 6000
    batch: int = 20  # more do not fit into the caches


@dataclasses.dataclass(frozen=True)
class ThetaEntry(Entry):
    """One row: an algorithm, its model, and what the paper printed for it.

    Attributes:
        make: makes the algorithm, when the run starts and the precision is known; `None` for the
            rule of `pipla.fit`.
        paper: the published numbers: `nmse_last`, `nmse_last_sd`, `nmse_average`, `seconds`.
        model: applied to the problem's model before the run, such as `published.doubled` (E3).
        num_particles: the number of particles, where it is not the preset's.
        gradients: gradient evaluations of g1 per particle and step.
        average_share: the last share of the run that is averaged, where it is not the preset's.
    """

    make: Callable[[], Algorithm] | None
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict)
    _: dataclasses.KW_ONLY
    model: Callable[[Model], Model] | None = None
    num_particles: int | None = None
    gradients: float = 1.0
    average_share: float | None = None

    def particles(self, preset: ThetaPreset) -> int:
        """The number of particles."""
        return self.num_particles or preset.num_particles

    def steps(self, preset: ThetaPreset) -> int:
        """The number of steps; those of the rule of `pipla.fit` cost as much as the others'."""
        if self.make is not None:
            return preset.num_steps
        return max(int(preset.num_steps / self.gradients), 1)

    def evaluations(self, preset: ThetaPreset, steps: Steps) -> Steps:
        """Gradient evaluations in `steps` steps, per particle of the preset."""
        return steps * self.gradients * self.particles(preset) / preset.num_particles

    @property
    def label(self) -> str:
        """A name for figures."""
        if self.variant == "recommended":
            return "recommended"
        prox = "" if self.prox == "none" else f", {self.prox}"
        return f"{self.algorithm}{prox}{', ' + self.detail if self.detail else ''}"


@dataclasses.dataclass(kw_only=True)
class ThetaRow(Row):
    """The results of one row: the fields of `Row`, and those below.

    Attributes:
        theta_last_mean, theta_last_sd: mean and standard deviation over replicates of the last
            iterate; `theta_mean` and `theta_sd` are those of the average.
        theta_variance: the variance over replicates, averaged over the last iterates.
        distance_last: the root mean square distance of the last iterate to the reference.
        nmse_last, nmse_average: the paper's error measure in %, with standard deviations.
        evaluations_to_paper_best: evaluations until the row is as good as the best published one.
        paper: the published numbers.
    """

    num_particles: int
    num_steps: int
    evaluations: float
    theta_last_mean: float | None
    theta_last_sd: float | None
    theta_variance: float | None
    distance_last: float | None
    nmse_last: float | None
    nmse_last_sd: float | None
    nmse_average: float | None
    nmse_average_sd: float | None
    evaluations_to_paper_best: float | None = None
    paper: dict[str, float]


class ThetaJob(NamedTuple):
    """What all rows of one run share.

    Attributes:
        problem, preset, seed: the model with its data, how much is run, and the seed.
        starts: theta of every replicate at the start.
        reference_start: where the reference maximiser starts.
        positive: theta and -theta are the same model in non-centred form.
    """

    problem: Problem
    preset: ThetaPreset
    seed: int
    starts: np.ndarray
    reference_start: float
    positive: bool
