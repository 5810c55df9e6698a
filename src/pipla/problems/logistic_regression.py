"""Bayesian logistic regression with a Laplace or a uniform prior: the paper's first experiment."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pipla import _checks
from pipla.models.likelihoods import even_softplus
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
    The model's data are `features`, one observation per column, and `labels`.
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
    float_type = jnp.result_type(float)
    data = {
        "features": jnp.asarray(features.T, float_type),
        "labels": jnp.asarray(labels, float_type),
    }
    term: Term
    if prior == "laplace":
        term = LaplaceLocation(scale=1.0, approximation=approximation)
    else:
        term = UniformBox(approximation=approximation)
    return Problem(
        name=f"logistic, {prior}",
        model=Model(potential, term, data=data),
        theta=jnp.zeros(()) if prior == "laplace" else jnp.ones(()),
        dimension=features.shape[1],
        truth=truth,
        maximiser=None,
    )


def potential(theta: Array, x: Array, data: dict[str, Array]) -> Float[Array, ""]:
    r"""$\sum_j \log(1 + e^{z_j}) - y_j z_j$ with $z = x V$, one observation per column of $V$.

    With one observation per row, XLA's products over all particles would run along the short side
    of the matrix and take longer. The sum is computed in the symmetric form
    $\log(2 \cosh(z_j/2)) + (1/2 - y_j) z_j$.
    """
    z = x @ data["features"]
    return jnp.sum(even_softplus(z) + (0.5 - data["labels"]) * z)
