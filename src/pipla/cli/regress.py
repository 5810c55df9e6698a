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

from pipla import _files
from pipla._data_files import read_table
from pipla.engine.result import provenance
from pipla.regression.tables import Data, encoded, family_of, model_of
from pipla.report.page import Figure, Section, Table, Text, write_page
from pipla.report.plots import new_figure, require_matplotlib

#: All files of a result.
FILES = ("coefficients.csv", "result.json", "report.html", "predictions.csv")
#: Coefficients that are shown in figures and tables.
MOST = 30

Source = Annotated[Path, typer.Argument(help="A CSV or Parquet file with one row per observation.")]
Target = Annotated[str, typer.Option(help="The column to be explained.")]
Family = Annotated[
    Literal["auto", "linear", "logistic", "poisson"],
    typer.Option(help="auto: labels and two values logistic, other numbers linear."),
]
Prior = Annotated[
    Literal["learned", "laplace", "elastic-net", "group"],
    typer.Option(help="The prior; its shape or scale is learned. group: by column of the table."),
]
Impute = Annotated[
    bool, typer.Option("--impute", help="Replace missing values by the median or a category.")
]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Predictions = Annotated[
    bool, typer.Option("--predictions", help="Write predictions.csv for the rows of the file.")
]
Seed = Annotated[int, typer.Option(help="Seed of the random numbers.")]
Out = Annotated[Path | None, typer.Option(help="Folder; by default beside the file.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the folder of an earlier run.")]


class Job(NamedTuple):
    """What the user asked for."""

    source: Path
    target: str
    family: str
    prior: str
    impute: bool
    drop: tuple[str, ...]
    predictions: bool
    seed: int

    def again(self) -> str:
        """The command that repeats this regression."""
        words = ["pipla", "regress", self.source.name, "--target", self.target]
        words += ["--family", self.family, "--prior", self.prior, "--seed", str(self.seed)]
        words += [word for name in self.drop for word in ("--drop", name)]
        words += ["--impute"] * self.impute + ["--predictions"] * self.predictions
        return shlex.join(words)


def command(
    table: Source,
    target: Target,
    family: Family = "auto",
    prior: Prior = "learned",
    impute: Impute = False,
    drop: Drop = None,
    predictions: Predictions = False,
    seed: Seed = 0,
    out: Out = None,
    force: Force = False,
) -> None:
    """Fit a sparse regression; its prior is learned, and every coefficient has an interval."""
    job = Job(table, target, family, prior, impute, tuple(drop or ()), predictions, seed)
    out = out or table.parent / f"{table.name.split('.')[0]}-regression"
    require_matplotlib()
    names = _check_out(out, job, force)
    began = time.perf_counter()
    rows = read_table(job.source)
    read = time.perf_counter() - began
    data = encoded(rows, job.target, job.drop, job.impute)
    chosen = family_of(job.family, data)
    print(
        f"{job.source.name}: {data.features.shape[0]} rows, {data.features.shape[1]} features "
        f"({read:.1f} s to read); {chosen} regression of {job.target!r}."
    )
    for sentence in data.notes:
        print(f"{sentence}.")
    with _files.whole_folder(out, names, "a folder of pipla regress") as folder:
        began = time.perf_counter()
        model = model_of(chosen, job.prior, job.seed, data)
        seconds = time.perf_counter() - began
        _write(folder, job, chosen, data, model, seconds)
    print(model.summary(feature_names=data.names))
    print(f"\n{seconds:.1f} s. The page: {out / 'report.html'}")


def _check_out(out: Path, job: Job, force: bool) -> tuple[str, ...]:
    """The files that may be replaced; an earlier result is refused before anything is read."""
    for names in (FILES, FILES[:-1]):
        if os.path.lexists(out) and _files.may_replace(out, names) and any(out.iterdir()):
            if not force:
                raise FileExistsError(
                    f"path {str(out)!r} holds an earlier result; add --force to replace it, or "
                    "choose another with --out."
                )
            return names
    return FILES if job.predictions else FILES[:-1]


def _write(folder: Path, job: Job, family: str, data: Data, model: Any, seconds: float) -> None:
    _write_coefficients(folder / "coefficients.csv", data, model)
    answer = {
        "family": family,
        "prior": job.prior,
        "target": job.target,
        "rows": int(data.features.shape[0]),
        "features": int(data.features.shape[1]),
        "theta": model.theta_,
        "theta_interval": {
            name: [end if np.isfinite(end) else None for end in ends]
            for name, ends in model.theta_interval_.items()
        },
        "intercept": np.asarray(model.intercept_).tolist(),
        "notes": list(data.notes),
        "warnings": list(model.warnings_),
        "seconds": seconds,
        "seed": job.seed,
        "versions": provenance(),
    }
    (folder / "result.json").write_text(json.dumps(answer, indent=1, allow_nan=False))
    if job.predictions:
        _write_predictions(folder / "predictions.csv", family, data, model)
    _write_page(folder / "report.html", job, family, data, model)


@contextlib.contextmanager
def _csv(path: Path) -> Iterator[Any]:
    with path.open("w", newline="", encoding="utf-8") as file:
        yield csv.writer(file)


def _outputs(model: Any) -> list[str]:
    """The names of the outputs: the classes, where there are more than two."""
    several = np.ndim(model.coef_) == 2 and len(model.coef_) > 1
    return [str(label) for label in model.classes_] if several else [""]


