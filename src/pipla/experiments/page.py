"""The report: everything on it comes from `results.json` and `series.npz`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipla.experiments import registry
from pipla.experiments.base import Experiment
from pipla.experiments.comparison import DEVIATIONS, SLACK, verdict
from pipla.experiments.errata import SENTENCES
from pipla.experiments.results import Results, ResultsError, load
from pipla.report import Cell, Picture, Section, Table, Text, fixed, write_page

_AGAINST_PAPER = (
    "Click a heading to sort. NMSE in %: mean ± standard deviation over replicates, of the last "
    "iterate and of the average. A row is flagged where our mean of the last iterate is more than "
    f"{DEVIATIONS:g} deviations from the paper's: its standard deviation over runs, combined with "
    "the standard error of our mean."
)
_AGAINST_REFERENCE = (
    "Theta is averaged over the last iterates: mean ± standard deviation over replicates. "
    "Distance: RMS over replicates of that average's distance to the reference. Evaluations: "
    "gradients of the likelihood, for each particle of the cloud. To paper's best: those after "
    f"which a row's estimate stays within {SLACK:g} times the distance of the best published row. "
    "Seconds: of all replicates together, without compiling."
)


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


def paper_table(results: Results) -> Table:
    """Published beside ours, differences flagged."""
    columns = ["algorithm", "prox", "variant", *_detail(results), "step", "smoothing"]
    columns += ["NMSE last", "paper", "NMSE average", "paper", "verdict"]
    rows = []
    for row in results.rows:
        paper = row["paper"]
        rows.append(
            [
                *_names(results, row),
                _short(row["step_size"]),
                _short(row["smoothing"]),
                _spread(row["nmse_last"], row["nmse_last_sd"], 2),
                _spread(paper.get("nmse_last"), paper.get("nmse_last_sd"), 2),
                _spread(row["nmse_average"], row["nmse_average_sd"], 2),
                fixed(paper.get("nmse_average"), 2),
                _flag(row),
            ]
        )
    return Table(columns, rows)


def reference_table(results: Results) -> Table:
    """Each row against the maximiser, and what it cost."""
    columns = ["algorithm", "prox", "variant", *_detail(results), "theta", "NMSE last", "bias"]
    columns += ["distance", "evaluations", "to paper's best", "seconds", "finite"]
    rows = [
        [
            *_names(results, row),
            _spread(row["theta_mean"], row["theta_sd"], 3),
            fixed(row["nmse_last"], 2),
            fixed(row["bias"], 4),
            fixed(row["distance_to_reference"], 4),
            fixed(row["evaluations"], 0),
            fixed(row.get("evaluations_to_paper_best"), 0),
            fixed(row["seconds"], 1),
            Cell(f"{100 * row['finite']:.0f} %", row["finite"]),
        ]
        for row in results.rows
    ]
    return Table(columns, rows)


def _detail(results: Results) -> list[str]:
    return ["detail"] if any(row["detail"] for row in results.rows) else []


def _names(results: Results, row: dict[str, Any]) -> list[str]:
    return [row["algorithm"], row["prox"], row["variant"], *(row[n] for n in _detail(results))]


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
                    _spread(row["theta_mean"], row["theta_sd"], 3),
                    fixed(row["nmse_last"], 2),
                    fixed(row["distance_to_reference"], 4),
                    fixed(row["seconds"], 1),
                ]
                if row
                else [None] * 4
            )
        rows.append(cells)
    return Table(columns, rows)


def _sections(experiment: Experiment, results: Results, pictures: list[Picture]) -> list[Section]:
    settings, reference = results.settings, results.reference
    missing = len(experiment.entries) - len(results.rows)
    run = [
        f"{settings['replicates']} replicates of every row, {settings['num_particles']} particles, "
        f"{settings['num_steps']} steps, averages over the last {settings['average_last']}. "
        f"Data: {settings['data']}. Preset {results.preset}, seed {results.seed}, "
        f"{'float64' if settings['float64'] else 'float32'}.",
        f"Reference maximiser: theta = {reference['theta']:.4f} ± {reference['stderr']:.4f} "
        f"({reference['method']}).",
    ]
    if settings["data"] != "the authors' own" and experiment.data_file:
        run.append(
            "The paper's numbers are for its authors' own data. These data are others, drawn by "
            "the same recipe, so that the two columns need not agree."
        )
    if missing:
        run.append(f"{missing} of {len(experiment.entries)} rows have not been run.")
    notes = [f"{row['label']}: {row['note']}." for row in results.rows if row["note"]]
    sections = [Section("What was run", [Text(words) for words in run])]
    found = experiment.findings(results)
    if found:
        sections.append(Section("What came out", found))
    if any(row["paper"] for row in results.rows):
        sections.append(Section("Against the paper", [Text(_AGAINST_PAPER), paper_table(results)]))
    sections += [
        Section("Against the maximiser", [Text(_AGAINST_REFERENCE), reference_table(results)]),
        Section("Figures", pictures),
    ]
    if notes:
        sections.append(Section("Notes on rows", [Text(note) for note in notes]))
    if experiment.errata:
        words = [Text(f"{number}. {SENTENCES[number]}") for number in experiment.errata]
        sections.append(Section("Errata that explain differences", words))
    return [*sections, Section("Reproduce", _reproduce(results))]


def _reproduce(results: Results) -> list[Text]:
    command = f"pipla experiment run {results.experiment} --preset {results.preset}"
    command += f" --replicates {results.settings['replicates']} --seed {results.seed}"
    command += " --float64" if results.settings["float64"] else ""
    if results.settings["data"] == "the authors' own":
        command = f"PIPLA_DATA=folder-with-the-authors-files {command}"
    total = sum(row["seconds"] + row["compile_seconds"] for row in results.rows)
    total += results.reference.get("seconds", 0.0)
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return [
        Text(command, code=True),
        Text(f"Rows and reference took {total:.0f} s. Versions: {versions}."),
    ]


def _spread(mean: float | None, sd: float | None, digits: int) -> Cell | None:
    if mean is None:
        return None
    tail = "" if sd is None else f" ± {sd:.{digits}f}"
    return Cell(f"{mean:.{digits}f}{tail}", mean)


def _short(value: float | None) -> Cell | None:
    return None if value is None else Cell(f"{value:g}", value)


def _flag(row: dict[str, Any]) -> str | Cell | None:
    words = verdict(row)
    if words in (None, "agrees"):
        return words
    difference = (row["nmse_last"] or 0.0) - row["paper"]["nmse_last"]
    return Cell(words, difference, "flag")
