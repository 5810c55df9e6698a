"""Bayesian logistic regression with a Laplace or a uniform prior: the paper's first experiment."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from pipla import _checks
from pipla.models.likelihoods import Logistic
from pipla.models.model import Model
from pipla.problems.base import MOST, Problem, find_data
from pipla.prox import LaplaceLocation, UniformBox
from pipla.prox.base import Term

#: The theta that generates the data in the paper.
TRUTH = {"laplace": -4.0, "uniform": 1.5}


def logistic(
    prior: str = "laplace",
    dimension: int = 50,
    observations: int = 900,
    seed: int = 0,
    authors: bool = False,
    approximation: str | None = None,
) -> Problem:
    r"""$y_j \sim \mathrm{Bernoulli}(\sigma(v_j \cdot x))$, with a learned prior on x.

    The prior is $x_i \sim \mathrm{Laplace}(\theta, 1)$ or $x_i \sim U(-\theta, \theta)$.
    Covariates are uniform on $(-1, 1)$. Data are drawn by the paper's recipe from `seed`, or are
    the authors' own (`authors=True`, from `$PIPLA_DATA`). `approximation` is passed to the term.
    """
    _checks.choice("prior", prior, ("laplace", "uniform"))
    dimension = _checks.integer("dimension", dimension, least=1, most=MOST)
    observations = _checks.integer("observations", observations, least=1, most=MOST)
    if dimension * observations > MOST:
        raise ValueError(
            f"dimension times observations must be at most {MOST}, got {dimension * observations}."
        )
    seed = _checks.integer("seed", seed, least=0)
    _checks.boolean("authors", authors)
    truth = TRUTH[prior]
    if authors:
        arrays = find_data(f"logistic_{prior}.npz")
        features, labels = arrays["design_matrix"], arrays["labels"].ravel()
    else:
        rng = np.random.default_rng(seed)
        features = rng.uniform(-1, 1, size=(observations, dimension))
        if prior == "laplace":
            x = rng.laplace(truth, 1.0, size=dimension)
        else:
            x = rng.uniform(-truth, truth, size=dimension)
        labels = rng.uniform(size=observations) < 1 / (1 + np.exp(-features @ x))
    term: Term
    if prior == "laplace":
        term = LaplaceLocation(scale=1.0, approximation=approximation)
    else:
        term = UniformBox(approximation=approximation)
    return Problem(
        name=f"logistic, {prior}",
        model=Model(Logistic(features, labels), term),
        theta=jnp.zeros(()) if prior == "laplace" else jnp.ones(()),
        dimension=features.shape[1],
        truth=truth,
        maximiser=None,
    )
