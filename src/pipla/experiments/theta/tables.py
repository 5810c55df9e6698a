"""Tables of rows that are replicates: theta beside the paper's numbers and the maximiser."""

from __future__ import annotations

from typing import Any

from pipla.experiments.results import Results
from pipla.experiments.theta.comparison import verdict
from pipla.report.page import Cell, Table, fixed


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
                spread(row["nmse_last"], row["nmse_last_sd"], 2),
                spread(paper.get("nmse_last"), paper.get("nmse_last_sd"), 2),
                spread(row["nmse_average"], row["nmse_average_sd"], 2),
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
            spread(row["theta_mean"], row["theta_sd"], 3),
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


def spread(mean: float | None, sd: float | None, digits: int) -> Cell | None:
    """`mean ± sd`, sorted by the mean."""
    if mean is None:
        return None
    tail = "" if sd is None else f" ± {sd:.{digits}f}"
    return Cell(f"{mean:.{digits}f}{tail}", mean)


def _detail(results: Results) -> list[str]:
    return ["detail"] if any(row["detail"] for row in results.rows) else []


def _names(results: Results, row: dict[str, Any]) -> list[str]:
    return [row["algorithm"], row["prox"], row["variant"], *(row[n] for n in _detail(results))]


def _short(value: float | None) -> Cell | None:
    return None if value is None else Cell(f"{value:g}", value)


def _flag(row: dict[str, Any]) -> str | Cell | None:
    words = verdict(row)
    if words in (None, "agrees"):
        return words
    difference = (row["nmse_last"] or 0.0) - row["paper"]["nmse_last"]
    return Cell(words, difference, "flag")
