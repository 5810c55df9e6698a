"""The paper's rate figure: the variance of theta falls like 1/N; and NMSE against the steps."""

from __future__ import annotations

from functools import partial

import numpy as np

from pipla.algorithms import MYIPLA, PIPGLA
from pipla.experiments.base import Entry, Experiment, Preset
from pipla.experiments.theta import figures, findings
from pipla.experiments.theta.replicated import REPLICATED
from pipla.problems import logistic

COUNTS = (5, 10, 25, 50, 100)

ENTRIES = tuple(
    Entry(name, "exact", "corrected", make, detail=f"N = {count}", num_particles=count)
    for name, make in (
        ("MYIPLA", partial(MYIPLA, 0.05, 0.35)),
        ("PIPGLA", partial(PIPGLA, 0.01, 0.01)),
    )
    for count in COUNTS
)

RATE: Experiment = Experiment(
    name="rate",
    title="Variance of theta against the number of particles",
    about="Logistic regression with a Laplace prior, all runs from theta = 0, exact proxes. Theory "
    "says that the variance of theta falls like 1/N; the slope on logarithmic axes should be -1. "
    "The variance is that of theta over the runs, averaged over the last iterates.",
    method=REPLICATED,
    problem=lambda authors: logistic("laplace", authors=authors),
    data_file="logistic_laplace.npz",
    entries=ENTRIES,
    presets={
        "quick": Preset(60, 3000, 1500, batch=60, reference_replicates=4, reference_steps=4000),
        "paper": Preset(100, 5000, 2500),
        "tiny": Preset(4, 60, 20, 10, reference_replicates=2, reference_steps=60),
    },
    starts=lambda rng, count: np.zeros(count),
    figures=figures.rate_figures,
    findings=findings.rate_findings,
    errata=("E6",),
    reference_start=-4.0,
)
