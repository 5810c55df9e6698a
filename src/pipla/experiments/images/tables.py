"""The table of restorations."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.experiments.images.summary import PSNR_BAND, STRENGTH_BAND
from pipla.experiments.results import Results
from pipla.report.page import Cell, Table, fixed

SETTING = (
    "Click a heading to sort. t = e^theta is the strength of the prior, averaged over the last "
    "half of the steps (of the recommended rule: the last two thirds). PSNR in dB and SSIM of the "
    "posterior mean (of peers: of their only picture) and of the most probable picture (MAP) at "
    "that t. Cloud MSE: mean over the particles at the end, the paper's measure. Deviation: mean "
    "posterior standard deviation of a pixel, in grey levels. An evaluation is one gradient or one "
    f"flow of the likelihood for one particle; “to t”: those from which on t stays within "
    f"{100 * STRENGTH_BAND:g} % of the reference for as long again; “to PSNR”: within "
    f"{PSNR_BAND:g} dB of the reference's. Seconds: of one noise, without compiling; "
    "for the recommended rule with the MAP. Means over noises, paces of the first."
)

COLUMNS = (
    "picture", "algorithm", "variant", "N", "t", "PSNR / SSIM", "MAP", "evaluations", "to t",
    "to PSNR", "seconds", "cloud MSE", "deviation",
)  # fmt: skip


def picture_table(results: Results) -> Table:
    """All rows, picture by picture."""
    rows = [
        [
            row["detail"],
            row["algorithm"],
            row["variant"],
            row["num_particles"],
            _strength(row),
            _quality(row["psnr"], row["ssim"]),
            _quality(row["map_psnr"], row["map_ssim"]),
            fixed(row["evaluations"], 0),
            _pace(row, "strength"),
            _pace(row, "psnr"),
            fixed(row["seconds"], 1),
            fixed(row["cloud_mse"], 0),
            fixed(row["deviation"], 1),
        ]
        for row in results.rows
    ]
    return Table(COLUMNS, rows)


def reference_words(reference: dict[str, Any]) -> str:
    """The strengths that rows are compared with."""
    each = ", ".join(
        f"{name} {found['strength']:.5f} ± {found['strength_stderr']:.5f}"
        for name, found in reference["pictures"].items()
    )
    return f"Reference strength t = e^theta: {each}"


def _strength(row: dict[str, Any]) -> Cell | None:
    known = [value for value in row["each"]["strength"] if value is not None]
    if not known:
        return None
    spread = f" ± {np.std(known, ddof=1):.4f}" if len(known) > 1 else ""
    return Cell(f"{row['strength']:.4f}{spread}", row["strength"])


def _quality(decibels: float | None, similarity: float | None) -> Cell | None:
    if decibels is None or similarity is None:
        return None
    return Cell(f"{decibels:.2f} / {similarity:.3f}", decibels)


def _pace(row: dict[str, Any], name: str) -> Cell | None:
    evaluations, seconds = row[f"evaluations_to_{name}"], row[f"seconds_to_{name}"]
    if evaluations is None:
        return None
    return Cell(f"{evaluations:.0f} ({seconds:.1f} s)", evaluations)
