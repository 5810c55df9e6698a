"""Row and preset types of the experiments with networks."""

from __future__ import annotations

import dataclasses
from typing import Any

from pipla_lab.experiments.base import Preset
from pipla_lab.experiments.results import Row

#: Weights of smaller modulus count as small.
THRESHOLD = 0.01


@dataclasses.dataclass(frozen=True)
class NetworkPreset(Preset):
    """How much is run.

    Attributes:
        replicates: splits of the data.
        num_particles: N.
        published_steps, paper_steps: steps of the authors' code, and of the corrected rows.
        train_steps: steps of the recommended rule; `None` leaves them to the library.
        train_particles: particles of the recommended rule.
        split_steps: steps of the splitting.
        images: images drawn for a split; four fifths are for training.
        num_units: hidden units.
        all_rows: whether rows that repeat others (from other starts, ...) are run, too.
        source: where digits come from; see `pipla_lab.data.digits`.
    """

    num_particles: int = 50
    published_steps: int = 300
    paper_steps: int = 500
    train_steps: int | None = None
    train_particles: int = 10
    split_steps: int = 2000
    images: int = 1000
    num_units: int = 40
    all_rows: bool = True
    source: str = "auto"

    def count(self, wanted: int | None) -> int:
        """The particles of a row that may want a number of its own, which "tiny" does not give."""
        return self.num_particles if wanted is None else min(wanted, 10 * self.num_particles)


@dataclasses.dataclass(kw_only=True)
class NetworkRow(Row):
    """The results of one row: the fields of `Row`, and means over splits of those below.

    Attributes:
        error, lppd: on the test images of the splits: the percentage of wrong classes, and the log
            pointwise predictive density.
        error_large, lppd_large: the same on images that no split draws from.
        calibration: the expected calibration error in percentage points, on the larger of the two.
        std_weights: the standard deviation of the weights of the first layer.
        below: the percentage of them below `THRESHOLD`.
        scales: the learned scales by name, as they are in theta.
        scale_errors: their Monte-Carlo errors; `None` where a run does not say.
        paper: the paper's numbers by name.
        pruning: what is left of the network by threshold, one dict per line of the table.
        says: the status of the first run, and its warnings.
        each: the values of each split.
    """

    error: float | None
    lppd: float | None
    error_large: float | None
    lppd_large: float | None
    calibration: float | None
    std_weights: float | None
    below: float | None
    scales: dict[str, float]
    scale_errors: dict[str, Any]
    paper: dict[str, Any]
    pruning: list[dict[str, Any]]
    says: str
    each: dict[str, Any]
