"""The toy model of the authors' repository, whose maximiser is known exactly."""

from __future__ import annotations

from functools import partial

import numpy as np

from pipla.algorithms import IPLA, MYIPLA, MYPGD, PGD, PIPGLA, PIPULA, PPGD, SOUL
from pipla.problems import toy
from pipla_lab.experiments.published import doubled
from pipla_lab.experiments.theta import figures, findings
from pipla_lab.experiments.theta.experiment import ThetaExperiment
from pipla_lab.experiments.theta.logistic import RECOMMENDED
from pipla_lab.experiments.theta.rows import ThetaEntry, ThetaPreset

ENTRIES = (
    ThetaEntry("PPGD", "approximate", "published", partial(PPGD, 0.05), model=doubled),
    ThetaEntry("PIPULA", "approximate", "published", partial(PIPULA, 0.05), model=doubled),
    ThetaEntry("MYPGD", "approximate", "published", partial(MYPGD, 0.05, 0.1)),
    ThetaEntry("MYIPLA", "approximate", "published", partial(MYIPLA, 0.05, 0.1)),
    ThetaEntry("PIPGLA", "approximate", "published", partial(PIPGLA, 0.05)),
    ThetaEntry("PIPGLA", "iterative", "published", partial(PIPGLA, 0.05)),
    ThetaEntry("IPLA", "none", "published", partial(IPLA, 0.05)),
    ThetaEntry("PGD", "none", "published", partial(PGD, 0.05)),
    ThetaEntry(
        "SOUL",
        "none",
        "published",
        partial(SOUL, 0.05, num_moves=50),
        num_particles=1,
        gradients=50,
    ),
    ThetaEntry("PPGD", "exact", "corrected", partial(PPGD, 0.05), note="E3 corrected"),
    ThetaEntry("PIPULA", "exact", "corrected", partial(PIPULA, 0.05), note="E3 corrected"),
    ThetaEntry("MYPGD", "exact", "corrected", partial(MYPGD, 0.05, 0.1)),
    ThetaEntry("MYIPLA", "exact", "corrected", partial(MYIPLA, 0.05, 0.1)),
    ThetaEntry("PIPGLA", "exact", "corrected", partial(PIPGLA, 0.05)),
    RECOMMENDED,
)

TOY = ThetaExperiment(
    name="toy",
    title="Toy model: Laplace latents seen through Gaussian noise",
    about="Fifty latents, Laplace around theta, each observed once with standard normal noise. "
    "The marginal likelihood is known in closed form, so the distance to the reference is the "
    "true error. The paper prints no numbers for it.",
    problem=lambda authors: toy(authors=authors),
    data_file="toy_elastic_net.npz",
    entries=ENTRIES,
    presets={
        "quick": ThetaPreset(20, 2000, 1000),
        "paper": ThetaPreset(500, 5000, 1000, batch=100),
        "tiny": ThetaPreset(4, 60, 20, 10),
    },
    starts=lambda rng, count: rng.integers(-8, 6, size=count, endpoint=True).astype(np.float64),
    figures=figures.table_figures,
    findings=findings.table_findings,
    errata=("E3", "E6"),
)
