"""Experiments by name, and near matches for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipla_lab.experiments import results as storage
from pipla_lab.experiments.base import AnyExperiment, Entry, Preset
from pipla_lab.experiments.completion import checkerboard, ratings
from pipla_lab.experiments.images import benchmark, deblurring
from pipla_lab.experiments.networks import activation, cifar, mnist, pruning
from pipla_lab.experiments.results import Results, Row
from pipla_lab.experiments.theory.experiment import THEORY
from pipla_lab.experiments.theta import logistic, logistic_figures, toy

_EXPERIMENTS: tuple[AnyExperiment, ...] = (
    toy.TOY,
    logistic.LAPLACE,
    logistic.UNIFORM,
    logistic_figures.RATE,
    logistic_figures.TRACES,
    logistic_figures.ABLATION,
    deblurring.DEBLURRING,
    benchmark.BENCHMARK,
    checkerboard.MATRIX_COMPLETION,
    ratings.RATINGS,
    THEORY,
    mnist.MNIST,
    pruning.PRUNING,
    activation.ACTIVATION,
    cifar.CIFAR,
)
_BY_NAME = {experiment.name: experiment for experiment in _EXPERIMENTS}


class UnknownNameError(ValueError):
    """An unknown name; the message lists the near matches."""


def names() -> list[str]:
    """The names of all experiments."""
    return list(_BY_NAME)


def find(name: str) -> AnyExperiment:
    """The experiment with this name."""
    return _BY_NAME[pick("experiment", name, _BY_NAME)]


def find_preset(experiment: AnyExperiment, name: str) -> Preset:
    """The preset with this name."""
    shown = [preset for preset in experiment.presets if preset == name or preset != "tiny"]
    return experiment.presets[pick("preset", name, shown)]


def row_type(name: str) -> type[Row]:
    """The class of the rows of the experiment with this name."""
    return find(name).row_type


def load(folder: Path) -> Results[Any]:
    """The results in a folder. Damaged or foreign files raise `ResultsError`."""
    return storage.read(folder, row_type)


def select(experiment: AnyExperiment, wanted: Iterable[str] | None) -> Sequence[Entry]:
    """The rows of these algorithms or variants, in the experiment's order; all for `None`."""
    if wanted is None:
        return experiment.entries
    wanted = list(wanted)
    if not wanted:
        raise ValueError("algorithms is empty; name at least one, or leave it out for all.")
    known = {key.lower(): key for e in experiment.entries for key in (e.algorithm, e.variant)}
    chosen = {pick("algorithm", word, known.values()).lower() for word in wanted}
    return [
        entry
        for entry in experiment.entries
        if {entry.algorithm.lower(), entry.variant.lower()} & chosen
    ]


def pick(kind: str, name: str, options: Iterable[str]) -> str:
    """`name` as one of the options, ignoring case; an error lists the near matches."""
    by_lower = {option.lower(): option for option in options}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    matches = " or ".join(repr(by_lower[n]) for n in near)
    hint = f"did you mean {matches}?" if near else f"there are {', '.join(by_lower.values())}."
    raise UnknownNameError(f"unknown {kind} {name!r}; {hint}")
