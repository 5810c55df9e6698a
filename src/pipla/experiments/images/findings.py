"""What the restorations show, in sentences computed from the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.experiments.images.summary import STRENGTH_BAND
from pipla.experiments.results import Results
from pipla.report.page import Text


def deblurring_findings(results: Results) -> list[Text]:
    """The artefact of the published rows, and what correcting it gives."""
    found: list[str] = []
    for name in dict.fromkeys(row["detail"] for row in results.rows):
        reference = results.reference["pictures"][name]
        for row in _rows(results, name, variant="published", algorithm="MYIPLA"):
            found.append(_artefact(row, name, reference, explain=not found))
        for row in _rows(results, name, variant="corrected"):
            found.append(_corrected(row, name, reference))
        for row in _rows(results, name, variant="recommended"):
            found.append(_recommended(row, name, reference))
    return [Text(words) for words in found]


def benchmark_findings(results: Results) -> list[Text]:
    """The recommended rule over noises, against the chains, and against the oracles."""
    found = []
    for ours in (row for row in results.rows if row["variant"] == "recommended"):
        name = ours["detail"]
        found.append(_recommended(ours, name, results.reference["pictures"][name]))
        pace = ours["evaluations_to_strength"]
        for row in _rows(results, name):
            then = row["evaluations_to_strength"]
            if row is not ours and pace and then:
                found.append(
                    f"{row['label']} has t within {100 * STRENGTH_BAND:g} % after {then:.0f} "
                    f"evaluations, the recommended rule after {pace:.0f}: {then / pace:.0f} times "
                    "fewer."
                )
        for row in _rows(results, name, algorithm="MAP"):
            gap = row["psnr"] - ours["map_psnr"]
            found.append(
                f"The MAP at the learned strength is {abs(gap):.2f} dB "
                f"{'below' if gap >= 0 else 'above'} the best MAP that any strength gives "
                f"(t = {row['strength']:.4f}, chosen by looking at the truth)."
            )
        others = [r for r in _rows(results, name) if r["evaluations"] is None]
        others = [r for r in others if r["algorithm"] != "MAP"]
        if others:
            words = ", ".join(f"{r['label']} {r['psnr']:.2f} dB/{r['ssim']:.3f}" for r in others)
            found.append(
                f"PSNR and SSIM without total variation: {words}; the recommended posterior mean "
                f"has {ours['psnr']:.2f}/{ours['ssim']:.3f}, its MAP "
                f"{ours['map_psnr']:.2f}/{ours['map_ssim']:.3f}."
            )
    return [Text(words) for words in found]


def _artefact(row: dict[str, Any], name: str, reference: dict[str, Any], explain: bool) -> str:
    ratio = row["strength"] / reference["strength"]
    words = (
        f"{name}, {row['label']}: theta ends at {row['theta_mean']:.2f} (t = "
        f"{row['strength']:.2f}, {ratio:.0f} times the reference) and the cloud's MSE at "
        f"{row['cloud_mse']:.0f}."
    )
    if not explain:
        return words
    return (
        f"{words} Why: the code hands its whole cloud to a prox for one picture, which reads "
        f"particle 0 only; the other {row['num_particles'] - 1} particles get a black picture as "
        "their proximal point and are pulled towards 0 instead of being smoothed (E5). Theta fits "
        "those."
    )


def _corrected(row: dict[str, Any], name: str, reference: dict[str, Any]) -> str:
    off = 100 * (row["strength"] / reference["strength"] - 1)
    words = (
        f"{name}, {row['label']}: t = {row['strength']:.4f} ({off:+.1f} % of the reference), "
        f"{row['psnr']:.2f} dB after {row['num_steps']} steps"
    )
    if row["evaluations_to_strength"] is None:
        words += "; t has not settled within 2 % of it (E13)"
    return f"{words}."


def _recommended(row: dict[str, Any], name: str, reference: dict[str, Any]) -> str:
    each = row["each"]
    off = 100 * (row["strength"] / reference["strength"] - 1)
    noises = f" ({row['replicates']} noises: t from {_range(each['strength'], 4)})"
    return (
        f"{name}, recommended rule: t = {row['strength']:.4f}, {off:+.1f} % from the reference"
        f"{noises if row['replicates'] > 1 else ''}; posterior mean {_range(each['psnr'], 2)} dB, "
        f"SSIM {_range(each['ssim'], 3)}; MAP {_range(each['map_psnr'], 2)} dB, SSIM "
        f"{_range(each['map_ssim'], 3)}; {_range(each['seconds'], 0)} s."
    )


def _range(values: list[float], digits: int) -> str:
    low, high = f"{np.min(values):.{digits}f}", f"{np.max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _rows(results: Results, name: str, **wanted: str) -> list[dict[str, Any]]:
    return [
        row
        for row in results.rows
        if row["detail"] == name and all(row[key] == value for key, value in wanted.items())
    ]
