"""The paper's tables and figures: as published, corrected, and by the recommended rule.

One short file each says what is run, with which settings, and what the paper printed. The rooms
around them (`runner`, `results`, `page`) know no experiment.
"""

from pipla.experiments.base import Entry, Experiment, Preset
from pipla.experiments.registry import find, names
from pipla.experiments.results import Results, ResultsError, load
from pipla.experiments.runner import run

__all__ = [
    "Entry",
    "Experiment",
    "Preset",
    "Results",
    "ResultsError",
    "find",
    "load",
    "names",
    "run",
]
