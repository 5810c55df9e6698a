"""Tables of experiments about theta: against the paper's numbers and against the maximiser."""

from __future__ import annotations

from pipla.report import Cell, Table, fixed
from pipla_lab.experiments.base import mean_sd
from pipla_lab.experiments.results import Results
from pipla_lab.experiments.theta.findings import verdict
from pipla_lab.experiments.theta.rows import ThetaRow


def paper_table(results: Results[ThetaRow]) -> Table:
    """Our numbers beside the published ones, with differences flagged."""
    columns = ["algorithm", "prox", "variant", *_detail(results), "step", "smoothing"]
    columns += ["NMSE last", "paper", "NMSE average", "paper", "verdict"]
    rows = []
    for row in results.rows:
        paper = row.paper
        rows.append(
            [
                *_names(results, row),
                _short(row.step_size),
                _short(row.smoothing),
                mean_sd(row.nmse_last, row.nmse_last_sd, 2),
                mean_sd(paper.get("nmse_last"), paper.get("nmse_last_sd"), 2),
                mean_sd(row.nmse_average, row.nmse_average_sd, 2),
                fixed(paper.get("nmse_average"), 2),
                _flag(row),
            ]
        )
    return Table(columns, rows)


def reference_table(results: Results[ThetaRow]) -> Table:
    """Each row against the maximiser, and what it cost."""
    columns = ["algorithm", "prox", "variant", *_detail(results), "theta", "NMSE last", "bias"]
    columns += ["distance", "evaluations", "to paper's best", "seconds", "finite"]
    rows = [
        [
            *_names(results, row),
            mean_sd(row.theta_mean, row.theta_sd, 3),
            fixed(row.nmse_last, 2),
            fixed(row.bias, 4),
            fixed(row.distance_to_reference, 4),
            fixed(row.evaluations, 0),
            fixed(row.evaluations_to_paper_best, 0),
            fixed(row.seconds, 1),
            Cell(f"{100 * row.finite:.0f} %", row.finite),
        ]
        for row in results.rows
    ]
    return Table(columns, rows)


def _detail(results: Results[ThetaRow]) -> list[str]:
    return ["detail"] if any(row.detail for row in results.rows) else []


def _names(results: Results[ThetaRow], row: ThetaRow) -> list[str]:
    return [row.algorithm, row.prox, row.variant, *(row.detail for _ in _detail(results))]


def _short(value: float | None) -> Cell | None:
    return None if value is None else Cell(f"{value:g}", value)


def _flag(row: ThetaRow) -> str | Cell | None:
    found = verdict(row)
    if found is None or found == "agrees":
        return found
    difference = (row.nmse_last or 0.0) - row.paper["nmse_last"]
    return Cell(found, difference, "flag")
