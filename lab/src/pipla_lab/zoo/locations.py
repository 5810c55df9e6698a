"""Priors with a learned location."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.models.likelihoods import Gaussian
from pipla.models.model import Model
from pipla.operators import Identity
from pipla.prox import ElasticNet, GaussianLocation, LaplaceLocation
from pipla_lab.zoo.base import Case, Kind, number, zeros

_kind = Kind()
PROBLEMS = _kind.problems


def _noisy_laplace(about: str, size: int, noise: float, truth: float, start: float) -> Case:
    rng = np.random.default_rng(size)
    y = rng.laplace(truth, 1.0, size) + noise * rng.standard_normal(size)
    model = Model(Gaussian(Identity(), y, noise), LaplaceLocation(scale=1.0))
    data = {"y": y, "noise": np.asarray(noise)}
    return Case(about, model, number(start), jnp.full(size, number(start)), data)


@_kind.named("laplace-location")
def laplace_location() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(\theta, 1)$, $y_i \sim N(x_i, .3^2)$: the data decide x."""
    about = "Laplace latents with a learned location, seen through little Gaussian noise."
    return _noisy_laplace(about, size=40, noise=0.3, truth=2.0, start=0.0)


@_kind.named("laplace-location-weak-data")
def laplace_location_weak_data() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(\theta, 1)$, $y_i \sim N(x_i, 3^2)$: the prior decides x."""
    about = "Laplace latents with a learned location, under noise three times their scale."
    return _noisy_laplace(about, size=80, noise=3.0, truth=-1.0, start=0.0)


@_kind.named("laplace-location-far-start")
def laplace_location_far_start() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(\theta, 1)$, $y_i \sim N(x_i, 1)$; everything starts at 40."""
    about = "Laplace latents with a learned location; the start is 40 scales away."
    return _noisy_laplace(about, size=50, noise=1.0, truth=-3.0, start=40.0)


@_kind.named("laplace-location-binomial")
def laplace_location_binomial() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(\theta, 1)$; 12 trials with log odds $x_i$ in each group."""
    rng = np.random.default_rng(2)
    trials = np.full(60, 12.0)
    successes = rng.binomial(12, 1 / (1 + np.exp(-rng.laplace(-1.0, 1.0, 60)))).astype(float)
    data = {"trials": trials, "successes": successes}
    return Case(
        about="Log odds of 60 groups, Laplace around a learned location; few trials in each.",
        model=Model(binomial, LaplaceLocation(scale=1.0), data=data),
        theta=number(1.0),
        x=zeros(60),
        data=data,
    )


def binomial(theta: Array, x: Array, data: dict[str, Array]) -> Array:
    """Numbers of successes in trials with log odds x, as a potential."""
    return jnp.sum(data["trials"] * jnp.logaddexp(x, 0.0) - data["successes"] * x)


@_kind.named("elastic-net-location")
def elastic_net_location() -> Case:
    r"""$y_i \sim N(\theta + x_i, .5^2)$ with the potential $|x_i| + x_i^2/4$ of $x_i$."""
    rng = np.random.default_rng(3)
    effects = rng.laplace(0.0, 1.0, 400)
    effects = effects[rng.uniform(size=400) < np.exp(-(effects**2) / 4)][:60]
    data = {"y": 3.0 + effects + 0.5 * rng.standard_normal(60), "noise": np.asarray(0.5)}
    return Case(
        about="Elastic-net effects around a mean that the likelihood learns.",
        model=Model(_shifted, ElasticNet(1.0, 0.5), data=data),
        theta=number(0.0),
        x=zeros(60),
        data=data,
    )


def _shifted(theta: Array, x: Array, data: dict[str, Array]) -> Array:
    return jnp.sum((theta + x - data["y"]) ** 2) / (2 * data["noise"] ** 2)


@_kind.named("gaussian-location")
def gaussian_location() -> Case:
    r"""$x_i \sim N(\theta, 1)$, $y_i \sim N(x_i, 2^2)$: smooth, and everything in closed form."""
    rng = np.random.default_rng(4)
    y = rng.normal(1.0, np.sqrt(5.0), 30)
    return Case(
        about="The Gaussian hierarchy with a learned location.",
        model=Model(Gaussian(Identity(), y, 2.0), GaussianLocation(scale=1.0)),
        theta=number(0.0),
        x=zeros(30),
        data={"y": y, "noise": np.asarray(2.0)},
    )
