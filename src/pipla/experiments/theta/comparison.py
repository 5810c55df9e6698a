"""How soon a row is as good as the paper's best, and whether it agrees with what was printed."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.experiments.results import Results

#: An RMS over 20 replicates is itself uncertain by a sixth.
SLACK = 1.1
#: A row differs from the paper beyond so many deviations: those of the paper's runs, combined with
#: the standard error of our mean.
DEVIATIONS = 2.0


def best_published(results: Results) -> dict[str, Any] | None:
    """The published row that comes nearest to the reference."""
    rows = [
        row
        for row in results.rows
        if row["variant"] == "published" and row["distance_to_reference"] is not None
    ]
    printed = [row for row in rows if row["paper"]] or rows
    return min(printed, key=lambda row: row["distance_to_reference"], default=None)


def add_comparison(results: Results) -> None:
    """Set `evaluations_to_paper_best` of every row.

    The estimate after n steps is the average of theta over the last share of them (the share that
    the row's own average has); counted are the evaluations after which the RMS distance of that
    estimate to the reference stays within `SLACK` of the distance of the paper's best row.
    """
    best = best_published(results)
    for row in results.rows:
        row["evaluations_to_paper_best"] = None
        curve, cost = results.curve(row, "estimate_rms"), results.curve(row, "evaluations")
        if best is None or curve is None or cost is None:
            continue
        outside = np.flatnonzero(~(curve <= SLACK * best["distance_to_reference"]))
        first = outside[-1] + 1 if len(outside) else 0
        if first < len(curve):
            row["evaluations_to_paper_best"] = float(cost[first])


def verdict(row: dict[str, Any]) -> str | None:
    """`agrees`, `higher` or `lower` than the paper's NMSE; `None` where it printed none."""
    printed, spread = row["paper"].get("nmse_last"), row["paper"].get("nmse_last_sd")
    if printed is None or spread is None:
        return None
    if row["nmse_last"] is None:
        return "not finite"
    error = (row["nmse_last_sd"] or 0.0) / np.sqrt(max(row["replicates"] * row["finite"], 1))
    combined = float(np.hypot(spread, error))
    if abs(row["nmse_last"] - printed) <= DEVIATIONS * combined:
        return "agrees"
    return "higher" if row["nmse_last"] > printed else "lower"
