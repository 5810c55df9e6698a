"""Sentences about the restored images, computed from the rows."""

from __future__ import annotations

from typing import Any

from pipla.report import Text
from pipla_lab.experiments.images.rows import STRENGTH_BAND, ImageRow
from pipla_lab.experiments.results import Results


def deblurring_findings(results: Results[ImageRow]) -> list[Text]:
    """The artefact of the published rows, and the results without it."""
    found: list[str] = []
    for name in dict.fromkeys(row.image for row in results.rows):
        reference = results.reference["images"][name]
        for row in _rows(results, name, variant="published", algorithm="MYIPLA"):
            found.append(_artefact(row, name, reference, explain=not found))
        for row in _rows(results, name, variant="corrected"):
            found.append(_corrected(row, name, reference))
        for row in _rows(results, name, variant="recommended"):
            found.append(_recommended(row, name, reference))
    return [Text(words) for words in found]


def benchmark_findings(results: Results[ImageRow]) -> list[Text]:
    """The recommended rule against the chains, the peers and the oracles."""
    found = []
    for ours in (row for row in results.rows if row.variant == "recommended"):
        name = ours.image
        found.append(_recommended(ours, name, results.reference["images"][name]))
        pace = ours.evaluations_to_strength
        for row in _rows(results, name):
            then = row.evaluations_to_strength
            if row is not ours and pace and then:
                found.append(
                    f"{row.label} has t within {100 * STRENGTH_BAND:g} % after {then:.0f} "
                    f"evaluations, the recommended rule after {pace:.0f}: {then / pace:.0f} times "
                    "fewer."
                )
        for row in _rows(results, name, algorithm="MAP"):
            if ours.map_psnr is None:
                continue
            gap = row.psnr - ours.map_psnr
            found.append(
                f"The MAP at the learned strength is {abs(gap):.2f} dB "
                f"{'below' if gap >= 0 else 'above'} the best MAP that any strength gives "
                f"(t = {row.strength:.4f}, chosen by looking at the truth)."
            )
        others = [r for r in _rows(results, name) if r.evaluations is None]
        others = [r for r in others if r.algorithm != "MAP"]
        if others:
            words = ", ".join(f"{r.label} {r.psnr:.2f} dB/{r.ssim:.3f}" for r in others)
            found.append(
                f"PSNR and SSIM without total variation: {words}; the recommended posterior mean "
                f"has {ours.psnr:.2f}/{ours.ssim:.3f}, its MAP "
                f"{ours.map_psnr:.2f}/{ours.map_ssim:.3f}."
            )
    return [Text(words) for words in found]


def _artefact(row: ImageRow, name: str, reference: dict[str, Any], explain: bool) -> str:
    ratio = row.strength / reference["strength"]
    words = (
        f"{name}, {row.label}: theta ends at {row.theta_mean:.2f} (t = "
        f"{row.strength:.2f}, {ratio:.0f} times the reference) and the particles' MSE at "
        f"{row.particle_mse:.0f}."
    )
    if not explain:
        return words
    return (
        f"{words} Why: the code passes all particles to a prox for one image, which reads "
        f"particle 0 only; the other {(row.num_particles or 1) - 1} particles get a black image as "
        "their proximal point and are pulled towards 0 instead of being smoothed (E5). Theta fits "
        "those."
    )


def _corrected(row: ImageRow, name: str, reference: dict[str, Any]) -> str:
    off = 100 * (row.strength / reference["strength"] - 1)
    words = (
        f"{name}, {row.label}: t = {row.strength:.4f} ({off:+.1f} % of the reference), "
        f"{row.psnr:.2f} dB after {row.num_steps} steps"
    )
    if row.evaluations_to_strength is None:
        words += "; t has not settled within 2 % of it (E13)"
    return f"{words}."


def _recommended(row: ImageRow, name: str, reference: dict[str, Any]) -> str:
    each = row.each
    off = 100 * (row.strength / reference["strength"] - 1)
    noises = f" ({row.replicates} noise realisations: t from {_range(each['strength'], 4)})"
    return (
        f"{name}, recommended rule: t = {row.strength:.4f}, {off:+.1f} % from the reference"
        f"{noises if row.replicates > 1 else ''}; posterior mean {_range(each['psnr'], 2)} dB, "
        f"SSIM {_range(each['ssim'], 3)}; MAP {_range(each['map_psnr'], 2)} dB, SSIM "
        f"{_range(each['map_ssim'], 3)}; {_range(each['seconds'], 0)} s."
    )


def _range(values: list[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    low, high = f"{min(known):.{digits}f}", f"{max(known):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _rows(results: Results[ImageRow], name: str, **wanted: str) -> list[ImageRow]:
    return [
        row
        for row in results.rows
        if row.image == name and all(getattr(row, key) == value for key, value in wanted.items())
    ]
