"""Sequences: independent coordinates with a prior of learned scale, or with learned noise."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.models.likelihoods import Gaussian, Poisson
from pipla.models.model import Model
from pipla.operators import Identity, Select
from pipla.prox import L1, LaplaceScale
from pipla_lab.zoo.base import Case, Kind, number, zeros

_kind = Kind()
PROBLEMS = _kind.problems


@_kind.named("laplace-scale")
def laplace_scale() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, e^{2\theta})$, $y_i \sim N(x_i, 1)$."""
    rng = np.random.default_rng(10)
    y = rng.laplace(0.0, 1.5, 100) + rng.standard_normal(100)
    return Case(
        about="A Laplace sequence of learned scale in Gaussian noise of known size.",
        model=Model(Gaussian(Identity(), y, 1.0), LaplaceScale()),
        theta=number(-1.0),
        x=zeros(100),
        data={"y": y, "noise": np.asarray(1.0)},
    )


@_kind.named("laplace-scale-weak-data")
def laplace_scale_weak_data() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, e^{2\theta})$, $y_i \sim N(x_i, 1)$, the scale about .5."""
    rng = np.random.default_rng(15)
    y = rng.laplace(0.0, 0.5, 200) + rng.standard_normal(200)
    return Case(
        about="A Laplace sequence whose learned scale is half of the noise.",
        model=Model(Gaussian(Identity(), y, 1.0), LaplaceScale()),
        theta=number(1.0),
        x=zeros(200),
        data={"y": y, "noise": np.asarray(1.0)},
    )


@_kind.named("laplace-scale-learned-noise")
def laplace_scale_learned_noise() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, e^{2\theta_p})$, two $y_{ij} \sim N(x_i, e^{2\theta_n})$."""
    rng = np.random.default_rng(11)
    x = rng.laplace(0.0, 1.0, 50)
    places = np.repeat(np.arange(50), 2)
    y = x[places] + 0.7 * rng.standard_normal(100)
    return Case(
        about="A Laplace sequence seen twice; its scale and the noise are learned.",
        model=Model(
            Gaussian(Select(places, (50,)), y, None, theta="noise"),
            LaplaceScale().on(theta="prior"),
        ),
        theta={"prior": number(0.5), "noise": number(0.5)},
        x=zeros(50),
        data={"y": y, "places": places},
    )


@_kind.named("laplace-scale-poisson")
def laplace_scale_poisson() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, e^{2\theta})$, $y_i \sim \mathrm{Poisson}(e^{1 + x_i})$."""
    rng = np.random.default_rng(12)
    counts = rng.poisson(np.exp(1.0 + rng.laplace(0.0, 0.6, 60))).astype(float)
    likelihood = Poisson(np.eye(60), counts, offsets=np.ones(60))
    return Case(
        about="Counts of 60 regions, each with a Laplace log rate; the scale is learned.",
        model=Model(likelihood, LaplaceScale()),
        theta=number(0.5),
        x=zeros(60),
        data={"counts": counts},
    )


@_kind.named("l1-student-noise")
def l1_student_noise() -> Case:
    r"""$x_i \sim \mathrm{Laplace}(0, 1)$; four $y_{ij} - x_i$ are $e^\theta t_4$."""
    rng = np.random.default_rng(13)
    y = rng.laplace(0.0, 1.0, 30)[:, None] + 0.5 * rng.standard_t(4, (30, 4))
    return Case(
        about="A plain function: Student noise of learned scale around latents with a fixed prior.",
        model=Model(_student, L1(), data={"y": y}),
        theta=number(1.0),
        x=zeros(30),
        data={"y": y},
    )


def _student(theta: Array, x: Array, data: dict[str, Array]) -> Array:
    scaled = (data["y"] - x[:, None]) * jnp.exp(-theta)
    return scaled.size * theta + 2.5 * jnp.sum(jnp.log1p(scaled**2 / 4))


@_kind.named("laplace-scale-no-noise")
def laplace_scale_no_noise() -> Case:
    r"""As `laplace-scale` with a learned noise, but $y$ has none: $\theta_n \to -\infty$."""
    # The absolute values are quantiles of a density more peaked than any Laplace density.
    size = 40
    y = np.linspace(-1, 1, size) ** 5 * 3
    return Case(
        about="Noise-free data with a learned noise: the likelihood rises as the noise goes to 0.",
        model=Model(Gaussian(Identity(), y, None, theta="noise"), LaplaceScale().on(theta="prior")),
        theta={"prior": number(0.0), "noise": number(0.0)},
        x=zeros(size),
        data={"y": y},
    )
