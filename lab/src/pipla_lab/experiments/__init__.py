"""The paper's tables and figures: as published, corrected, and by the recommended rule.

`theta` holds the experiments about theta, `images` those about restored images. `runner`, `results`
and `page` work with any `Experiment`. `published` holds the errors of the paper.
"""

from pipla_lab.experiments.base import Entry, Experiment, Preset
from pipla_lab.experiments.registry import find, load, names
from pipla_lab.experiments.results import Results, ResultsError, Row
from pipla_lab.experiments.runner import run
from pipla_lab.experiments.theta.experiment import ThetaExperiment
from pipla_lab.experiments.theta.rows import ThetaEntry, ThetaPreset

__all__ = [
    "Entry",
    "Experiment",
    "Preset",
    "Results",
    "ResultsError",
    "Row",
    "ThetaEntry",
    "ThetaExperiment",
    "ThetaPreset",
    "find",
    "load",
    "names",
    "run",
]
