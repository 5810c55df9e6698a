"""Run an experiment: say how long it takes, save every row, go on where it stopped."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pipla.engine.result import provenance
from pipla.experiments import registry
from pipla.experiments import results as storage
from pipla.experiments.base import Entry, Outcome, Task
from pipla.experiments.page import write_report
from pipla.experiments.results import Results, ResultsError


def run(
    name: str,
    preset: str = "quick",
    *,
    algorithms: Iterable[str] | None = None,
    replicates: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    say: Callable[[str], Any] = print,
    progress: bool | None = None,
) -> Results:
    """Run an experiment and write `results.json`, `series.npz`, `figures/` and `report.html`.

    Arguments:
        name, preset: what is run, and how much of it; see `pipla experiment list`.
        algorithms: only the rows of these algorithms or variants.
        replicates: instead of the preset's.
        seed: of all random numbers.
        out: the folder; `results/NAME-PRESET` by default. Rows that it holds already, from the
            same settings, are kept and not run again.
        say: gets a line for each thing that happens.
        progress: a bar for each row; by default only on a terminal.
    """
    experiment = registry.find(name)
    amount = registry.find_preset(experiment, preset)
    method = experiment.method
    wanted = registry.select(experiment, algorithms)
    if replicates is not None:
        if replicates < method.least_replicates:
            raise ValueError(
                f"replicates must be at least {method.least_replicates}, got {replicates}."
            )
        amount = dataclasses.replace(amount, replicates=replicates)
    folder = Path(out) if out is not None else Path("results") / f"{experiment.name}-{preset}"
    there = {entry.id for entry in method.available(experiment, amount)}
    entries = [entry for entry in wanted if entry.id in there]
    if not entries:
        raise ValueError(f"no row of those wanted can be run: {method.why_not(experiment)}")
    problem, data = method.prepare(experiment, amount)
    fresh = Results(
        experiment.name, preset, {**dataclasses.asdict(amount), **data}, seed, provenance()
    )
    results = _continued(storage.prepare(folder), fresh, folder)
    task = Task(experiment, amount, problem, seed)
    began = time.perf_counter()
    missing = [entry for entry in entries if results.row(entry.id) is None]
    kept = len(entries) - len(missing)
    say(f"{experiment.title}: {amount.replicates} replicates, data: {data['data']}.")
    if len(entries) < len(wanted):
        say(f"{len(wanted) - len(entries)} rows are left out. {method.why_not(experiment)}")
    if kept:
        say(f"{kept} of {len(entries)} rows are in {folder} already and are kept.")
    if missing:
        say(f"Estimated duration: {_words(method.estimate(task, missing, results))}.")
    if not results.reference:
        results.reference = method.reference(task, progress)
        storage.save(results, folder)
    say(method.reference_sentence(results.reference))
    for number, entry in enumerate(missing, start=kept + 1):
        outcome = method.row(task, entry, results.reference, progress)
        _add(results, experiment.entries, entry, outcome)
        storage.save(results, folder)
        say(f"[{number}/{len(entries)}] {method.sentence(outcome.row)}")
    method.compare(results)
    storage.save(results, folder)
    write_report(results, folder)
    say(f"Done in {_words(time.perf_counter() - began)}. The page: {folder / 'report.html'}")
    return results


def _continued(found: Results | None, fresh: Results, folder: Path) -> Results:
    if found is None:
        return fresh
    difference = found.same_run(fresh)
    if difference:
        raise ResultsError(
            f"{str(folder)!r} holds results of another run ({difference}); choose another --out."
        )
    return found


def _add(results: Results, order: Sequence[Entry], entry: Entry, outcome: Outcome) -> None:
    """Put a row in the experiment's order."""
    place = {e.id: number for number, e in enumerate(order)}
    results.rows.append(outcome.row)
    results.rows.sort(key=lambda row: place.get(row["id"], len(place)))
    for name, array in outcome.series.items():
        results.series[f"{entry.id}:{name}"] = array


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
