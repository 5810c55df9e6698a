"""`pipla complete`: fill in the gaps of a table, with intervals."""

from __future__ import annotations

import csv
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer

from pipla import _checks, _files
from pipla._data_files import Table as DataTable
from pipla._data_files import read_table
from pipla._dialects import listed
from pipla.cli.tables import Decimal, Force, Keep, Level, Out, Seed, refuse_earlier
from pipla.completion import Completion, Triplets, complete
from pipla.completion._outputs import image_of
from pipla.engine.result import provenance
from pipla.report import Figure, Section, Table, Text, fixed, write_page
from pipla.report.plots import require_matplotlib

#: Everything that the folder holds.
FILES = {"completed.csv", "lower.csv", "upper.csv", "result.json", "report.html"}
#: The largest matrix that is written out; three tables of it take about 700 MB.
MOST_CELLS = 2 * 10**7

Source = Annotated[Path, typer.Argument(help="CSV, TSV or Parquet; missing cells are empty or NA.")]
Columns = Annotated[
    str | None,
    typer.Option("--triplets", help="The file lists entries: columns of row, column and value."),
]
Prior = Annotated[
    Literal["factors", "nuclear"],
    typer.Option(help="factors, or the nuclear norm of the paper."),
]
NoiseFree = Annotated[
    bool, typer.Option("--noise-free", help="Intervals of entries without noise, not of cells.")
]
MaxRank = Annotated[int | None, typer.Option(help="The most columns of the factors.")]
Steps = Annotated[int, typer.Option("--steps", help="Steps of the sampler.")]


class Given(NamedTuple):
    """What a file holds.

    Attributes:
        observed: a matrix with NaN where a cell is missing, or triplets.
        rows: the label of each row.
        columns: the name of each column.
        label: the heading of the labels.
        kept: columns that are not numbers, by name; they are passed through.
        order: the names of all columns as the file has them.
        notes: what was done to the file, one sentence each.
    """

    observed: Any
    rows: list[str]
    columns: list[str]
    label: str
    kept: dict[str, list[str]]
    order: list[str]
    notes: list[str]


def command(
    table: Source,
    triplets: Columns = None,
    prior: Prior = "factors",
    level: Level = 0.9,
    noise_free: NoiseFree = False,
    keep: Keep = None,
    decimal: Decimal = "auto",
    max_rank: MaxRank = None,
    steps: Steps = 600,
    seed: Seed = 0,
    out: Out = None,
    force: Force = False,
) -> None:
    """Fill in the missing cells of a table of low rank; rank and noise are learned."""
    require_matplotlib()
    level, seed = _checks.level(level), _checks.seed(seed)
    steps = _checks.integer("steps", steps, least=3)
    if max_rank is not None:
        max_rank = _checks.integer("max_rank", max_rank, least=1)
    given = read(table, triplets, tuple(keep or ()), decimal)
    out = out or table.parent / f"{table.name.split('.')[0]}-completed"
    refuse_earlier(out, FILES, force)
    if os.path.lexists(out):
        _files.claim(out, FILES, "a folder of pipla complete")
    for note in given.notes:
        print(note)
    found = complete(given.observed, prior=prior, max_rank=max_rank, num_steps=steps, seed=seed)
    print(found)
    again = ["pipla", "complete", table.name, "--level", f"{level:g}", "--seed", str(seed)]
    again += ["--prior", prior, "--steps", str(steps)] + ["--noise-free"] * noise_free
    again += [] if triplets is None else ["--triplets", triplets]
    again += [word for name in keep or () for word in ("--keep", name)]
    again += ["--decimal", decimal] if decimal != "auto" else []
    again += [] if max_rank is None else ["--max-rank", str(max_rank)]
    with _files.whole_folder(out, FILES, "a folder of pipla complete") as folder:
        _write(folder, given, found, level, noise_free, shlex.join(again), table.name)
    print(f"The page: {out / 'report.html'}")


# The table. #


