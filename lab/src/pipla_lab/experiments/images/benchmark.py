"""Deblurring at 30 dB: all algorithms and their peers on one image, and the cost of each."""

from __future__ import annotations

from functools import partial

from pipla.algorithms import SAPG, SKROCK
from pipla.algorithms.base import Algorithm
from pipla_lab.data import Deblurring
from pipla_lab.experiments.base import Variant
from pipla_lab.experiments.images import figures, findings, restorers
from pipla_lab.experiments.images.deblurring import (
    HYBRID,
    corrected_row,
    recommended_row,
    step_and_smoothing,
)
from pipla_lab.experiments.images.experiment import ImageExperiment
from pipla_lab.experiments.images.rows import ImageEntry, ImagePreset

STAGES = 10


def sapg(problem: Deblurring) -> Algorithm:
    """One chain with the settings of its authors."""
    step, smoothing = step_and_smoothing(problem)
    return SAPG(step, smoothing)


def skrock(problem: Deblurring) -> Algorithm:
    """Half of the longest stable step; steps of x this long need theta in closed form."""
    _, smoothing = step_and_smoothing(problem)
    stability = (STAGES - 0.5) ** 2 * (2 - 4 / 3 * 0.05) - 1.5
    step = 0.5 * stability / (problem.stiffness + 1 / smoothing)
    return SKROCK(step, smoothing, num_stages=STAGES, theta_update="closed-form")


def rows(image: str) -> list[ImageEntry]:
    """The rows of one image."""
    entry = partial(ImageEntry, detail=image)
    single: tuple[tuple[str, Variant, restorers.Restorer], ...] = (
        ("unsupervised Wiener", "peer", restorers.unsupervised_wiener),
        ("Wiener", "oracle", restorers.oracle_wiener),
        ("Richardson-Lucy", "oracle", restorers.richardson_lucy),
        ("MAP", "oracle", restorers.oracle_strength),
    )
    return [
        recommended_row(image),
        *(corrected_row(kind, image) for kind in HYBRID),
        entry(
            "SK-ROCK",
            "exact",
            "peer",
            restorers.chain(skrock),
            gradients=STAGES,
            num_particles=2,
        ),
        entry("SAPG", "exact", "peer", restorers.chain(sapg)),
        *(
            entry(name, "exact" if name == "MAP" else "none", variant, restorer, fixed_steps=0)
            for name, variant, restorer in single
        ),
    ]


BENCHMARK = ImageExperiment(
    name="deblurring-benchmark",
    title="Deblurring at 30 dB: what each method reaches, and what it costs",
    about="One image (boat; camera where PIPLA_DATA is not set), 9×9 uniform circular blur, noise "
    "variance a thousandth of the blurred image's variance. Recommended: reflected-prox Langevin "
    "with two antithetic particles (pipla.imaging.restore). Corrected: the paper's hybrid "
    "algorithms with lam = min(5/L, 2) and gamma = .98/(L + 1/lam), two particles. "
    "Peers learn what they need. Oracles choose their one parameter by the truth: the "
    "regularisation of the Wiener filter, when to stop Richardson-Lucy, the strength of total "
    "variation for the MAP.",
    images=lambda data: ("boat",) if data else ("camera",),
    entries=[row for image in ("boat", "camera") for row in rows(image)],
    presets={
        "quick": ImagePreset(3, 4000),
        "paper": ImagePreset(
            3, 8000, slow_replicates=3, reference_steps=1500, reference_replicates=3
        ),
        "tiny": ImagePreset(2, 20, crop=32, reference_steps=12, reference_replicates=1),
    },
    figures=figures.benchmark_figures,
    findings=findings.benchmark_findings,
    errata=("E7", "E13"),
)
