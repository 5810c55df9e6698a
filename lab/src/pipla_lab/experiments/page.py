"""The report of an experiment, made from `results.json` and `series.npz` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipla.report import Figure, Section, Table, Text, write_page
from pipla_lab.experiments import registry
from pipla_lab.experiments.base import AnyExperiment
from pipla_lab.experiments.errata import SENTENCES
from pipla_lab.experiments.results import Results, ResultsError


def rebuild(folder: Path) -> Path:
    """Write the page and the figures again from the saved results (`pipla report DIR`)."""
    return write_report(registry.load(folder), folder)


def write_report(results: Results[Any], folder: Path) -> Path:
    """Write `figures/*.png` and `report.html`; return the path of the page."""
    try:
        experiment = registry.find(results.experiment)
    except registry.UnknownNameError as error:
        raise ResultsError(f"{str(folder)!r}: {error}") from error
    figures = experiment.figures(results) if results.rows else {}
    (folder / "figures").mkdir(exist_ok=True)
    for name, figure in figures.items():
        (folder / "figures" / f"{name}.png").write_bytes(figure.png())
    return write_page(
        folder / "report.html",
        experiment.title,
        experiment.about,
        _sections(experiment, results, list(figures.values())),
    )


def summary_table(results: Results[Any]) -> Table:
    """The table that is printed at the end of a run."""
    return registry.find(results.experiment).summary(results)


def comparison_table(folders: list[Path]) -> Table:
    """Several runs side by side, row by row."""
    loaded = [registry.load(folder) for folder in folders]
    experiments = [registry.find(results.experiment) for results in loaded]
    cells = [
        {row.id: experiment.compared(row) for row in results.rows}
        for experiment, results in zip(experiments, loaded, strict=True)
    ]
    names = [list(next(iter(each.values()), {})) for each in cells]
    columns = ["experiment", "row"]
    for folder, columns_of_folder in zip(folders, names, strict=True):
        first, *others = columns_of_folder or ["no rows"]
        columns += [f"{folder.name}: {first}", *others]
    keys = dict.fromkeys((results.experiment, row.id) for results in loaded for row in results.rows)
    rows = []
    for experiment, identity in keys:
        line: list[Any] = [experiment, identity]
        for results, shown, wanted in zip(loaded, cells, names, strict=True):
            row = shown.get(identity, {}) if results.experiment == experiment else {}
            line += [row.get(name) for name in wanted] or [None]
        rows.append(line)
    return Table(columns, rows)


def _sections(
    experiment: AnyExperiment, results: Results[Any], figures: list[Figure]
) -> list[Section]:
    expected = experiment.expected(results)
    missing = len(expected) - len(results.rows)
    setting = experiment.setting(results)
    if missing:
        setting.append(f"{missing} of {len(expected)} rows have not been run.")
    notes = [f"{row.label}: {row.note}." for row in results.rows if row.note]
    sections = [Section("What was run", [Text(paragraph) for paragraph in setting])]
    found = experiment.findings(results)
    if found:
        sections.append(Section("What came out", found))
    sections += [*experiment.tables(results), Section("Figures", figures)]
    if notes:
        sections.append(Section("Notes on rows", [Text(note) for note in notes]))
    if experiment.errata:
        sentences = [Text(f"{number}. {SENTENCES[number]}") for number in experiment.errata]
        sections.append(Section("Errata that explain differences", sentences))
    return [*sections, Section("Reproduce", _reproduce(results))]


def only(results: Results[Any]) -> str:
    """The command-line option that selects these rows; empty if they are all."""
    experiment = registry.find(results.experiment)
    available = {entry.id for entry in experiment.available(experiment.presets[results.preset])}
    done = [entry for entry in experiment.entries if results.row(entry.id) is not None]
    ids = {entry.id for entry in done}
    if not ids or not ids < available:
        return ""
    for words in ([entry.algorithm for entry in done], [entry.variant for entry in done]):
        if {entry.id for entry in registry.select(experiment, words)} & available == ids:
            return f' --algorithms "{",".join(dict.fromkeys(words))}"'
    return ""


def _reproduce(results: Results[Any]) -> list[Text]:
    command = f"pipla experiment run {results.experiment} --preset {results.preset}"
    command += f" --replicates {results.settings['replicates']} --seed {results.seed}"
    command += " --float64" if results.settings["float64"] else ""
    command += only(results)
    if results.settings["from_folder"]:
        command = f"PIPLA_DATA=folder-with-the-authors-files {command}"
    total = sum(row.seconds + row.compile_seconds for row in results.rows)
    total += results.reference.get("seconds", 0.0)
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return [
        Text(command, code=True),
        Text(f"Rows and reference took {total:.0f} s. Versions: {versions}."),
    ]
