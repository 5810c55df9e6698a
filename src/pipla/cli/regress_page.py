"""The page of `pipla regress`: coefficients as a figure and as a table, and how well they fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipla.regression._outputs import figures_of, heading_of
from pipla.regression.tables import Data
from pipla.report.numbers import interval
from pipla.report.page import Cell, Section, Table, Text, fixed, write_page
from pipla.report.predictions import some_rows

#: Coefficients that are shown in figures and tables.
MOST = 30


class Coefficient(NamedTuple):
    """One row of coefficients.csv.

    Attributes:
        name: of the feature.
        output: the class, where there are more than two.
        mean: the posterior mean.
        low, high: the ends of its interval.
        probability: of an effect.
        reference: the category that it is relative to.
        scale: the standard deviation of the feature.
    """

    name: str
    output: str
    mean: float
    low: float
    high: float
    probability: float
    reference: str
    scale: float

    @property
    def shown(self) -> str:
        """The feature, and the class where there are several."""
        return f"{self.name} ({self.output})" if self.output else self.name


def coefficients_of(data: Data, model: Any, level: float) -> list[Coefficient]:
    """All coefficients, class by class, with intervals of this probability."""
    several = np.ndim(model.coef_) == 2 and len(model.coef_) > 1
    outputs = [str(label) for label in model.classes_] if several else [""]
    shape = (len(outputs), len(data.names))
    mean, inclusion = model.coef_.reshape(shape), model.inclusion_.reshape(shape)
    low, high = model._coef_interval(level).reshape(2, *shape)
    return [
        Coefficient(
            name=data.names[j],
            output=output,
            mean=float(mean[c, j]),
            low=float(low[c, j]),
            high=float(high[c, j]),
            probability=float(inclusion[c, j]),
            reference=data.references[j],
            scale=float(data.scales[j]),
        )
        for c, output in enumerate(outputs)
        for j in range(len(data.names))
    ]


def write_report(
    path: Path,
    family: str,
    data: Data,
    model: Any,
    rows: list[Coefficient],
    *,
    source: str,
    level: float,
    again: str,
) -> None:
    """Write the page.

    Arguments:
        path: the file.
        family: of the regression.
        data: what was fitted.
        model: the fitted estimator.
        rows: its coefficients.
        source: the name of the table.
        level: the probability of the intervals.
        again: the command that repeats the regression.
    """
    percent = f"{100 * level:g} % interval"
    learned = Table(
        ("learned", "estimate", percent),
        [
            (name, f"{value:.4g}", interval(low, high))
            for name, (value, low, high) in model._learned(level).items()
        ],
    )
    effects = [abs(row.mean * row.scale) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: (-rows[i].probability, -effects[i]))
    shown = [rows[i] for i in order[:MOST]]
    some = some_rows(len(data.target))
    observed = (data.rows(some), data.target[some])
    coefficients, *prior, fit = figures_of(model, data.names, level, MOST, observed)
    sections = [
        Section(heading_of(model), [coefficients, _table(shown, rows, percent)]),
        Section("What was learned", [learned, *prior]),
        Section("Fit", [fit]),
        Section("Reproduce", [Text(again, code=True)]),
    ]
    notes = [*data.notes, *(f"Warning: {finding}." for finding in model.findings_)]
    if notes:
        sections.insert(1, Section("Notes", [Text(note) for note in notes]))
    about = (
        f"A {family} regression of {data.label} on {len(data.names)} features, whose sparse prior "
        "was learned from the data."
    )
    write_page(path, f"{source}: {data.label}", about, sections)


def _table(shown: list[Coefficient], rows: list[Coefficient], percent: str) -> Table:
    columns = ["feature", "mean", percent, "probability of an effect"]
    cells: list[list[Any]] = [
        [
            row.shown,
            Cell(f"{row.mean:.4g}", row.mean),
            interval(row.low, row.high),
            fixed(row.probability, 2),
        ]
        for row in shown
    ]
    if any(row.reference for row in rows):
        columns.append("relative to")
        cells = [[*cell, row.reference] for cell, row in zip(cells, shown, strict=True)]
    caption = "Posterior means and intervals, for one unit of each feature."
    if len(shown) < len(rows):
        caption += f" All {len(rows)} coefficients are in coefficients.csv."
    return Table(columns, cells, caption)
