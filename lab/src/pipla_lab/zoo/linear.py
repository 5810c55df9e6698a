"""Linear regression: lasso in several difficulties, group lasso, elastic net, two scales."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.models.likelihoods import Gaussian
from pipla.models.model import Model
from pipla.operators import Dense
from pipla.prox import L1, ElasticNet, GroupLasso, LaplaceScale, Strength
from pipla_lab.zoo.base import Case, Kind, number, zeros

_kind = Kind()
PROBLEMS = _kind.problems


def _lasso(about: str, features: np.ndarray, y: np.ndarray, noise: float, start: float) -> Case:
    return Case(
        about=about,
        model=Model(Gaussian(Dense(jnp.asarray(features)), y, noise), LaplaceScale()),
        theta=number(start),
        x=zeros(features.shape[1]),
        data={"features": features, "y": y, "noise": np.asarray(noise)},
    )


def _observed(
    rng: np.random.Generator, features: np.ndarray, scale: float, noise: float
) -> np.ndarray:
    rows, columns = features.shape
    return features @ rng.laplace(0.0, scale, columns) + noise * rng.standard_normal(rows)


@_kind.named("lasso")
def lasso() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, e^{2\theta})$, $y \sim N(Hx, 1)$ with 60 rows, 15 columns."""
    rng = np.random.default_rng(30)
    features = rng.standard_normal((60, 15))
    y = _observed(rng, features, 0.5, 1.0)
    return _lasso("Lasso with known noise, 60 rows and 15 columns.", features, y, 1.0, 0.5)


@_kind.named("lasso-wide")
def lasso_wide() -> Case:
    r"""As `lasso`, with 100 rows, 300 columns of unit variance and noise .5."""
    rng = np.random.default_rng(31)
    features = rng.standard_normal((100, 300)) / 10
    y = _observed(rng, features, 1.0, 0.5)
    return _lasso("Lasso with three columns per row; the noise is known.", features, y, 0.5, 0.5)


def _conditioned(seed: int, condition: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Features with the given condition number of $H^\top H$, and observations."""
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((80, 20)))
    right, _ = np.linalg.qr(rng.standard_normal((20, 20)))
    features = left * (10 * np.geomspace(1, condition**-0.5, 20)) @ right.T
    return features, _observed(rng, features, 1.0, 1.0)


@_kind.named("lasso-correlated")
def lasso_correlated() -> Case:
    r"""As `lasso`, with 20 columns; $H^\top H$ has condition number $10^2$."""
    about = "Lasso with correlated columns: condition number 100 of the Gram matrix."
    return _lasso(about, *_conditioned(32, 1e2), noise=1.0, start=0.5)


@_kind.named("lasso-ill-conditioned")
def lasso_ill_conditioned() -> Case:
    r"""As `lasso`, with 20 columns; $H^\top H$ has condition number $10^6$."""
    about = "Lasso with nearly collinear columns: condition number 1e6 of the Gram matrix."
    return _lasso(about, *_conditioned(33, 1e6), noise=1.0, start=0.5)


@_kind.named("diabetes")
def diabetes() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, e^{2\theta_p})$, $y \sim N(Hx, e^{2\theta_n})$; all scaled."""
    from sklearn.datasets import load_diabetes

    features, y = load_diabetes(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    y = (y - y.mean()) / y.std()
    return Case(
        about="Bayesian lasso on scikit-learn's diabetes data; scale and noise are learned.",
        model=Model(
            Gaussian(Dense(jnp.asarray(features)), y, None, theta="noise"),
            LaplaceScale().on(theta="prior"),
        ),
        theta={"prior": number(0.0), "noise": number(0.0)},
        x=zeros(10),
        data={"features": features, "y": y},
    )


@_kind.named("l1-learned-noise")
def l1_learned_noise() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, 1/2)$, $y \sim N(Hx, e^{2\theta})$."""
    rng = np.random.default_rng(34)
    features = rng.standard_normal((40, 12))
    y = _observed(rng, features, 0.5, 0.8)
    return Case(
        about="Lasso with a fixed penalty; the noise is learned.",
        model=Model(Gaussian(Dense(jnp.asarray(features)), y, None), L1(2.0)),
        theta=number(1.0),
        x=zeros(12),
        data={"features": features, "y": y, "weight": np.asarray(2.0)},
    )


@_kind.named("elastic-net-learned-noise")
def elastic_net_learned_noise() -> Case:
    r"""The potential of x is $|x|_1 + \tfrac32 |x|^2$, $y \sim N(Hx, e^{2\theta})$."""
    rng = np.random.default_rng(35)
    common = rng.standard_normal((50, 1))
    features = common + 0.7 * rng.standard_normal((50, 10))
    y = _observed(rng, features, 0.4, 1.0)
    return Case(
        about="Elastic net with fixed weights and correlated columns; the noise is learned.",
        model=Model(Gaussian(Dense(jnp.asarray(features)), y, None), ElasticNet(1.0, 3.0)),
        theta=number(1.0),
        x=zeros(10),
        data={"features": features, "y": y, "l1": np.asarray(1.0), "l2": np.asarray(3.0)},
    )


@_kind.named("group-lasso")
def group_lasso() -> Case:
    r"""The potential of x is $e^\theta \sum_g |x_g|_2 - 30\,\theta$: ten groups of three."""
    rng = np.random.default_rng(36)
    features = rng.standard_normal((60, 30))
    coefficients = rng.standard_normal((10, 3)) * (rng.uniform(size=(10, 1)) < 0.5)
    y = features @ coefficients.ravel() + rng.standard_normal(60)
    return Case(
        about="Group lasso with ten groups of three; the strength is learned.",
        model=Model(
            Gaussian(Dense(jnp.asarray(features), (10, 3)), y, 1.0), Strength(GroupLasso(axis=1))
        ),
        theta=number(0.0),
        x=zeros(10, 3),
        data={"features": features, "y": y, "noise": np.asarray(1.0)},
    )


@_kind.named("two-scales")
def two_scales() -> Case:
    r"""Main effects and interactions, each Laplace with a scale of its own; $y \sim N(Hx, 1)$."""
    rng = np.random.default_rng(37)
    main = rng.standard_normal((120, 8))
    first, second = np.triu_indices(8, 1)
    pairs = main[:, first] * main[:, second]
    mean = main @ rng.laplace(0.0, 1.0, 8) + pairs @ rng.laplace(0.0, 0.2, 28)
    data = {"main": main, "pairs": pairs, "y": mean + rng.standard_normal(120)}
    parts = ("main", "pairs")
    first_term, second_term = (LaplaceScale().on(theta=part, x=part) for part in parts)
    return Case(
        about="Main effects and interactions with one learned scale each.",
        model=Model(_two_parts, first_term + second_term, data=data),
        theta={"main": number(0.5), "pairs": number(0.5)},
        x={"main": zeros(8), "pairs": zeros(28)},
        data=data,
    )


def _two_parts(theta: dict[str, Array], x: dict[str, Array], data: dict[str, Array]) -> Array:
    fitted = data["main"] @ x["main"] + data["pairs"] @ x["pairs"]
    return 0.5 * jnp.sum((fitted - data["y"]) ** 2)
