"""The toy model of the authors' repository: the exact maximiser is known, by normal tails."""

from __future__ import annotations

from functools import partial

import numpy as np

from pipla.algorithms import IPLA, MYIPLA, MYPGD, PGD, PIPGLA, PIPULA, PPGD, SOUL
from pipla.experiments.base import Entry, Experiment, Preset
from pipla.experiments.theta import figures, findings
from pipla.experiments.theta.logistic import RECOMMENDED
from pipla.experiments.theta.replicated import REPLICATED
from pipla.problems import toy

ENTRIES = (
    Entry("PPGD", "approximate", "published", partial(PPGD, 0.05, published=True)),
    Entry("PIPULA", "approximate", "published", partial(PIPULA, 0.05, published=True)),
    Entry("MYPGD", "approximate", "published", partial(MYPGD, 0.05, 0.1)),
    Entry("MYIPLA", "approximate", "published", partial(MYIPLA, 0.05, 0.1)),
    Entry("PIPGLA", "approximate", "published", partial(PIPGLA, 0.05)),
    Entry("PIPGLA", "iterative", "published", partial(PIPGLA, 0.05)),
    Entry("IPLA", "none", "published", partial(IPLA, 0.05)),
    Entry("PGD", "none", "published", partial(PGD, 0.05)),
    Entry(
        "SOUL",
        "none",
        "published",
        partial(SOUL, 0.05, num_moves=50),
        num_particles=1,
        gradients=50,
    ),
    Entry("PPGD", "exact", "corrected", partial(PPGD, 0.05), note="E3 put right"),
    Entry("PIPULA", "exact", "corrected", partial(PIPULA, 0.05), note="E3 put right"),
    Entry("MYPGD", "exact", "corrected", partial(MYPGD, 0.05, 0.1)),
    Entry("MYIPLA", "exact", "corrected", partial(MYIPLA, 0.05, 0.1)),
    Entry("PIPGLA", "exact", "corrected", partial(PIPGLA, 0.05)),
    RECOMMENDED,
)

TOY: Experiment = Experiment(
    name="toy",
    title="Toy model: Laplace latents seen through Gaussian noise",
    about="Fifty latents, Laplace around theta, each observed once with standard normal noise. "
    "The marginal likelihood is known in closed form, so the distance to the reference is the "
    "true error. The paper prints no numbers for it.",
    method=REPLICATED,
    problem=lambda authors: toy(authors=authors),
    data_file="toy_elastic_net.npz",
    entries=ENTRIES,
    presets={
        "quick": Preset(20, 2000, 1000),
        "paper": Preset(500, 5000, 1000, batch=100),
        "tiny": Preset(4, 60, 20, 10),
    },
    starts=lambda rng, count: rng.integers(-8, 6, size=count, endpoint=True).astype(np.float64),
    figures=figures.table_figures,
    findings=findings.table_findings,
    errata=("E3", "E6"),
)
