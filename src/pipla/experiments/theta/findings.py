"""Sentences below the table, computed from it: nothing is claimed that the rows do not show."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.experiments.results import Results
from pipla.experiments.theta.comparison import best_published
from pipla.report.page import Text


def table_findings(results: Results) -> list[Text]:
    """The recommended rule against the paper's best row, and what the corrections change."""
    found = []
    best = best_published(results)
    ours = next((row for row in results.rows if row["variant"] == "recommended"), None)
    if best and ours and ours["distance_to_reference"] is not None:
        found.append(_against_best(results, best, ours))
    for name in ("PIPULA", "PPGD"):
        old = _find(results, name, "published", "approximate")
        new = _find(results, name, "corrected", "exact")
        if old and new and old["nmse_last"] and new["nmse_last"] is not None:
            ratio = new["nmse_last"] / old["nmse_last"]
            found.append(
                f"{name} corrected (E3), at the same step: NMSE {new['nmse_last']:.2f} % instead "
                f"of {old['nmse_last']:.2f} %, {ratio:.2f} of it."
            )
    return [Text(sentence) for sentence in found]


def _against_best(results: Results, best: dict[str, Any], ours: dict[str, Any]) -> str:
    words = (
        f"The recommended rule, whose numbers nobody chose, ends at an RMS distance of "
        f"{ours['distance_to_reference']:.4f} from the reference after "
        f"{ours['evaluations']:.0f} evaluations a particle; the best published row "
        f"({best['label']}) at {best['distance_to_reference']:.4f} after {best['evaluations']:.0f}."
    )
    then, now = best["evaluations_to_paper_best"], ours["evaluations_to_paper_best"]
    if then and now:
        words += (
            f" It is as near as that row after {now:.0f} evaluations, that row itself after "
            f"{then:.0f}{f': {then / now:.1f} times as many' if then > now else ''}."
        )
    other = _find(results, "MYIPLA", "published", "approximate")
    if other and other["distance_to_reference"]:
        ratio = ours["distance_to_reference"] / other["distance_to_reference"]
        words += f" Its distance is {ratio:.3f} of published MYIPLA's."
    return words


def rate_findings(results: Results) -> list[Text]:
    """The slopes of log variance against log N."""
    return [
        Text(f"{name}: the variance of theta falls like N to the power {slope:.2f}.")
        for name, slope in slopes(results).items()
    ]


def slopes(results: Results) -> dict[str, float]:
    """The least-squares slope of log variance against log N, by algorithm."""
    found = {}
    for name in dict.fromkeys(row["algorithm"] for row in results.rows):
        rows = [r for r in results.rows if r["algorithm"] == name and r["theta_variance"]]
        if len(rows) > 1:
            counts = np.log([row["num_particles"] for row in rows])
            variances = np.log([row["theta_variance"] for row in rows])
            found[name] = float(np.polyfit(counts, variances, 1)[0])
    return found


def ablation_findings(results: Results) -> list[Text]:
    """The range of NMSE over the grid, with the published and with the exact prox."""
    found = []
    for name in dict.fromkeys(row["algorithm"] for row in results.rows):
        parts = []
        for prox in ("approximate", "exact"):
            values = [
                row["nmse_last"]
                for row in results.rows
                if (row["algorithm"], row["prox"]) == (name, prox) and row["nmse_last"] is not None
            ]
            if values:
                parts.append(f"{min(values):.2g} to {max(values):.2g} % ({prox} prox)")
        found.append(Text(f"{name}: NMSE over the grid is {' and '.join(parts)}."))
    return found


def _find(results: Results, algorithm: str, variant: str, prox: str) -> dict[str, Any] | None:
    wanted = (algorithm, variant, prox)
    return next(
        (r for r in results.rows if (r["algorithm"], r["variant"], r["prox"]) == wanted), None
    )
