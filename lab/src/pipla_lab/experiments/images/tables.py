"""The table of restored images."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.report import Cell, Table, fixed
from pipla_lab.experiments.base import mean_sd
from pipla_lab.experiments.images.rows import PSNR_BAND, STRENGTH_BAND, ImageRow
from pipla_lab.experiments.results import Results

SETTING = (
    "Click a heading to sort. t = e^theta is the strength of the prior, averaged over the last "
    "half of the steps (recommended rule: the last two thirds). PSNR in dB and SSIM are those of "
    "the posterior mean (peers: of their only image) and of the MAP estimate at that t. Particle "
    "MSE: mean over the particles at the end, the paper's measure. Std: mean posterior standard "
    "deviation of a pixel, in grey levels. An evaluation is one gradient or one flow of the "
    "likelihood for one particle. “To t”: evaluations until t stays within "
    f"{100 * STRENGTH_BAND:g} % of the reference for as long again; “to PSNR”: until the posterior "
    f"mean stays within {PSNR_BAND:g} dB of the reference's. Seconds: one noise realisation, "
    "without compiling; for the recommended rule including the MAP estimate. Values are means over "
    "noise realisations; “to t” and “to PSNR” are from the first one."
)

COLUMNS = (
    "image", "algorithm", "variant", "N", "t", "PSNR / SSIM", "MAP", "evaluations", "to t",
    "to PSNR", "seconds", "particle MSE", "std",
)  # fmt: skip


def image_table(results: Results[ImageRow]) -> Table:
    """All rows, image by image."""
    rows = [
        [
            row.image,
            row.algorithm,
            row.variant,
            row.num_particles,
            _strength(row),
            _quality(row.psnr, row.ssim),
            _quality(row.map_psnr, row.map_ssim),
            fixed(row.evaluations, 0),
            _cost(row.evaluations_to_strength, row.seconds_to_strength),
            _cost(row.evaluations_to_psnr, row.seconds_to_psnr),
            fixed(row.seconds, 1),
            fixed(row.particle_mse, 0),
            fixed(row.std, 1),
        ]
        for row in results.rows
    ]
    return Table(COLUMNS, rows)


def reference_sentence(reference: dict[str, Any]) -> str:
    """The strengths that rows are compared with."""
    each = ", ".join(
        f"{name} {found['strength']:.5f} ± {found['strength_mcse']:.5f}"
        for name, found in reference["images"].items()
    )
    return f"Reference strength t = e^theta: {each}"


def _strength(row: ImageRow) -> Cell | None:
    known = [value for value in row.each["strength"] if value is not None]
    return mean_sd(row.strength, float(np.std(known, ddof=1)) if len(known) > 1 else None, 4)


def _quality(decibels: float | None, similarity: float | None) -> Cell | None:
    if decibels is None or similarity is None:
        return None
    return Cell(f"{decibels:.2f} / {similarity:.3f}", decibels)


def _cost(evaluations: float | None, seconds: float | None) -> Cell | None:
    if evaluations is None:
        return None
    return Cell(f"{evaluations:.0f} ({seconds:.1f} s)", evaluations)
