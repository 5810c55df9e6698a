"""`pipla regress`: a sparse regression on a table, without tuning."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer

from pipla import _checks, _files
from pipla._data_files import read_table
from pipla.cli.regress_page import Coefficient, coefficients_of, write_report
from pipla.cli.tables import Decimal, Force, Keep, Level, Out, Seed, refuse_earlier
from pipla.engine.result import provenance
from pipla.regression.tables import Data, encoded, family_of, formulated, model_of
from pipla.report.plots import require_matplotlib

#: All files of a result.
FILES = ("coefficients.csv", "result.json", "report.html", "predictions.csv")

Source = Annotated[
    Path, typer.Argument(help="A CSV, TSV or Parquet file with one row per observation.")
]
Target = Annotated[str | None, typer.Option(help="The column to be explained.")]
Formula = Annotated[
    str | None,
    typer.Option(help="Target and terms, 'y ~ age * sex + C(city)', in place of --target."),
]
Family = Annotated[
    Literal["auto", "linear", "logistic", "poisson"],
    typer.Option(help="auto: labels and two values logistic, small counts poisson, else linear."),
]
Prior = Annotated[
    Literal["learned", "laplace", "elastic-net", "group"],
    typer.Option(help="The prior; its shape or scale is learned. group: by column of the table."),
]
Impute = Annotated[
    bool,
    typer.Option("--impute", help="Replace missing values, and leave out rows without a target."),
]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Dates = Annotated[
    Literal["days", "season"],
    typer.Option(help="Dates in days; season: also the time of the year and the weekday."),
]
Predictions = Annotated[
    bool, typer.Option("--predictions", help="Write predictions.csv for the rows of the file.")
]


class Job(NamedTuple):
    """What the user asked for."""

    source: Path
    target: str | None
    formula: str | None
    family: str
    prior: str
    level: float
    impute: bool
    drop: tuple[str, ...]
    keep: tuple[str, ...]
    dates: str
    decimal: str
    predictions: bool
    seed: int

    def checked(self) -> Job:
        """The same, or an error about an argument; the table is not needed for that."""
        _checks.level(self.level)
        _checks.integer("seed", self.seed, least=0)
        if (self.target is None) == (self.formula is None):
            raise ValueError("either --target or --formula is needed, and not both.")
        if self.formula is not None and (self.drop or self.keep or self.dates != "days"):
            raise ValueError("--formula names its columns; leave out --drop, --keep and --dates.")
        return self

    def data(self) -> Data:
        """The table as features and target."""
        rows = read_table(self.source, decimal=self.decimal)
        if self.formula is not None:
            return formulated(rows, self.formula, self.impute)
        return encoded(rows, self.target or "", self.drop, self.keep, self.impute, self.dates)

    def again(self) -> str:
        """The command that repeats this regression."""
        words = ["pipla", "regress", self.source.name]
        words += ["--target", self.target] if self.target is not None else []
        words += ["--formula", self.formula] if self.formula is not None else []
        words += ["--family", self.family, "--prior", self.prior, "--seed", str(self.seed)]
        words += ["--level", f"{self.level:g}"]
        words += [word for name in self.drop for word in ("--drop", name)]
        words += [word for name in self.keep for word in ("--keep", name)]
        words += ["--dates", self.dates] if self.dates != "days" else []
        words += ["--decimal", self.decimal] if self.decimal != "auto" else []
        words += ["--impute"] * self.impute + ["--predictions"] * self.predictions
        return shlex.join(words)


def command(
    table: Source,
    target: Target = None,
    formula: Formula = None,
    family: Family = "auto",
    prior: Prior = "learned",
    level: Level = 0.9,
    impute: Impute = False,
    drop: Drop = None,
    keep: Keep = None,
    dates: Dates = "days",
    decimal: Decimal = "auto",
    predictions: Predictions = False,
    seed: Seed = 0,
    out: Out = None,
    force: Force = False,
) -> None:
    """Fit a sparse regression; its prior is learned, and every coefficient has an interval."""
    columns = (tuple(drop or ()), tuple(keep or ()))
    job = Job(
        *(table, target, formula, family, prior, level, impute, *columns),
        *(dates, decimal, predictions, seed),
    ).checked()
    require_matplotlib()
    began = time.perf_counter()
    data = job.data()
    chosen, why = family_of(job.family, data)
    data = data._replace(notes=(*data.notes, *([why] if why else [])))
    read = time.perf_counter() - began
    out = out or table.parent / f"{table.name.split('.')[0]}-regression"
    names = _names(out, job, force)
    print(
        f"{job.source.name}: {data.features.shape[0]} rows, {data.features.shape[1]} features "
        f"({read:.1f} s to read); {chosen} regression of {data.label!r}."
    )
    for sentence in data.notes:
        print(sentence)
    with _files.whole_folder(out, names, "a folder of pipla regress") as folder:
        began = time.perf_counter()
        model = model_of(chosen, job.prior, job.seed, data)
        seconds = time.perf_counter() - began
        _write(folder, job, chosen, data, model, seconds)
    print(model.summary(feature_names=data.shown, level=job.level))
    print(f"\n{seconds:.1f} s. The page: {out / 'report.html'}")


def _names(out: Path, job: Job, force: bool) -> tuple[str, ...]:
    """The files that may be replaced; an earlier result is refused unless `force`."""
    for names in (FILES, FILES[:-1]):
        refuse_earlier(out, names, force)
        if os.path.lexists(out) and _files.may_replace(out, names) and any(out.iterdir()):
            return names
    return FILES if job.predictions else FILES[:-1]


def _write(folder: Path, job: Job, family: str, data: Data, model: Any, seconds: float) -> None:
    rows = coefficients_of(data, model, job.level)
    _write_coefficients(folder / "coefficients.csv", rows)
    learned = model._learned(job.level)
    answer = {
        "family": family,
        "prior": job.prior,
        "target": data.label,
        "formula": job.formula,
        "level": job.level,
        "rows": int(data.features.shape[0]),
        "features": int(data.features.shape[1]),
        "theta": {name: middle for name, (middle, _, _) in learned.items()},
        "theta_interval": {
            name: [end if np.isfinite(end) else None for end in ends]
            for name, (_, *ends) in learned.items()
        },
        "intercept": np.asarray(model.intercept_).tolist(),
        "notes": list(data.notes),
        "warnings": list(map(str, model.findings_)),
        "seconds": seconds,
        "seed": job.seed,
        "versions": provenance(),
    }
    (folder / "result.json").write_text(json.dumps(answer, indent=1, allow_nan=False))
    if job.predictions:
        _write_predictions(folder / "predictions.csv", family, data, model, job.level)
    write_report(
        folder / "report.html",
        family,
        data,
        model,
        rows,
        source=job.source.name,
        level=job.level,
        again=job.again(),
    )


@contextlib.contextmanager
def _csv(path: Path) -> Iterator[Any]:
    with path.open("w", newline="", encoding="utf-8") as file:
        yield csv.writer(file)


def _write_coefficients(path: Path, rows: list[Coefficient]) -> None:
    with _csv(path) as file:
        file.writerow(["feature", "class", "mean", "low", "high", "probability", "relative to"])
        for row in rows:
            numbers = (row.mean, row.low, row.high, row.probability)
            shown = (f"{number:.8g}" for number in numbers)
            file.writerow([row.name, row.output, *shown, row.reference])


def _write_predictions(path: Path, family: str, data: Data, model: Any, level: float) -> None:
    features = data.rows()
    with _csv(path) as file:
        if family == "logistic":
            labels = [str(label) for label in model.classes_]
            file.writerow(["predicted", *(f"probability of {label}" for label in labels)])
            chances = model.predict_proba(features)
            for row in chances:
                file.writerow([labels[int(np.argmax(row))], *(f"{p:.6g}" for p in row)])
            return
        file.writerow(["predicted", "low", "high"])
        low, high = model.predict_interval(features, level)
        for numbers in zip(model.predict(features), low, high, strict=True):
            file.writerow([f"{number:.8g}" for number in numbers])
