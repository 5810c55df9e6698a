"""Deblurring at 30 dB: all algorithms and their peers on one picture, and what each costs."""

from __future__ import annotations

from functools import partial

from pipla.algorithms import SAPG, SKROCK
from pipla.algorithms.base import Algorithm
from pipla.experiments.base import Experiment, Variant
from pipla.experiments.images import figures, findings, restorers
from pipla.experiments.images.deblurring import HYBRID, corrected_row, numbers, recommended_row
from pipla.experiments.images.restored import RESTORED
from pipla.experiments.images.rows import PictureEntry, PicturePreset
from pipla.problems.image_deblurring import Deblurring

STAGES = 10


def sapg(problem: Deblurring) -> Algorithm:
    """One chain with the numbers of its authors."""
    step, smoothing = numbers(problem)
    return SAPG(step, smoothing)


def skrock(problem: Deblurring) -> Algorithm:
    """Half of the longest stable step; such long steps of x need theta in closed form."""
    _, smoothing = numbers(problem)
    reach = (STAGES - 0.5) ** 2 * (2 - 4 / 3 * 0.05) - 1.5
    step = 0.5 * reach / (problem.stiffness + 1 / smoothing)
    return SKROCK(step, smoothing, num_stages=STAGES, theta_update="closed-form")


def rows(picture: str) -> list[PictureEntry]:
    """The rows of one picture."""
    entry = partial(PictureEntry, make=None, detail=picture, picture=picture)
    single: tuple[tuple[str, Variant, restorers.Restorer], ...] = (
        ("unsupervised Wiener", "peer", restorers.unsupervised_wiener),
        ("Wiener", "oracle", restorers.oracle_wiener),
        ("Richardson-Lucy", "oracle", restorers.richardson_lucy),
        ("MAP", "oracle", restorers.oracle_strength),
    )
    return [
        recommended_row(picture),
        *(corrected_row(kind, picture) for kind in HYBRID),
        entry(
            "SK-ROCK",
            "exact",
            "peer",
            gradients=STAGES,
            num_particles=2,
            restorer=restorers.chain(skrock),
        ),
        entry("SAPG", "exact", "peer", num_particles=1, restorer=restorers.chain(sapg)),
        *(
            entry(name, "exact" if name == "MAP" else "none", variant, restorer=way, fixed_steps=0)
            for name, variant, way in single
        ),
    ]


BENCHMARK: Experiment = Experiment(
    name="deblurring-benchmark",
    title="Deblurring at 30 dB: what each method reaches, and what it costs",
    about="One picture (boat; camera where PIPLA_DATA is not set), 9×9 uniform circular blur, "
    "noise of a thousandth of the blurred picture's variance. Recommended: reflected-prox Langevin "
    "with two antithetic particles (pipla.restore). Corrected: the paper's hybrid algorithms with "
    "lam = min(5/L, 2) and gamma = .98/(L + 1/lam), two particles. Peers learn what they need. "
    "Oracles see the truth and choose their one number by it: the balance of the Wiener filter, "
    "when to stop Richardson-Lucy, the strength of total variation for the MAP.",
    method=RESTORED,
    problem=lambda data: ("boat",) if data else ("camera",),
    data_file=None,
    entries=[row for picture in ("boat", "camera") for row in rows(picture)],
    presets={
        "quick": PicturePreset(3, 4000),
        "paper": PicturePreset(
            3, 8000, slow_replicates=3, reference_steps=1500, reference_replicates=3
        ),
        "tiny": PicturePreset(2, 20, crop=32, reference_steps=12, reference_replicates=1),
    },
    starts=lambda rng, count: rng.standard_normal(count),
    figures=figures.benchmark_figures,
    findings=findings.benchmark_findings,
    errata=("E7", "E13"),
)
