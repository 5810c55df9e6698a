"""Sparse regressions beside what people use today: quality and time, one table and one page.

    python benchmarks/regression/compare.py                       # the tables
    python benchmarks/regression/compare.py --splits 3            # quicker
    python benchmarks/regression/compare.py --only held-out       # sets that nothing was chosen by
    python benchmarks/regression/compare.py --out results/regression   # and results/…/report.html

Every method is called as its users would call it, with its defaults, on features scaled to
variance 1. Quality is the RMSE of predictions relative to the noise (simulations), relative to the
standard deviation of the response (diabetes), or the log-loss. `pip install skglm numpyro` and
R with glmnet and susieR (Debian: r-cran-glmnet, r-cran-susier) for all rows; what is not
installed is left out. Seconds are those of the processor, of all threads and child processes (so
that other programs on the machine do not matter much); those of R include its start and
the files. With `--out`, each result is written as soon as it is known, and a later call with the
same folder computes only what is missing: delete the folder after a change of the code.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from data_sets import Sets, Split, held_out, labels, numbers, seen
from methods import FOR_LABELS, FOR_NUMBERS, MOST_FEATURES, ONCE, Method, warm
from sklearn.metrics import log_loss

from pipla.report.page import Cell, Section, Table, Text, write_page

warnings.simplefilter("ignore")  # of all methods alike: convergence, deprecation
COLUMNS = ("data", "method", "seeds", "loss", "loss less pipla's", "CPU s", "of pipla's")


def rmse(data: Split, predicted: np.ndarray) -> float:
    return float(np.sqrt(np.mean((data.y_test - predicted) ** 2))) / data.unit


def logistic_loss(data: Split, predicted: np.ndarray) -> float:
    return float(log_loss(data.y_test, predicted))


class Part(NamedTuple):
    """A table: its title, its data for a seed, the methods, and the loss."""

    title: str
    sets: Callable[[int], Sets]
    methods: dict[str, Method]
    loss: Callable[[Split, np.ndarray], float]


PARTS = {
    "numbers": Part("Numbers: RMSE", numbers, FOR_NUMBERS, rmse),
    "labels": Part("Labels: log-loss", labels, FOR_LABELS, logistic_loss),
    "seen": Part("Labels looked at: log-loss", seen, FOR_LABELS, logistic_loss),
    "held-out": Part("Other labels: log-loss", held_out, FOR_LABELS, logistic_loss),
}


class Results:
    """Loss and seconds by data, method and seed; kept in a file if there is a folder."""

    def __init__(self, folder: Path | None) -> None:
        self.file = None if folder is None else folder / "results.jsonl"
        self.cells: dict[tuple[str, str, int], tuple[float, float]] = {}
        if self.file is not None and self.file.exists():
            for line in self.file.read_text().splitlines():
                name, method, seed, loss, seconds = json.loads(line)
                self.cells[name, method, seed] = (loss, seconds)

    def add(self, name: str, method: str, seed: int, loss: float, seconds: float) -> None:
        self.cells[name, method, seed] = (loss, seconds)
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as file:
                file.write(json.dumps([name, method, seed, loss, seconds]) + "\n")

    def of(self, name: str, method: str) -> dict[int, tuple[float, float]]:
        """Loss and seconds of each seed."""
        return {seed: cell for (n, m, seed), cell in self.cells.items() if (n, m) == (name, method)}


def cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    return sum(os.times()[:4])


def measure(part: Part, splits: int, match: str, chosen: list[str], results: Results) -> list[str]:
    """Fit what is missing; the names of the data."""
    names: list[str] = []
    for seed in range(splits):
        for name, data in part.sets(seed):
            if match not in name:
                continue
            names += [name] * (seed == 0)
            for method, predict in part.methods.items():
                left_out = bool(chosen) and method not in chosen
                too_slow = (method in ONCE and seed > 0) or (
                    data.x.shape[1] > MOST_FEATURES.get(method, 10**9)
                )
                if left_out or too_slow or (name, method, seed) in results.cells:
                    continue
                began = cpu_seconds()
                try:
                    predicted = predict(data)
                except ImportError:
                    continue
                seconds = cpu_seconds() - began
                results.add(name, method, seed, part.loss(data, predicted), seconds)
    return names


def mean(values: np.ndarray, sign: str = "") -> Cell:
    """The mean and its standard error."""
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}" if len(values) > 1 else ""
    return Cell(f"{values.mean():{sign}.4f}{error}", float(values.mean()))


def table_of(part: Part, names: list[str], results: Results) -> Table:
    """A row per set of data and method; differences and ratios over the seeds that both have."""
    rows: list[list[Any]] = []
    for name in names:
        ours = results.of(name, "pipla")
        for method in part.methods:
            theirs = results.of(name, method)
            both = sorted(ours.keys() & theirs.keys())
            if not both:
                continue
            losses, seconds = np.array([theirs[seed] for seed in both]).T
            our_losses, our_seconds = np.array([ours[seed] for seed in both]).T
            gap = mean(losses - our_losses, "+") if method != "pipla" else None
            ratio = float(seconds.mean() / our_seconds.mean())
            times = [Cell(f"{seconds.mean():.2f}", seconds.mean()), Cell(f"{ratio:.2f}", ratio)]
            rows.append([name, method, len(both), mean(losses), gap, *times])
    return Table(COLUMNS, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10, help="splits of the data, or seeds")
    parser.add_argument("--only", default="numbers,labels,seen,held-out", help="tables, by commas")
    parser.add_argument("--match", default="", help="only sets whose name contains this")
    parser.add_argument("--methods", default="", help="only these, by semicolons")
    parser.add_argument("--out", type=Path, help="a folder for results and page")
    options = parser.parse_args()
    warm()
    results = Results(options.out)
    chosen = [name for name in options.methods.split(";") if name]
    sections = []
    for part in (PARTS[name] for name in options.only.split(",")):
        names = measure(part, options.splits, options.match, chosen, results)
        table = table_of(part, names, results)
        print(f"\n{part.title}\n{table.text()}", flush=True)
        sections.append(Section(part.title, [table]))
    if options.out is not None:
        explained = (__doc__ or "").split("\n\n")[-1].replace("\n", " ")
        sections.append(Section("What was measured", [Text(explained)]))
        lead = "Mean over splits or seeds ± its standard error; differences are paired."
        page = write_page(options.out / "report.html", "Sparse regressions", lead, sections)
        print(f"\n{page}")


if __name__ == "__main__":
    main()
