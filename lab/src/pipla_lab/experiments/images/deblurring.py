"""The paper's deblurring experiment: as published, corrected, and by the recommended rule."""

from __future__ import annotations

from functools import partial
from typing import Any

from pipla.algorithms import MYIPLA, MYPGD, PIPGLA
from pipla.algorithms.base import Algorithm
from pipla_lab.data import Deblurring
from pipla_lab.experiments.images import figures, findings
from pipla_lab.experiments.images.experiment import ImageExperiment
from pipla_lab.experiments.images.restorers import chain, recommended
from pipla_lab.experiments.images.rows import ImageEntry, ImagePreset
from pipla_lab.experiments.published import published_particles

HYBRID: dict[str, Any] = {"MYPGD": MYPGD, "MYIPLA": MYIPLA, "PIPGLA": PIPGLA}


def published(kind: str, problem: Deblurring) -> Algorithm:
    """gamma = .01 and lam = .4, for PIPGLA .001; the 1/d of theta is in the model (E13)."""
    return HYBRID[kind](0.01, 0.001 if kind == "PIPGLA" else 0.4, theta_update="gradient")


def corrected(kind: str, problem: Deblurring) -> Algorithm:
    """lam = min(5/L, 2) and gamma = .98/(L + 1/lam), as for SAPG; PIPGLA with lam = gamma."""
    step, smoothing = step_and_smoothing(problem)
    if kind == "PIPGLA":
        return PIPGLA(step, theta_update="gradient", theta_scale="auto")
    return HYBRID[kind](step, smoothing, theta_update="gradient", theta_scale="auto")


def step_and_smoothing(problem: Deblurring) -> tuple[float, float]:
    """The step size and the smoothing of explicit schemes."""
    largest = problem.stiffness
    smoothing = min(5 / largest, 2.0)
    return 0.98 / (largest + 1 / smoothing), smoothing


def rows(image: str) -> list[ImageEntry]:
    """The rows of one image."""
    old = [
        ImageEntry(
            kind,
            "approximate",
            "published",
            chain(partial(published, kind), start=published_particles, find_map=False),
            detail=image,
            num_particles=10,
        )
        for kind in HYBRID
    ]
    return [*old, *(corrected_row(kind, image) for kind in HYBRID), recommended_row(image)]


def corrected_row(kind: str, image: str) -> ImageEntry:
    """A hybrid algorithm of the paper with the prox for every particle."""
    restorer = chain(partial(corrected, kind))
    return ImageEntry(kind, "exact", "corrected", restorer, detail=image, num_particles=2)


def recommended_row(image: str) -> ImageEntry:
    """`pipla.imaging.restore`."""
    return ImageEntry(
        "RPL",
        "exact",
        "recommended",
        recommended,
        detail=image,
        num_particles=2,
        fixed_steps=300,
    )


DEBLURRING = ImageExperiment(
    name="deblurring",
    title="Deblurring with a learned strength of total variation",
    about="An image is blurred by a box kernel, and noise is added; its prior is e^theta TV(x), "
    "and theta is learned by maximum marginal likelihood. Guitar: the protocol of the paper's "
    "code, 11×11 pixels with weights renormalised at the edges, noise .47. Boat and camera: 9×9 "
    "pixels, circular, noise variance a thousandth of the blurred image's variance (30 dB). "
    "Published rows start as in the paper, with particles N(50, 10²); the others start at the "
    "observed image.",
    images=lambda data: ("guitar", "boat", "camera") if data else ("camera",),
    entries=[row for image in ("guitar", "boat", "camera") for row in rows(image)],
    presets={
        "quick": ImagePreset(
            1, 3000, guitar_steps=2000, published_steps=1000, published_theta=-3.0, crop=128
        ),
        "paper": ImagePreset(1, 8000, guitar_steps=40000),
        "tiny": ImagePreset(
            1,
            12,
            guitar_steps=12,
            published_steps=12,
            crop=32,
            reference_steps=12,
            reference_replicates=1,
        ),
    },
    figures=figures.deblurring_figures,
    findings=findings.deblurring_findings,
    errata=("E5", "E7", "E9", "E10", "E13"),
)
