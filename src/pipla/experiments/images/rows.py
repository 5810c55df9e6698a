"""What rows and presets of experiments with pictures have besides."""

from __future__ import annotations

import dataclasses
from typing import Any

from pipla.experiments.base import Entry, Preset
from pipla.experiments.images.restorers import Restorer
from pipla.problems.image_deblurring import Protocol

#: In which protocol each picture is blurred.
PROTOCOLS: dict[str, Protocol] = {"guitar": "paper", "boat": "bsnr30", "camera": "bsnr30"}


@dataclasses.dataclass(frozen=True)
class PicturePreset(Preset):
    """How much is run. `replicates` are noises; `num_particles` is 1: evaluations count them all.

    Attributes:
        slow_replicates: of rows that take thousands of steps.
        num_steps, guitar_steps: of rows with small steps; the paper's noise is so small that the
            guitar needs more of them.
        published_steps, published_theta: of the published rows, and where they start. The paper
            draws it from [-15, 10]; its figure of the guitar has -10.5, from where theta takes a
            thousand steps of .01 to arrive.
        crop: the middle of camera and boat, so many pixels square; the guitar stays whole.
        reference_steps: of the reference at its larger step; twice as many at the smaller one.
        reference_replicates: runs of the reference at each step.
    """

    num_particles: int = 1
    slow_replicates: int = 1
    guitar_steps: int = 3000
    published_steps: int = 3000
    published_theta: float = -10.5
    crop: int | None = None
    reference_steps: int = 600
    reference_replicates: int = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureEntry(Entry):
    """One way to restore one picture.

    Attributes:
        picture: which one; also the row's `detail`.
        restorer: the way.
        fixed_steps: where the number of steps is not the preset's; 0 for what makes none.
    """

    picture: str
    restorer: Restorer
    fixed_steps: int | None = None

    def steps(self, preset: Any) -> int:
        if self.fixed_steps is not None:
            return self.fixed_steps
        if self.variant == "published":
            return preset.published_steps
        steps = preset.guitar_steps if self.picture == "guitar" else preset.num_steps
        return max(round(steps / self.gradients), 1)

    def evaluations(self, preset: Any, steps: Any) -> Any:
        """Gradients or flows of the likelihood in so many steps, over all particles."""
        return steps * self.gradients * self.particles(preset)

    def replicates(self, preset: Any) -> int:
        """How many noises the row is run with."""
        return preset.replicates if self.fixed_steps is not None else preset.slow_replicates

    @property
    def label(self) -> str:
        return f"{self.algorithm} ({self.variant})"
