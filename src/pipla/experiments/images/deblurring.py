"""The paper's deblurring experiment: as published, corrected, and by the recommended rule."""

from __future__ import annotations

from functools import partial
from typing import Any

from pipla.algorithms import MYIPLA, MYPGD, PIPGLA
from pipla.algorithms.base import Algorithm
from pipla.experiments.base import Experiment
from pipla.experiments.images import figures, findings
from pipla.experiments.images.restored import RESTORED
from pipla.experiments.images.restorers import chain, recommended
from pipla.experiments.images.rows import PictureEntry, PicturePreset
from pipla.problems.image_deblurring import Deblurring

HYBRID: dict[str, Any] = {"MYPGD": MYPGD, "MYIPLA": MYIPLA, "PIPGLA": PIPGLA}


def published(kind: str, problem: Deblurring) -> Algorithm:
    """gamma = .01 and lam = .4, for PIPGLA .001; the 1/d of theta sits in the model (E13)."""
    return HYBRID[kind](0.01, 0.001 if kind == "PIPGLA" else 0.4, theta_update="gradient")


def corrected(kind: str, problem: Deblurring) -> Algorithm:
    """lam = min(5/L, 2) and gamma = .98/(L + 1/lam), as SAPG has them; PIPGLA with lam = gamma."""
    step, smoothing = numbers(problem)
    if kind == "PIPGLA":
        return PIPGLA(step, theta_update="gradient", theta_scale="auto")
    return HYBRID[kind](step, smoothing, theta_update="gradient", theta_scale="auto")


def numbers(problem: Deblurring) -> tuple[float, float]:
    """The step and the smoothing of schemes with explicit gradients."""
    largest = problem.stiffness
    smoothing = min(5 / largest, 2.0)
    return 0.98 / (largest + 1 / smoothing), smoothing


def rows(picture: str) -> list[PictureEntry]:
    """The rows of one picture."""
    old = [
        PictureEntry(
            kind,
            "approximate",
            "published",
            None,
            detail=picture,
            picture=picture,
            num_particles=10,
            restorer=chain(partial(published, kind)),
        )
        for kind in HYBRID
    ]
    return [*old, *(corrected_row(kind, picture) for kind in HYBRID), recommended_row(picture)]


def corrected_row(kind: str, picture: str) -> PictureEntry:
    """A hybrid algorithm of the paper with its prox for every particle."""
    return PictureEntry(
        kind,
        "exact",
        "corrected",
        None,
        detail=picture,
        picture=picture,
        num_particles=2,
        restorer=chain(partial(corrected, kind)),
    )


def recommended_row(picture: str) -> PictureEntry:
    """`pipla.restore`."""
    return PictureEntry(
        "RPL",
        "exact",
        "recommended",
        None,
        detail=picture,
        picture=picture,
        num_particles=2,
        fixed_steps=300,
        restorer=recommended,
    )


DEBLURRING: Experiment = Experiment(
    name="deblurring",
    title="Deblurring with a learned strength of total variation",
    about="A picture is blurred by a box and gets noise; its prior is e^theta TV(x), and theta is "
    "learned by maximum marginal likelihood. Guitar: the protocol of the paper's code, 11×11 "
    "pixels with weights scaled up at the edges, noise .47. Boat and camera: 9×9 pixels, circular, "
    "noise of a thousandth of the blurred picture's variance (30 dB). Published rows start, as "
    "there, at particles N(50, 10²); the others at the observed picture.",
    method=RESTORED,
    problem=lambda data: ("guitar", "boat", "camera") if data else ("camera",),
    data_file=None,
    entries=[row for picture in ("guitar", "boat", "camera") for row in rows(picture)],
    presets={
        "quick": PicturePreset(
            1, 3000, guitar_steps=2000, published_steps=1000, published_theta=-3.0, crop=128
        ),
        "paper": PicturePreset(1, 8000, guitar_steps=40000),
        "tiny": PicturePreset(
            1,
            12,
            guitar_steps=12,
            published_steps=12,
            crop=32,
            reference_steps=12,
            reference_replicates=1,
        ),
    },
    starts=lambda rng, count: rng.standard_normal(count),
    figures=figures.deblurring_figures,
    findings=findings.deblurring_findings,
    errata=("E5", "E7", "E9", "E10", "E13"),
)