def read(
    path: Path, triplets: str | None, keep: Sequence[str] = (), decimal: str = "auto"
) -> Given:
    """The matrix in a file: a table with gaps, or a list of its entries."""
    table = read_table(path, dates=False, decimal=decimal)
    if triplets is None:
        return _from_table(table, keep)
    if keep:
        raise ValueError("keep is for a table; with --triplets, leave it out.")
    return _from_triplets(table, triplets)


def _from_table(table: DataTable, keep: Sequence[str]) -> Given:
    kept_places = {table.place("keep", name) for name in keep}
    numeric = [i for i, kind in enumerate(table.kinds) if kind in ("integer", "real")]
    # pandas reads a column without a single value as real, all missing.
    indices = [i for i in numeric if i not in kept_places and table.is_index(i)]
    if len(indices) < len(numeric):
        numeric = [i for i in numeric if i not in indices]
    text = [i for i in range(len(table.names)) if i not in numeric]
    if not numeric:
        raise ValueError(
            f"table has no column of numbers among {len(table.names)}; with one entry per line, "
            "name its columns: --triplets row,column,value."
        )
    matrix = np.column_stack([table.columns[i].astype(np.float64) for i in numeric])
    names = [table.names[i] for i in numeric]
    notes = list(table.notes)
    if text:
        shown = listed([table.names[i] for i in text])
        notes.append(f"Passed through, as texts or numbers of the rows: {shown}.")
    empty = np.isnan(matrix).all(axis=0)
    if empty.any():
        shown = listed([names[i] for i in np.flatnonzero(empty)])
        notes.append(f"Columns without a single value are left empty: {shown}.")
        if empty.all():
            raise ValueError("table has no numbers: all its numeric columns are empty.")
    blank = int(np.isnan(matrix).all(axis=1).sum())
    if blank:
        notes.append(f"Rows without a single value: {blank}; their cells get the column's mean.")
    if not np.isnan(matrix).any():
        notes.append("No cell is missing: completed.csv is the table.")
    kept = {table.names[i]: ["" if v is None else str(v) for v in table.columns[i]] for i in text}
    labels = [str(i) for i in range(1, table.num_rows + 1)]
    return Given(matrix, labels, names, "", kept, list(table.names), notes)


def _from_triplets(table: DataTable, wanted: str) -> Given:
    names = [name.strip() for name in wanted.split(",")]
    if len(names) != 3 or not all(names) or len(set(names)) < 3:
        raise ValueError(
            f"triplets must name three columns, such as user,item,rating; got {wanted!r}."
        )
    row, column, value = (table.place("triplets", name) for name in names)
    if table.kinds[value] not in ("integer", "real"):
        raise ValueError(f"triplets: the values, {names[2]!r}, must be numbers, not text.")
    values = table.columns[value].astype(np.float64)
    known = ~(table.missing(row) | table.missing(column) | np.isnan(values))
    notes = list(table.notes)
    if not known.all():
        notes.append(f"Lines with a missing row, column or value are left out: {(~known).sum()}.")
    if not known.any():
        raise ValueError("triplets: no line has a row, a column and a value.")
    labels, places = [], []
    for place in (row, column):
        ids, index = np.unique(table.columns[place][known].astype(str), return_inverse=True)
        # Numbers are sorted as numbers.
        if table.kinds[place] != "text":
            order = np.argsort(ids.astype(np.float64), kind="stable")
            ids, index = ids[order], np.argsort(order)[index]
        labels.append([str(label) for label in ids])
        places.append(index)
    shape = (len(labels[0]), len(labels[1]))
    if shape[0] * shape[1] > MOST_CELLS:
        raise ValueError(
            f"triplets span {shape[0]} × {shape[1]} cells, more than {MOST_CELLS} to write out; "
            "use pipla.completion.complete and its `entries`."
        )
    twice = len(values[known]) - len(np.unique(places[0] * shape[1] + places[1]))
    if twice:
        notes.append(f"Repeated entries: {twice}; they count as repeated observations.")
    observed = Triplets(places[0], places[1], values[known], shape)
    return Given(observed, labels[0], labels[1], names[0], {}, labels[1], notes)


