"""Figures of the paper about logistic regression with a Laplace prior.

`rate`: the variance of theta falls like 1/N. `traces`: theta from seven starting points.
`ablation`: NMSE over a grid of smoothings at the published steps.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pipla.algorithms import MYIPLA, MYPGD, PIPGLA
from pipla.problems import logistic
from pipla_lab.experiments.base import Prox, Variant
from pipla_lab.experiments.theta import figures, findings
from pipla_lab.experiments.theta.experiment import ThetaExperiment
from pipla_lab.experiments.theta.logistic import LAPLACE_STARTS, RECOMMENDED
from pipla_lab.experiments.theta.rows import ThetaEntry, ThetaPreset

COUNTS = (5, 10, 25, 50, 100)

RATE_ENTRIES = tuple(
    ThetaEntry(name, "exact", "corrected", make, detail=f"N = {count}", num_particles=count)
    for name, make in (
        ("MYIPLA", partial(MYIPLA, 0.05, 0.35)),
        ("PIPGLA", partial(PIPGLA, 0.01, 0.01)),
    )
    for count in COUNTS
)

RATE = ThetaExperiment(
    name="rate",
    title="Variance of theta against the number of particles",
    about="Logistic regression with a Laplace prior, all runs from theta = 0, exact proxes. Theory "
    "says that the variance of theta falls like 1/N; the slope on logarithmic axes should be -1. "
    "The variance is that of theta over the runs, averaged over the last iterates.",
    problem=lambda authors: logistic("laplace", authors=authors),
    data_file="logistic_laplace.npz",
    entries=RATE_ENTRIES,
    presets={
        "quick": ThetaPreset(
            60, 3000, 1500, batch=60, reference_replicates=4, reference_steps=4000
        ),
        "paper": ThetaPreset(100, 5000, 2500),
        "tiny": ThetaPreset(4, 60, 20, 10, reference_replicates=2, reference_steps=60),
    },
    starts=lambda rng, count: np.zeros(count),
    figures=figures.rate_figures,
    findings=findings.rate_findings,
    errata=("E6",),
    reference_start=-4.0,
)

TRACES_STARTS = (-8.0, -6.0, -4.0, -2.0, 0.0, 3.0, 6.0)

TRACES_ENTRIES = (
    ThetaEntry("MYIPLA", "approximate", "published", partial(MYIPLA, 0.05, 0.35)),
    ThetaEntry("MYIPLA", "iterative", "published", partial(MYIPLA, 0.05, 0.005)),
    ThetaEntry("MYIPLA", "exact", "corrected", partial(MYIPLA, 0.05, 0.35)),
    ThetaEntry("PIPGLA", "approximate", "published", partial(PIPGLA, 0.01, 0.01)),
    ThetaEntry("PIPGLA", "iterative", "published", partial(PIPGLA, 0.01, 0.01)),
    ThetaEntry("PIPGLA", "exact", "corrected", partial(PIPGLA, 0.01, 0.01)),
    RECOMMENDED,
)

TRACES = ThetaExperiment(
    name="traces",
    title="Theta from seven starting points",
    about="Logistic regression with a Laplace prior. Theta starts at seven places, the particles "
    "around it, and all runs should end at the maximiser. The replicates of a row are its starts.",
    problem=lambda authors: logistic("laplace", authors=authors),
    data_file="logistic_laplace.npz",
    entries=TRACES_ENTRIES,
    presets={
        "quick": ThetaPreset(7, reference_replicates=4, reference_steps=4000),
        "paper": ThetaPreset(7),
        "tiny": ThetaPreset(7, 60, 20, 10, reference_replicates=2, reference_steps=60),
    },
    starts=lambda rng, count: np.resize(TRACES_STARTS, count),
    figures=figures.traces_figures,
    errata=("E6", "E8"),
    reference_start=-4.0,
)

GRID = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
PROXES: tuple[tuple[Prox, Variant], ...] = (("approximate", "published"), ("exact", "corrected"))
STEPS: dict[str, tuple[Any, float]] = {
    "MYPGD": (MYPGD, 0.05),
    "MYIPLA": (MYIPLA, 0.05),
    "PIPGLA": (PIPGLA, 0.01),
}

ABLATION_ENTRIES = tuple(
    ThetaEntry(
        name,
        prox,
        variant,
        partial(make, step, smoothing),
        detail=f"lam = {smoothing:g}",
    )
    for name, (make, step) in STEPS.items()
    for prox, variant in PROXES
    for smoothing in GRID
)

ABLATION = ThetaExperiment(
    name="ablation",
    title="NMSE against the smoothing",
    about="Logistic regression with a Laplace prior, at the published step sizes, for a grid of "
    "smoothings lam: the published approximation of the prox beside the exact one. NMSE of the "
    "last iterate, in %; bands are 95 % confidence intervals of the mean.",
    problem=lambda authors: logistic("laplace", authors=authors),
    data_file="logistic_laplace.npz",
    entries=ABLATION_ENTRIES,
    presets={
        "quick": ThetaPreset(10, 3000, 1000, reference_replicates=4, reference_steps=4000),
        "paper": ThetaPreset(100),
        "tiny": ThetaPreset(4, 60, 20, 10, reference_replicates=2, reference_steps=60),
    },
    starts=LAPLACE_STARTS,
    figures=figures.ablation_figures,
    findings=findings.ablation_findings,
    errata=("E6", "E8", "E13"),
    reference_start=-4.0,
)
