"""Comparisons between rows, and sentences computed from them."""

from __future__ import annotations

import numpy as np

from pipla.report import Text
from pipla_lab.experiments.results import Results
from pipla_lab.experiments.theta.rows import ThetaRow

#: Allowance for the noise of an RMS over 20 replicates, about one sixth.
SLACK = 1.1
#: A row differs from the paper if the difference exceeds this many standard deviations: that of the
#: paper's runs, combined with the standard error of our mean.
DEVIATIONS = 2.0


def best_published(results: Results[ThetaRow]) -> ThetaRow | None:
    """The published row with the smallest distance to the reference."""
    rows = [
        row
        for row in results.rows
        if row.variant == "published" and row.distance_to_reference is not None
    ]
    printed = [row for row in rows if row.paper] or rows
    return min(printed, key=_distance, default=None)


def _distance(row: ThetaRow) -> float:
    """The distance to the reference; infinite where no run stayed finite."""
    return np.inf if row.distance_to_reference is None else row.distance_to_reference


def add_comparison(results: Results[ThetaRow]) -> None:
    """Set `evaluations_to_paper_best` of every row.

    The estimate after n steps is the average of theta over the last share of them, the share that
    the row's own average has. The count ends where the RMS distance of that estimate to the
    reference stays within `SLACK` times the distance of the paper's best row.
    """
    best = best_published(results)
    for row in results.rows:
        row.evaluations_to_paper_best = None
        curve, cost = results.curve(row, "estimate_rms"), results.curve(row, "evaluations")
        if best is None or curve is None or cost is None:
            continue
        outside = np.flatnonzero(~(curve <= SLACK * _distance(best)))
        first = outside[-1] + 1 if len(outside) else 0
        if first < len(curve):
            row.evaluations_to_paper_best = float(cost[first])


def verdict(row: ThetaRow) -> str | None:
    """Whether the NMSE `agrees` with the paper's or is `higher` or `lower`; `None` without one."""
    printed, printed_sd = row.paper.get("nmse_last"), row.paper.get("nmse_last_sd")
    if printed is None or printed_sd is None:
        return None
    if row.nmse_last is None:
        return "not finite"
    error = (row.nmse_last_sd or 0.0) / np.sqrt(max(row.replicates * row.finite, 1))
    combined = float(np.hypot(printed_sd, error))
    if abs(row.nmse_last - printed) <= DEVIATIONS * combined:
        return "agrees"
    return "higher" if row.nmse_last > printed else "lower"


def table_findings(results: Results[ThetaRow]) -> list[Text]:
    """The recommended rule against the paper's best row, and what the corrections change."""
    found = []
    best = best_published(results)
    ours = next((row for row in results.rows if row.variant == "recommended"), None)
    if best and ours and ours.distance_to_reference is not None:
        found.append(_against_best(results, best, ours))
    for name in ("PIPULA", "PPGD"):
        old = _find(results, name, "published", "approximate")
        new = _find(results, name, "corrected", "exact")
        if old and new and old.nmse_last and new.nmse_last is not None:
            ratio = new.nmse_last / old.nmse_last
            found.append(
                f"{name} corrected (E3), at the same step: NMSE {new.nmse_last:.2f} % instead "
                f"of {old.nmse_last:.2f} %, {ratio:.2f} of it."
            )
    return [Text(sentence) for sentence in found]


def _against_best(results: Results[ThetaRow], best: ThetaRow, ours: ThetaRow) -> str:
    words = (
        f"The recommended rule, without any hand-set number, ends at an RMS distance of "
        f"{ours.distance_to_reference:.4f} from the reference after "
        f"{ours.evaluations:.0f} evaluations per particle; the best published row "
        f"({best.label}) at {best.distance_to_reference:.4f} after {best.evaluations:.0f}."
    )
    then, now = best.evaluations_to_paper_best, ours.evaluations_to_paper_best
    if then and now:
        words += (
            f" It reaches that distance after {now:.0f} evaluations, that row after "
            f"{then:.0f}{f': {then / now:.1f} times as many' if then > now else ''}."
        )
    other = _find(results, "MYIPLA", "published", "approximate")
    if other and other.distance_to_reference:
        ratio = _distance(ours) / _distance(other)
        words += f" Its distance is {ratio:.3f} of published MYIPLA's."
    return words


def rate_findings(results: Results[ThetaRow]) -> list[Text]:
    """How fast the variance of theta falls with N."""
    return [
        Text(f"{name}: the variance of theta falls like N to the power {exponent:.2f}.")
        for name, exponent in exponents(results).items()
    ]


def exponents(results: Results[ThetaRow]) -> dict[str, float]:
    """The least-squares slope of log variance against log N, by algorithm."""
    found = {}
    for name in dict.fromkeys(row.algorithm for row in results.rows):
        rows = [r for r in results.rows if r.algorithm == name and r.theta_variance]
        if len(rows) > 1:
            counts = np.log([row.num_particles for row in rows])
            variances = np.log([row.theta_variance or np.nan for row in rows])
            found[name] = float(np.polyfit(counts, variances, 1)[0])
    return found


def ablation_findings(results: Results[ThetaRow]) -> list[Text]:
    """The range of NMSE over the grid, with the published and with the exact prox."""
    found = []
    for name in dict.fromkeys(row.algorithm for row in results.rows):
        parts = []
        for prox in ("approximate", "exact"):
            values = [
                row.nmse_last
                for row in results.rows
                if (row.algorithm, row.prox) == (name, prox) and row.nmse_last is not None
            ]
            if values:
                parts.append(f"{min(values):.2g} to {max(values):.2g} % ({prox} prox)")
        found.append(Text(f"{name}: NMSE over the grid is {' and '.join(parts)}."))
    return found


def _find(results: Results[ThetaRow], algorithm: str, variant: str, prox: str) -> ThetaRow | None:
    wanted = (algorithm, variant, prox)
    return next((r for r in results.rows if (r.algorithm, r.variant, r.prox) == wanted), None)
