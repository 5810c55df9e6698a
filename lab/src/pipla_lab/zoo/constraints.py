"""Latents inside a box, a half-line or a simplex."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.models.likelihoods import Gaussian
from pipla.models.model import Model
from pipla.operators import Dense, Identity, Select
from pipla.prox import Box, NonNegative, Simplex, UniformBox, UniformLogBox
from pipla_lab.zoo.base import Case, Kind, number, zeros
from pipla_lab.zoo.locations import binomial

_kind = Kind()
PROBLEMS = _kind.problems


@_kind.named("uniform-half-width")
def uniform_half_width() -> Case:
    r"""$x_i \sim U(-\theta, \theta)$, $y_i \sim N(x_i, .5^2)$."""
    rng = np.random.default_rng(20)
    y = rng.uniform(-2.0, 2.0, 50) + 0.5 * rng.standard_normal(50)
    return Case(
        about="Uniform latents of learned half-width in Gaussian noise.",
        model=Model(Gaussian(Identity(), y, 0.5), UniformBox()),
        theta=number(1.0),
        x=zeros(50),
        data={"y": y, "noise": np.asarray(0.5)},
    )


@_kind.named("uniform-log-half-width")
def uniform_log_half_width() -> Case:
    r"""$x_i \sim U(-e^\theta, e^\theta)$; 15 trials with log odds $x_i$ in each group."""
    rng = np.random.default_rng(21)
    trials = np.full(60, 15.0)
    successes = rng.binomial(15, 1 / (1 + np.exp(-rng.uniform(-2.0, 2.0, 60)))).astype(float)
    data = {"trials": trials, "successes": successes}
    return Case(
        about="Log odds of 60 groups, uniform with a learned log half-width.",
        model=Model(binomial, UniformLogBox(), data=data),
        theta=number(0.0),
        x=zeros(60),
        data=data,
    )


@_kind.named("box-learned-noise")
def box_learned_noise() -> Case:
    r"""$x_i \sim U(0, 1)$; three $y_{ij} \sim N(x_i, e^{2\theta})$."""
    rng = np.random.default_rng(22)
    x = np.clip(rng.uniform(-0.3, 1.3, 20), 0.0, 1.0)
    places = np.repeat(np.arange(20), 3)
    y = x[places] + 0.3 * rng.standard_normal(60)
    return Case(
        about="Fractions between 0 and 1, each measured three times; the noise is learned.",
        model=Model(Gaussian(Select(places, (20,)), y, None), Box(0.0, 1.0)),
        theta=number(0.0),
        x=jnp.full(20, number(0.5)),
        data={"y": y, "places": places},
    )


@_kind.named("nonnegative-poisson")
def nonnegative_poisson() -> Case:
    r"""$x_i$ is exponential with rate $e^\theta$, $y_i \sim \mathrm{Poisson}(x_i + 1)$."""
    rng = np.random.default_rng(23)
    counts = rng.poisson(rng.exponential(2.0, 40) + 1.0).astype(float)
    data = {"counts": counts, "background": np.asarray(1.0)}
    return Case(
        about="Counts over a background; the rates are exponential with a learned mean.",
        model=Model(_counts, NonNegative(), data=data),
        theta=number(0.0),
        x=jnp.ones(40, jnp.result_type(float)),
        data=data,
    )


def _counts(theta: Array, x: Array, data: dict[str, Array]) -> Array:
    rate = x + data["background"]
    prior = jnp.exp(theta) * jnp.sum(x) - x.size * theta
    return jnp.sum(rate - data["counts"] * jnp.log(rate)) + prior


@_kind.named("simplex-learned-noise")
def simplex_learned_noise() -> Case:
    r"""x is uniform on the simplex of four parts; $y \sim N(Ax, e^{2\theta})$."""
    rng = np.random.default_rng(24)
    spectra = rng.uniform(0.0, 1.0, (15, 4))
    y = spectra @ np.array([0.6, 0.3, 0.1, 0.0]) + 0.15 * rng.standard_normal(15)
    return Case(
        about="A mixture of four known spectra; the parts add up to 1 and the noise is learned.",
        model=Model(Gaussian(Dense(jnp.asarray(spectra)), y, None), Simplex()),
        theta=number(0.0),
        x=zeros(4) + 0.25,
        data={"spectra": spectra, "y": y},
    )
