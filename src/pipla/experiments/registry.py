"""Experiments by name, and near matches for names that are not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from pipla.experiments.base import Entry, Experiment, Preset
from pipla.experiments.images import benchmark, deblurring
from pipla.experiments.theta import ablation, logistic, rate, toy, traces

_ALL = {
    experiment.name: experiment
    for experiment in (
        toy.TOY,
        logistic.LAPLACE,
        logistic.UNIFORM,
        rate.RATE,
        traces.TRACES,
        ablation.ABLATION,
        deblurring.DEBLURRING,
        benchmark.BENCHMARK,
    )
}


class UnknownNameError(ValueError):
    """A name that nobody has; the message lists the near matches."""


def names() -> list[str]:
    """The experiments there are."""
    return list(_ALL)


def find(name: str) -> Experiment:
    """The experiment of this name."""
    return _ALL[pick("experiment", name, _ALL)]


def find_preset(experiment: Experiment, name: str) -> Preset:
    """The preset of this name."""
    shown = [preset for preset in experiment.presets if preset == name or preset != "tiny"]
    return experiment.presets[pick("preset", name, shown)]


def select(experiment: Experiment, wanted: Iterable[str] | None) -> Sequence[Entry]:
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
    """`name` as one of the options, whatever its case; or an error with the near matches."""
    by_lower = {option.lower(): option for option in options}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    matches = " or ".join(repr(by_lower[n]) for n in near)
    hint = f"did you mean {matches}?" if near else f"there are {', '.join(by_lower.values())}."
    raise UnknownNameError(f"unknown {kind} {name!r}; {hint}")