# The folder. #


def _write(
    folder: Path,
    given: Given,
    found: Completion,
    level: float,
    noise_free: bool,
    again: str,
    name: str,
) -> None:
    seen, matrix = found.observed.mask(), found.observed.averaged()
    # A list of entries may be too large a table to condition on row by row.
    listed = isinstance(given.observed, Triplets)
    filled = np.where(seen, matrix, found.mean()) if listed else found.fill(matrix)
    low, high = found.interval(level, noisy=not noise_free)
    # An observed cell is what it is.
    low, high = np.where(seen, matrix, low), np.where(seen, matrix, high)
    for file, values in (("completed", filled), ("lower", low), ("upper", high)):
        _write_table(folder / f"{file}.csv", given, values, seen)
    what = "entry without noise" if noise_free else "missing cell, noise included"
    numbers = {
        "rows": found.shape[0],
        "columns": found.shape[1],
        "observed": len(found.observed.values),
        "missing": int((~seen).sum()),
        "prior": found.prior,
        "rank": found.rank,
        "noise": found.noise,
        "noise_source": found.noise_source,
        "noise_mcse": found.noise_mcse,
        "strength": np.asarray(found.strength, float).tolist(),
        "level": level,
        "interval": what,
        "seconds": found.seconds,
        "notes": given.notes,
        "warnings": list(map(str, found.findings)),
        "sound": not found.findings,
        "command": again,
        "versions": provenance(),
    }
    (folder / "result.json").write_text(json.dumps(numbers, indent=1, allow_nan=False))
    _write_page(folder, numbers, image_of(found, level, noisy=not noise_free), name)


def _write_table(path: Path, given: Given, values: np.ndarray, seen: np.ndarray) -> None:
    """Observed cells in full, predicted ones with six digits or more, empty columns empty."""
    known, digits = np.any(seen, axis=0).tolist(), [_digits(column) for column in values.T]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        labelled = bool(given.label)
        writer.writerow([*[given.label] * labelled, *given.order])
        for i, (label, row, mask) in enumerate(zip(given.rows, values, seen, strict=True)):
            cells = {name: column[i] for name, column in given.kept.items()}
            for name, value, exact, any_known, shown in zip(
                given.columns, row, mask, known, digits, strict=True
            ):
                cells[name] = f"{value:.{15 if exact else shown}g}" if any_known else ""
            writer.writerow([*[label] * labelled, *(cells[name] for name in given.order)])


def _digits(values: np.ndarray) -> int:
    """Six digits of what varies: a column of values around 1e9 that vary by 1 needs fifteen."""
    finite = values[np.isfinite(values)]
    spread, size = (float(np.std(finite)), float(np.max(np.abs(finite)))) if finite.size else (0, 0)
    return min(15, 6 + int(np.ceil(np.log10(max(size / spread, 1.0))))) if spread > 0 else 6


def _write_page(folder: Path, numbers: dict[str, Any], image: Figure, name: str) -> None:
    source = {"learned": "learned", "given": "given"}.get(
        numbers["noise_source"], "chosen at held-out cells; no estimate of the noise"
    )
    table = Table(
        ("what", "value"),
        [
            ("rows × columns", f"{numbers['rows']} × {numbers['columns']}"),
            ("missing cells", numbers["missing"]),
            ("rank", numbers["rank"]),
            ("noise (standard deviation)", fixed(numbers["noise"], 4)),
            ("the noise was", source),
            ("seconds", fixed(numbers["seconds"], 1)),
        ],
    )
    said = [Text(note) for note in (*numbers["notes"], *numbers["warnings"])]
    write_page(
        folder / "report.html",
        f"{name}, completed",
        "A table whose missing cells were predicted by a matrix of low rank; its rank and its "
        "noise were learned from the observed cells.",
        [
            Section("Numbers", [table, *said]),
            Section("The table", [image]),
            Section("Reproduce", [Text(numbers["command"], code=True)]),
        ],
    )
