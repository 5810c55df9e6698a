"""Predictions beside observations: what a page shows of how well a model fits."""

from __future__ import annotations

import numpy as np

from pipla.report.page import Figure
from pipla.report.plots import new_figure

#: Rows that are drawn beside their predictions, at most.
MOST_DRAWN = 2000


def some_rows(count: int) -> np.ndarray:
    """The places of at most `MOST_DRAWN` of so many rows, evenly spaced."""
    return np.linspace(0, count - 1, min(count, MOST_DRAWN)).astype(int)


def calibration(chances: np.ndarray, happened: np.ndarray, what: str) -> Figure:
    """Frequencies beside predicted probabilities, in ten groups of equal size.

    Arguments:
        chances: the predicted probability of each row.
        happened: whether it came true.
        what: what it is the probability of.
    """
    figure, (axis,) = new_figure(1, width=5, height=4)
    edges = np.quantile(chances, np.linspace(0, 1, 11))
    bins = np.clip(np.searchsorted(edges, chances, side="right") - 1, 0, 9)
    groups = [bins == b for b in range(10) if np.any(bins == b)]
    axis.plot([chances[g].mean() for g in groups], [happened[g].mean() for g in groups], "o-")
    axis.plot([0, 1], [0, 1], ":", color="grey")
    axis.set(xlabel=f"predicted probability of {what}", ylabel="frequency")
    return Figure(figure, "Calibration on the given rows, in ten groups of equal size.")


def observed_against(predicted: np.ndarray, observed: np.ndarray) -> Figure:
    """Observed numbers beside predicted ones."""
    figure, (axis,) = new_figure(1, width=5, height=4)
    axis.plot(predicted, observed, ".", markersize=3)
    ends = [min(predicted.min(), observed.min()), max(predicted.max(), observed.max())]
    axis.plot(ends, ends, ":", color="grey")
    axis.set(xlabel="predicted", ylabel="observed")
    text = f"Observed against predicted, on (at most {MOST_DRAWN} of) the given rows."
    return Figure(figure, text)
