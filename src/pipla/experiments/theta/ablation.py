"""The paper's ablation: NMSE over a grid of smoothings at the published steps."""

from __future__ import annotations

from functools import partial
from typing import Any

from pipla.algorithms import MYIPLA, MYPGD, PIPGLA
from pipla.experiments.base import Entry, Experiment, Preset, Prox, Variant
from pipla.experiments.theta import figures, findings
from pipla.experiments.theta.logistic import LAPLACE_STARTS
from pipla.experiments.theta.replicated import REPLICATED
from pipla.problems import logistic

GRID = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
PROXES: tuple[tuple[Prox, Variant], ...] = (("approximate", "published"), ("exact", "corrected"))
STEPS: dict[str, tuple[Any, float]] = {
    "MYPGD": (MYPGD, 0.05),
    "MYIPLA": (MYIPLA, 0.05),
    "PIPGLA": (PIPGLA, 0.01),
}

ENTRIES = tuple(
    Entry(
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

ABLATION: Experiment = Experiment(
    name="ablation",
    title="NMSE against the smoothing",
    about="Logistic regression with a Laplace prior, at the published step sizes, for a grid of "
    "smoothings lam: the published approximation of the prox beside the exact one. NMSE of the "
    "last iterate, in %; bands are 95 % confidence intervals of the mean.",
    method=REPLICATED,
    problem=lambda authors: logistic("laplace", authors=authors),
    data_file="logistic_laplace.npz",
    entries=ENTRIES,
    presets={
        "quick": Preset(10, 3000, 1000, reference_replicates=4, reference_steps=4000),
        "paper": Preset(100),
        "tiny": Preset(4, 60, 20, 10, reference_replicates=2, reference_steps=60),
    },
    starts=LAPLACE_STARTS,
    figures=figures.ablation_figures,
    findings=findings.ablation_findings,
    errata=("E6", "E8", "E13"),
    reference_start=-4.0,
)
