"""Generalised linear models with a design matrix: logistic and Poisson regression."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.models.likelihoods import Logistic, Poisson, even_softplus
from pipla.models.model import Model
from pipla.prox import LaplaceLocation, LaplaceScale, UniformBox
from pipla_lab.zoo.base import Case, Kind, number, zeros

_kind = Kind()
PROBLEMS = _kind.problems


@_kind.named("logistic-location")
def logistic_location() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(\theta, 1)$ and logistic regression, the paper's model, small."""
    rng = np.random.default_rng(40)
    features = rng.uniform(-1.0, 1.0, (300, 15))
    odds = np.exp(-features @ rng.laplace(-2.0, 1.0, 15))
    labels = (rng.uniform(size=300) < 1 / (1 + odds)).astype(float)
    return Case(
        about="Logistic regression; the coefficients are Laplace around a learned location.",
        model=Model(Logistic(features, labels), LaplaceLocation(scale=1.0)),
        theta=number(0.0),
        x=zeros(15),
        data={"features": features, "labels": labels},
    )


@_kind.named("logistic-uniform")
def logistic_uniform() -> Case:
    r"""$x_i \sim U(-\theta, \theta)$ and logistic regression, the paper's second model, small."""
    rng = np.random.default_rng(42)
    features = rng.uniform(-1.0, 1.0, (300, 10))
    odds = np.exp(-features @ rng.uniform(-2.0, 2.0, 10))
    labels = (rng.uniform(size=300) < 1 / (1 + odds)).astype(float)
    return Case(
        about="Logistic regression; the coefficients are uniform with a learned half-width.",
        model=Model(Logistic(features, labels), UniformBox()),
        theta=number(1.0),
        x=zeros(10),
        data={"features": features, "labels": labels},
    )


@_kind.named("breast-cancer")
def breast_cancer() -> Case:
    r"""Logistic regression: 30 coefficients are $\mathrm{Laplace}(0, e^{2\theta})$.

    The intercept is $N(0, 10^2)$.
    """
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    data = {"features": features, "labels": labels.astype(float)}
    return Case(
        about="Logistic lasso with an intercept on scikit-learn's breast cancer data.",
        model=Model(_logistic, LaplaceScale().on(x="coefficients"), data=data),
        theta=number(0.0),
        x={"coefficients": zeros(30), "intercept": zeros()},
        data=data,
    )


def _logistic(theta: Array, x: dict[str, Array], data: dict[str, Array]) -> Array:
    z = data["features"] @ x["coefficients"] + x["intercept"]
    potential = jnp.sum(even_softplus(z) + (0.5 - data["labels"]) * z)
    return potential + 0.005 * x["intercept"] ** 2


@_kind.named("poisson-regression")
def poisson_regression() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, e^{2\theta})$, counts $\mathrm{Poisson}(e^{1 + Hx})$."""
    rng = np.random.default_rng(41)
    features = rng.standard_normal((80, 12))
    counts = rng.poisson(np.exp(1.0 + features @ rng.laplace(0.0, 0.2, 12))).astype(float)
    return Case(
        about="Poisson regression with Laplace coefficients of learned scale.",
        model=Model(Poisson(features, counts, offsets=np.ones(80)), LaplaceScale()),
        theta=number(0.0),
        x=zeros(12),
        data={"features": features, "counts": counts},
    )
