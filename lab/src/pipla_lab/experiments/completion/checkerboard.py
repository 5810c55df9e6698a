"""The paper's matrix completion: as published, corrected, and by the recommended rule."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pipla.report import Cell, Figure, Text, fixed, new_figure
from pipla_lab.experiments.base import mean_sd
from pipla_lab.experiments.completion import methods
from pipla_lab.experiments.completion.experiment import (
    CompletionEntry,
    CompletionExperiment,
    CompletionJob,
    CompletionPreset,
    CompletionRow,
    measured,
    nmse,
)
from pipla_lab.experiments.completion.matrices import Matrix, masked_board
from pipla_lab.experiments.results import Results

#: NMSE in % that the paper reports: whole matrix, missing entries.
PAPER = {"MYPGD": (1.21, 1.67), "MYIPLA": (1.13, 1.53), "PIPGLA": (2.02, 2.11)}
PAPER_STEPS = 3000
#: Steps at which the noise is "learned": the recommended one divided by these.
DIVISORS = (1.0, 2.0, 8.0)
#: The size of the board that this is done on, which takes thousands of steps.
SMALL = 40
#: The size of the board on which the paper's settings are run to their end.
SMALLEST = 24


def matrix(preset: CompletionPreset, seed: int) -> Matrix:
    """The checkerboard of this replicate."""
    return masked_board(preset.rows, seed)


def reference(job: CompletionJob) -> dict[str, Any]:
    """That theta2 has no maximum, and what becomes of the paper's settings in the end."""
    board = masked_board(min(SMALL, job.preset.rows), job.seed)
    began = time.perf_counter()
    found = methods.learned_noises(board.observed, DIVISORS, job.preset.reference_steps)
    shown = ", ".join(f"{noise:.3g} at step {step:.3g}" for step, noise in found)
    return {
        "method": 'theta2 is not identifiable: the noise "learned" with a nuclear norm on a board '
        f"of {board.observed.shape[0]} × {board.observed.shape[1]} pixels depends on the step: "
        f"{shown} (the data have {board.noise:.3g}).",
        "identifiability": found,
        "fates": fates(job),
        "seconds": time.perf_counter() - began,
    }


def fates(job: CompletionJob) -> list[dict[str, Any]]:
    """All steps of MYIPLA with the paper's settings, published and corrected, on a small board."""
    board, found = masked_board(min(SMALLEST, job.preset.rows), job.seed), []
    for variant, approximation in (("published", "published"), ("corrected", None)):
        method = methods.paper_algorithm("MYIPLA", approximation)
        done = method(board, job.preset.fate_steps, job.seed)
        found.append(
            {
                "variant": variant,
                "size": board.observed.shape[0],
                "steps": done.num_steps,
                "nmse_missing": measured(done, board)["particle_nmse_missing"],
                "theta": done.theta,
            }
        )
    return found


def rows() -> list[CompletionEntry]:
    """Published, corrected, recommended, and SoftImpute."""
    published = [
        CompletionEntry(
            *(kind, "approximate", "published", methods.paper_algorithm(kind, "published")),
            steps="paper_steps",
            num_particles=methods.NUM_PARTICLES,
            paper=PAPER[kind],
        )
        for kind in PAPER
    ]
    corrected = [
        CompletionEntry(
            *(kind, "exact", "corrected", methods.paper_algorithm(kind, None)),
            steps="paper_steps",
            num_particles=methods.NUM_PARTICLES,
            paper=PAPER[kind],
        )
        for kind in PAPER
    ]
    nuclear = CompletionEntry(
        *("RPL", "exact", "recommended", methods.recommended_nuclear),
        detail="nuclear norm",
        steps="nuclear_steps",
        num_particles=methods.NUM_PARTICLES,
        note="the noise is fixed at the one that generated the data",
    )
    factors = CompletionEntry(
        *("factors", "none", "recommended", methods.factors),
        steps="factor_steps",
        num_particles=2,
        note="the default prior of pipla.completion",
    )
    soft = CompletionEntry("SoftImpute-CV", "none", "peer", methods.soft_impute_cv)
    return [*published, *corrected, nuclear, factors, soft]


