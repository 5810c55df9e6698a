"""The paper's figure of theta from seven starting points, approximate and iterative proxes."""

from __future__ import annotations

from functools import partial

import numpy as np

from pipla.algorithms import MYIPLA, PIPGLA
from pipla.experiments.base import Entry, Experiment, Preset
from pipla.experiments.theta import figures
from pipla.experiments.theta.logistic import RECOMMENDED
from pipla.experiments.theta.replicated import REPLICATED
from pipla.problems import logistic

STARTS = (-8.0, -6.0, -4.0, -2.0, 0.0, 3.0, 6.0)

ENTRIES = (
    Entry("MYIPLA", "approximate", "published", partial(MYIPLA, 0.05, 0.35)),
    Entry("MYIPLA", "iterative", "published", partial(MYIPLA, 0.05, 0.005)),
    Entry("MYIPLA", "exact", "corrected", partial(MYIPLA, 0.05, 0.35)),
    Entry("PIPGLA", "approximate", "published", partial(PIPGLA, 0.01, 0.01)),
    Entry("PIPGLA", "iterative", "published", partial(PIPGLA, 0.01, 0.01)),
    Entry("PIPGLA", "exact", "corrected", partial(PIPGLA, 0.01, 0.01)),
    RECOMMENDED,
)

TRACES: Experiment = Experiment(
    name="traces",
    title="Theta from seven starting points",
    about="Logistic regression with a Laplace prior. Theta starts at seven places, the particles "
    "around it, and all runs should end at the maximiser. The replicates of a row are its starts.",
    method=REPLICATED,
    problem=lambda authors: logistic("laplace", authors=authors),
    data_file="logistic_laplace.npz",
    entries=ENTRIES,
    presets={
        "quick": Preset(7, reference_replicates=4, reference_steps=4000),
        "paper": Preset(7),
        "tiny": Preset(7, 60, 20, 10, reference_replicates=2, reference_steps=60),
    },
    starts=lambda rng, count: np.resize(STARTS, count),
    figures=figures.traces_figures,
    errata=("E6", "E8"),
    reference_start=-4.0,
)
