"""The report: everything on it comes from `results.json` and `series.npz`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipla.experiments import registry
from pipla.experiments.base import Experiment
from pipla.experiments.errata import SENTENCES
from pipla.experiments.results import Results, ResultsError, load
from pipla.experiments.theta.tables import spread
from pipla.report.page import Figure, Section, Table, Text, fixed, write_page


def rebuild(folder: Path) -> Path:
    """`pipla report DIR`: the page and figures from the saved results."""
    return write_report(load(folder), folder)


def write_report(results: Results, folder: Path) -> Path:
    """Write `figures/*.png` and `report.html`."""
    try:
        experiment = registry.find(results.experiment)
    except registry.UnknownNameError as error:
        raise ResultsError(f"{str(folder)!r}: {error}") from error
    pictures = experiment.figures(results) if results.rows else {}
    (folder / "figures").mkdir(exist_ok=True)
    for name, picture in pictures.items():
        (folder / "figures" / f"{name}.png").write_bytes(picture.png())
    return write_page(
        folder / "report.html",
        experiment.title,
        experiment.about,
        _sections(experiment, results, list(pictures.values())),
    )


def summary_table(results: Results) -> Table:
    """The table that a run ends with."""
    return registry.find(results.experiment).method.summary(results)


def comparison_table(folders: list[Path]) -> Table:
    """Several runs beside each other, row by row."""
    loaded = [load(folder) for folder in folders]
    keys = dict.fromkeys(
        (results.experiment, row["id"]) for results in loaded for row in results.rows
    )
    columns = ["experiment", "row"]
    for folder in folders:
        columns += [f"{folder.name}: theta", "NMSE last", "distance", "seconds"]
    rows = []
    for experiment, identity in keys:
        cells: list[Any] = [experiment, identity]
        for results in loaded:
            row = results.row(identity) if results.experiment == experiment else None
            cells += (
                [
                    spread(row["theta_mean"], row["theta_sd"], 3),
                    fixed(row["nmse_last"], 2),
                    fixed(row["distance_to_reference"], 4),
                    fixed(row["seconds"], 1),
                ]
                if row
                else [None] * 4
            )
        rows.append(cells)
    return Table(columns, rows)


def _sections(experiment: Experiment, results: Results, pictures: list[Figure]) -> list[Section]:
    expected = experiment.method.expected(experiment, results)
    missing = len(expected) - len(results.rows)
    run = experiment.method.setting(experiment, results)
    if missing:
        run.append(f"{missing} of {len(expected)} rows have not been run.")
    notes = [f"{row['label']}: {row['note']}." for row in results.rows if row["note"]]
    sections = [Section("What was run", [Text(words) for words in run])]
    found = experiment.findings(results)
    if found:
        sections.append(Section("What came out", found))
    sections += [*experiment.method.tables(results), Section("Figures", pictures)]
    if notes:
        sections.append(Section("Notes on rows", [Text(note) for note in notes]))
    if experiment.errata:
        words = [Text(f"{number}. {SENTENCES[number]}") for number in experiment.errata]
        sections.append(Section("Errata that explain differences", words))
    return [*sections, Section("Reproduce", _reproduce(results))]


def only(results: Results) -> str:
    """The option that asks for these rows, if they are not all."""
    experiment = registry.find(results.experiment)
    amount = experiment.presets[results.preset]
    there = {entry.id for entry in experiment.method.available(experiment, amount)}
    done = [entry for entry in experiment.entries if results.row(entry.id) is not None]
    ids = {entry.id for entry in done}
    if not ids or not ids < there:
        return ""
    for words in ([entry.algorithm for entry in done], [entry.variant for entry in done]):
        if {entry.id for entry in registry.select(experiment, words)} & there == ids:
            return f' --algorithms "{",".join(dict.fromkeys(words))}"'
    return ""


def _reproduce(results: Results) -> list[Text]:
    command = f"pipla experiment run {results.experiment} --preset {results.preset}"
    command += f" --replicates {results.settings['replicates']} --seed {results.seed}"
    command += " --float64" if results.settings["float64"] else ""
    command += only(results)
    settings = results.settings
    if settings["data"] == "the authors' own" or settings.get("from_folder"):
        command = f"PIPLA_DATA=folder-with-the-authors-files {command}"
    total = sum(row["seconds"] + row["compile_seconds"] for row in results.rows)
    total += results.reference.get("seconds", 0.0)
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return [
        Text(command, code=True),
        Text(f"Rows and reference took {total:.0f} s. Versions: {versions}."),
    ]