def _write_coefficients(path: Path, data: Data, model: Any) -> None:
    names, outputs = data.names, _outputs(model)
    shape = (len(outputs), len(names))
    mean, inclusion = model.coef_.reshape(shape), model.inclusion_.reshape(shape)
    low, high = model.coef_interval_.reshape(2, *shape)
    with _csv(path) as file:
        file.writerow(["feature", "class", "mean", "low", "high", "probability"])
        for c, output in enumerate(outputs):
            for j, name in enumerate(names):
                numbers = (mean[c, j], low[c, j], high[c, j], inclusion[c, j])
                file.writerow([name, output, *(f"{number:.8g}" for number in numbers)])


def _write_predictions(path: Path, family: str, data: Data, model: Any) -> None:
    with _csv(path) as file:
        if family == "logistic":
            labels = [str(label) for label in model.classes_]
            file.writerow(["predicted", *(f"probability of {label}" for label in labels)])
            chances = model.predict_proba(data.features)
            for row in chances:
                file.writerow([labels[int(np.argmax(row))], *(f"{p:.6g}" for p in row)])
            return
        file.writerow(["predicted", "low", "high"])
        low, high = model.predict_interval(data.features)
        for numbers in zip(model.predict(data.features), low, high, strict=True):
            file.writerow([f"{number:.8g}" for number in numbers])


# The page. #


def _write_page(path: Path, job: Job, family: str, data: Data, model: Any) -> None:
    learned = Table(
        ("learned", "estimate", "95 % interval"),
        [
            (name, f"{value:.4g}", "[{:.3g}, {:.3g}]".format(*model.theta_interval_[name]))
            for name, value in model.theta_.items()
        ],
    )
    sections = [
        Section("Coefficients", [_coefficients(data, model)]),
        Section("What was learned", [learned, *_prior(model)]),
        Section("Fit", [_calibration(family, data, model)]),
        Section("Reproduce", [Text(job.again(), code=True)]),
    ]
    notes = [*data.notes, *(f"Warning: {doubt}" for doubt in model.warnings_)]
    if notes:
        sections.insert(1, Section("Notes", [Text(f"{note}.") for note in notes]))
    about = (
        f"A {family} regression of {job.target} on {len(data.names)} features, whose sparse prior "
        "was learned from the data."
    )
    write_page(path, f"{job.source.name}: {job.target}", about, sections)


def _coefficients(data: Data, model: Any) -> Figure:
    outputs = _outputs(model)
    names = [f"{name} {output}".strip() for output in outputs for name in data.names]
    inclusion, mean = model.inclusion_.ravel(), model.coef_.ravel()
    scales = np.tile(data.scales, len(outputs))
    order = np.argsort(-inclusion - 1e-9 * np.abs(mean * scales))[:MOST][::-1]
    low, high = (ends.ravel()[order] * scales[order] for ends in model.coef_interval_)
    middle = mean[order] * scales[order]
    figure, (axis,) = new_figure(1, width=7, height=1.2 + 0.22 * len(order))
    places = np.arange(len(order))
    axis.hlines(places, low, high, color="0.6")
    shown = axis.scatter(middle, places, c=inclusion[order], cmap="viridis_r", vmin=0, vmax=1)
    figure.colorbar(shown, ax=axis, label="probability of an effect")
    axis.axvline(0, color="0.8", linewidth=1)
    axis.set_yticks(places, [names[j][:40] for j in order], fontsize=8)
    axis.set_xlabel("effect of one standard deviation of the feature")
    return Figure(
        figure,
        f"Posterior means and 90 % intervals of the {len(order)} most certain coefficients of "
        f"{len(names)}. The colour is the probability that there is an effect.",
    )


def _prior(model: Any) -> list[Figure]:
    if model.prior != "learned":
        return []
    found = model.fit_
    figure, (axis,) = new_figure(1, width=6, height=3)
    labels = ["0", *(f"{np.sqrt(v):.2g}" for v in found.variances[1:])]
    axis.bar(np.arange(len(labels)), found.weights)
    axis.set_xticks(np.arange(len(labels)), labels, fontsize=8)
    axis.set(xlabel="standard deviation of the component", ylabel="weight", yscale="log")
    axis.set_ylim(bottom=1e-5)
    return [
        Figure(
            figure,
            "The learned prior of the coefficients of standardised features (and of a "
            "standardised response): a point mass at 0 and normals.",
        )
    ]


def _calibration(family: str, data: Data, model: Any) -> Figure:
    figure, (axis,) = new_figure(1, width=5, height=4)
    chosen = np.linspace(0, len(data.target) - 1, min(len(data.target), 2000)).astype(int)
    features, target = data.features[chosen], data.target[chosen]
    if family == "logistic":
        chances = model.predict_proba(features)[:, -1]
        happened = (target == model.classes_[-1]).astype(float)
        edges = np.quantile(chances, np.linspace(0, 1, 11))
        bins = np.clip(np.searchsorted(edges, chances, side="right") - 1, 0, 9)
        groups = [bins == b for b in range(10) if np.any(bins == b)]
        axis.plot([chances[g].mean() for g in groups], [happened[g].mean() for g in groups], "o-")
        axis.plot([0, 1], [0, 1], ":", color="grey")
        axis.set(xlabel=f"predicted probability of {model.classes_[-1]}", ylabel="frequency")
        return Figure(figure, "Calibration on the given rows, in ten groups of equal size.")
    predicted = model.predict(features)
    axis.plot(predicted, target, ".", markersize=3)
    ends = [min(predicted.min(), target.min()), max(predicted.max(), target.max())]
    axis.plot(ends, ends, ":", color="grey")
    axis.set(xlabel="predicted", ylabel="observed")
    return Figure(figure, "Observed against predicted, on (at most 2000 of) the given rows.")