def figures(results: Results[CompletionRow]) -> Mapping[str, Figure]:
    """The images of the first replicate, and the posterior standard deviations."""
    first = results.rows[0]
    shown = [("original", "truth", first), ("observed", "observed", first)]
    shown += [(row.label, "particle", row) for row in results.rows]
    panels = [
        (title, image if image is not None else results.curve(row, "mean"))
        for title, image, row in ((t, results.curve(r, name), r) for t, name, r in shown)
    ]
    count = -(-len(panels) // 4)
    figure, axes = new_figure(4, width=11, height=2.9 * count, rows=count)
    for axis in axes:
        axis.set_axis_off()
    for axis, (title, image) in zip(axes, panels, strict=False):
        axis.set_title(title, fontsize=9)
        axis.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    found = {
        "images": Figure(
            figure,
            "The matrix, what is observed of it (missing: black), and for each method one particle "
            "at the end (SoftImpute: its only matrix).",
        )
    }
    spreads = [(row, results.curve(row, "std")) for row in results.rows]
    known = [(row, std) for row, std in spreads if std is not None]
    if known:
        figure, axes = new_figure(len(known), width=4.5 * len(known), height=3.6)
        for axis, (row, std) in zip(axes, known, strict=True):
            axis.set_title(row.label, fontsize=9)
            axis.set_axis_off()
            image = axis.imshow(np.asarray(std, float), cmap="magma", interpolation="nearest")
            figure.colorbar(image, ax=axis, shrink=0.85)
        text = "The posterior standard deviation of every pixel, in grey levels."
        found["uncertainty"] = Figure(figure, text)
    return found


def findings(results: Results[CompletionRow]) -> Sequence[Text]:
    """What became of the paper's settings, and how wide the intervals are."""
    said = []
    for variant in ("published", "corrected"):
        rows = [row for row in results.rows if row.variant == variant]
        said += [f"{row.label}: not finite." for row in rows if row.finite < 1]
        errors = _known(row.particle_nmse_missing for row in rows)
        theta = _known(row.theta_mean for row in rows)
        if errors and theta:
            said.append(
                f"The paper's step, smoothing and start, {variant}; {rows[0].num_steps} steps: "
                f"NMSE of missing entries {_range(errors, 3)} %, theta1 = {_range(theta, 3)} from "
                f"{methods.PUBLISHED_START['strength']:g}.{_beside_the_start(results, rows[0])}"
            )
    said += [
        f"All {fate['steps']} steps of MYIPLA, {fate['variant']}, on a board of {fate['size']} × "
        f"{fate['size']} pixels: NMSE of missing entries {fate['nmse_missing']:.3g} %, theta1 = "
        f"{fate['theta']:.3g}."
        + (" With a wrong sign (E4) the penalty raises its own strength." * (fate["theta"] > 0))
        for fate in results.reference.get("fates", [])
        if fate["nmse_missing"] is not None
    ]
    for row in results.rows:
        if row.variant == "recommended" and row.coverage is not None and row.width is not None:
            said.append(
                f"{row.label}{', ' + row.detail if row.detail else ''}: 90 % intervals of missing "
                f"entries hold {100 * row.coverage:.1f} % of them and are {row.width:.3g} wide."
            )
    return [Text(sentence) for sentence in said]


def _beside_the_start(results: Results[CompletionRow], row: CompletionRow) -> str:
    """That few steps show little more than where the particles start."""
    truth = results.curve(row, "truth")
    if truth is None or (row.num_steps or 0) >= PAPER_STEPS:
        return ""
    level = methods.PUBLISHED_PIXELS[0]
    start = nmse(np.full(truth.shape, level), truth.astype(np.float64)) or 0.0
    return (
        f" The start has {start:.3g} % (a constant matrix of {level:g}): this is only the "
        f"beginning of {PAPER_STEPS} steps, all of which --preset paper makes."
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _range(values: Sequence[float], digits: int) -> str:
    low, high = (f"{end:.{digits}g}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _pair(whole: float | None, missing: float | None) -> Cell | None:
    if whole is None or missing is None:
        return None
    # The columns must fit a page: errors of SoftImpute and of factors have two digits.
    shown = [f"{error:.{3 if error > 1e-3 else 2}g}" for error in (whole, missing)]
    return Cell(" / ".join(shown), missing)


MATRIX_COMPLETION = CompletionExperiment(
    name="matrix-completion",
    title="Completion of a checkerboard of rank 2",
    about="A checkerboard of 188×188 pixels and rank 2, in noise of variance .1, with 30 % of the "
    "pixels missing. The paper's prior is a nuclear norm whose strength theta1 is learned, and the "
    "noise theta2 with it. Published and corrected rows have the paper's step, smoothing and "
    "start, with its approximate and with the exact prox; the recommended rule is RPL at the true "
    "noise; factors learn the noise. NMSE in %: whole matrix / missing entries; coverage: "
    "the share of missing entries in 90 % intervals.",
    matrix=matrix,
    ready=lambda: True,
    where="The checkerboard is generated.",
    compared_with=reference,
    entries=rows(),
    presets={
        "quick": CompletionPreset(5, 188, 188, factor_steps=300, paper_steps=20),
        "paper": CompletionPreset(5, 188, 188, paper_steps=PAPER_STEPS),
        "tiny": CompletionPreset(1, 16, 16, 6, 6, 4, 1, 20, 4),
    },
    columns={
        "algorithm": lambda row: row.algorithm,
        "variant": lambda row: row.variant,
        "steps": lambda row: row.num_steps,
        "one particle": lambda row: _pair(row.particle_nmse, row.particle_nmse_missing),
        "particle mean": lambda row: _pair(row.particles_nmse, row.particles_nmse_missing),
        "average": lambda row: _pair(row.nmse, row.nmse_missing),
        "paper": lambda row: None if row.paper is None else _pair(*row.paper),
        "theta1": lambda row: mean_sd(row.theta_mean, row.theta_sd or row.theta_mcse, 3),
        "coverage": lambda row: fixed(row.coverage, 3),
        "s": lambda row: fixed(row.seconds, 1),
    },
    figures=figures,
    findings=findings,
    errata=("E4",),
)
