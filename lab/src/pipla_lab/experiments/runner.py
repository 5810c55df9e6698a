"""Run an experiment: estimate the duration, save every row, resume where it stopped."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pipla.engine.result import provenance
from pipla_lab.experiments import registry
from pipla_lab.experiments import results as storage
from pipla_lab.experiments.base import AnyExperiment, Entry, Outcome, Preset
from pipla_lab.experiments.page import write_report
from pipla_lab.experiments.results import Results, ResultsError


def run(
    name: str,
    preset: str = "quick",
    *,
    algorithms: Iterable[str] | None = None,
    replicates: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    log: Callable[[str], Any] = print,
    progress: bool | None = None,
) -> Results[Any]:
    """Run an experiment and write `results.json`, `series.npz`, `figures/` and `report.html`.

    Arguments:
        name, preset: the experiment, and how much of it is run; see `pipla experiment list`.
        algorithms: only the rows of these algorithms or variants.
        replicates: the number of runs of each row, instead of the preset's.
        seed: the seed of all random numbers.
        out: the folder; `results/NAME-PRESET` by default. Rows that it already holds, from the
            same settings, are kept and not run again.
        log: called with a line of text for each event.
        progress: show a progress bar for each row; by default only on a terminal.

    Returns:
        The results, as they are in the folder.
    """
    experiment = registry.find(name)
    budget = _budget(experiment, registry.find_preset(experiment, preset), replicates)
    wanted = registry.select(experiment, algorithms)
    folder = Path(out) if out is not None else Path("results") / f"{experiment.name}-{preset}"
    available = {entry.id for entry in experiment.available(budget)}
    entries = [entry for entry in wanted if entry.id in available]
    if not entries:
        raise ValueError(f"no row of those wanted can be run: {experiment.unavailable()}")
    job, noted = experiment.prepare(budget, seed)
    settings = {**dataclasses.asdict(budget), **noted}
    fresh: Results[Any] = Results(experiment.name, preset, settings, seed, provenance())
    results = _resumed(storage.prepare(folder, registry.row_type), fresh, folder)
    began = time.perf_counter()
    missing = [entry for entry in entries if results.row(entry.id) is None]
    kept = len(entries) - len(missing)
    log(f"{experiment.title}: {budget.replicates} replicates, data: {noted['data']}.")
    if len(entries) < len(wanted):
        log(f"{len(wanted) - len(entries)} rows are left out. {experiment.unavailable()}")
    if kept:
        log(f"{kept} of {len(entries)} rows are in {folder} already and are kept.")
    if missing:
        log(f"Estimated duration: {_duration(experiment.estimate(job, missing, results))}.")
    if not results.reference:
        results.reference = experiment.reference(job, progress)
        storage.save(results, folder)
    log(experiment.reference_sentence(results.reference))
    for number, entry in enumerate(missing, start=kept + 1):
        outcome = experiment.row(job, entry, results.reference, progress)
        _add(results, experiment.entries, entry, outcome)
        storage.save(results, folder)
        log(f"[{number}/{len(entries)}] {experiment.sentence(outcome.row)}")
    experiment.compare(results)
    storage.save(results, folder)
    write_report(results, folder)
    log(f"Done in {_duration(time.perf_counter() - began)}. The page: {folder / 'report.html'}")
    return results


def _budget(experiment: AnyExperiment, preset: Preset, replicates: int | None) -> Preset:
    if replicates is None:
        return preset
    if replicates < experiment.least_replicates:
        raise ValueError(
            f"replicates must be at least {experiment.least_replicates}, got {replicates}."
        )
    return dataclasses.replace(preset, replicates=replicates)


def _resumed(found: Results[Any] | None, fresh: Results[Any], folder: Path) -> Results[Any]:
    if found is None:
        return fresh
    difference = found.difference(fresh)
    if difference:
        raise ResultsError(
            f"{str(folder)!r} holds results of another run ({difference}); choose another --out."
        )
    return found


def _add(
    results: Results[Any], order: Sequence[Entry], entry: Entry, outcome: Outcome[Any]
) -> None:
    """Insert a row at its place in the experiment's order."""
    place = {e.id: number for number, e in enumerate(order)}
    results.rows.append(outcome.row)
    results.rows.sort(key=lambda row: place.get(row.id, len(place)))
    for name, array in outcome.series.items():
        results.series[f"{entry.id}:{name}"] = array


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
