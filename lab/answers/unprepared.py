"""Problems of more kinds, made after `pipla.fit` was as it is: scales, offsets, several leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from answers.ordinary import Problem, groups, laplace, plain, sigmoid, variation
from pipla.prox import GroupLasso, LaplaceScale, Strength, TVStrength


def slopes_prior(theta: Any, x: Any) -> jax.Array:
    """Laplace slopes beside an intercept."""
    return laplace(theta["scale"] if isinstance(theta, dict) else theta, x["slopes"])


def large_counts() -> Problem:
    """Poisson counts, half of them in one of 80 rows, with an intercept that no term touches.

    The large count fixes a sum of coefficients, so that the intercept varies hundreds of times more
    than it does with the slopes held fixed.
    """
    rng = np.random.default_rng(0)
    features, x = rng.standard_normal((80, 25)), 0.4 * rng.laplace(size=25)
    y = rng.poisson(np.exp(0.5 + features @ x)).astype(float)

    def misfit(theta: Any, x: Any, data: Any) -> jax.Array:
        z = x["intercept"] + data["features"] @ x["slopes"]
        return jnp.sum(jnp.exp(z) - data["y"] * z) + x["intercept"] ** 2 / 50

    term, start = LaplaceScale().on(x="slopes"), {"intercept": 0.0, "slopes": np.zeros(25)}
    data = {"features": features, "y": y}
    return plain(misfit, data, term, slopes_prior, (0.0, 2.0), start, sweeps=3000)


def two_noises() -> Problem:
    """Two instruments, one five times as noisy as the other; both noises are unknown."""
    rng = np.random.default_rng(301)
    features, noisy = rng.normal(size=(120, 20)), np.arange(120) % 3 == 0
    y = features @ (0.5 * rng.laplace(size=20)) + np.where(noisy, 2.5, 0.5) * rng.normal(size=120)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        level = jnp.where(data["noisy"], theta["noisy"], theta["quiet"])
        u = (data["features"] @ x - data["y"]) * jnp.exp(-level)
        return jnp.sum(u**2 / 2 + level)

    def prior(theta: Any, x: jax.Array) -> jax.Array:
        return laplace(theta["scale"], x)

    names = ("noisy", "quiet", "scale")
    thetas = (dict.fromkeys(names, 0.0), dict(zip(names, (-1.0, 2.0, -2.0), strict=True)))
    data = {"features": features, "y": y, "noisy": noisy}
    return plain(misfit, data, LaplaceScale().on(theta="scale"), prior, thetas, np.zeros(20))


def units() -> Problem:
    """Features in units from 1e-3 to 1e3, y around 1e4 in noise of unknown size."""
    rng = np.random.default_rng(302)
    features = rng.normal(size=(100, 12)) * 10.0 ** np.tile([-3, 0, 3], 4)
    y = 1e4 + features @ rng.laplace(size=12) + 5 * rng.normal(size=100)

    def misfit(theta: Any, x: Any, data: Any) -> jax.Array:
        u = x["intercept"] + data["features"] @ x["slopes"] - data["y"]
        return jnp.exp(-2 * theta["noise"]) * jnp.sum(u**2) / 2 + 100 * theta["noise"]

    thetas = ({"noise": 0.0, "scale": 0.0}, {"noise": 5.0, "scale": 3.0})
    start = {"intercept": 1e4, "slopes": np.zeros(12)}
    data, term = {"features": features, "y": y}, LaplaceScale().on(theta="scale", x="slopes")
    return plain(misfit, data, term, slopes_prior, thetas, start)


def volatility() -> Problem:
    """Returns whose log variance jumps twice; total variation."""
    rng = np.random.default_rng(303)
    y = np.exp(np.repeat([-1.0, 1.0, 0.0], 40) / 2) * rng.normal(size=120)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        return jnp.sum(x / 2 + data**2 * jnp.exp(-x) / 2)

    term = TVStrength(degrees=119)
    return plain(misfit, y, term, variation, (0.0, 4.0), np.zeros(120), sweeps=4000)


def schools() -> Problem:
    """Labels in six schools with an intercept each, and eight groups of three features."""
    rng = np.random.default_rng(304)
    features, school = rng.normal(size=(240, 24)), rng.integers(6, size=240)
    x = 0.8 * rng.normal(size=(8, 3)) * (np.arange(8) < 3)[:, None]
    z = features @ x.ravel() + np.linspace(-2, 2, 6)[school]
    labels = (rng.uniform(size=240) < sigmoid(z)).astype(float)

    def misfit(theta: Any, x: Any, data: Any) -> jax.Array:
        z = data["features"] @ x["slopes"].ravel() + x["intercepts"][data["school"]]
        own = jnp.sum(x["intercepts"] ** 2) / 18
        return jnp.sum(jnp.logaddexp(0.0, z) - data["y"] * z) + own

    def prior(theta: Any, x: Any) -> jax.Array:
        return groups(theta, x["slopes"])

    data = {"features": features, "y": labels, "school": school}
    start = {"intercepts": np.zeros(6), "slopes": np.zeros((8, 3))}
    term = Strength(GroupLasso(axis=1)).on(x="slopes")
    return plain(misfit, data, term, prior, (0.0, 3.0), start)


def collinear_labels() -> Problem:
    """Logistic regression on 20 features with a condition number of a million."""
    rng = np.random.default_rng(305)
    left = np.linalg.qr(rng.normal(size=(150, 20)))[0]
    right = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    features = np.sqrt(150) * left * np.logspace(0.5, -5.5, 20) @ right
    z = features @ (2 * rng.laplace(size=20))
    labels = (rng.uniform(size=150) < sigmoid(z)).astype(float)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        z = data["features"] @ x
        return jnp.sum(jnp.logaddexp(0.0, z) - data["y"] * z)

    data = {"features": features, "y": labels}
    return plain(misfit, data, LaplaceScale(), laplace, (0.0, 3.0), np.zeros(20), sweeps=3000)


def additive() -> Problem:
    """A sum of a jumping level, Laplace slopes and an intercept per weekday, in unknown noise."""
    rng = np.random.default_rng(306)
    features, day = rng.normal(size=(84, 8)), np.arange(84) % 7
    level = np.repeat([0.0, 3.0, 1.0], 28)
    y = level + features @ (0.6 * rng.laplace(size=8)) + rng.normal(size=7)[day]
    y += 0.4 * rng.normal(size=84)

    def misfit(theta: Any, x: Any, data: Any) -> jax.Array:
        u = x["level"] + data["features"] @ x["slopes"] + x["day"][data["day"]] - data["y"]
        fit = jnp.exp(-2 * theta["noise"]) * jnp.sum(u**2) / 2 + 84 * theta["noise"]
        return fit + jnp.sum(x["day"] ** 2) / 2

    def prior(theta: Any, x: Any) -> jax.Array:
        return laplace(theta["scale"], x["slopes"]) + variation(theta["jumps"], x["level"])

    names = ("jumps", "noise", "scale")
    thetas = (dict.fromkeys(names, 0.0), dict(zip(names, (3.0, 1.0, -2.0), strict=True)))
    data = {"features": features, "y": y, "day": day}
    start = {"day": np.zeros(7), "level": np.zeros(84), "slopes": np.zeros(8)}
    jumps, scale = TVStrength(degrees=83), LaplaceScale()
    term = scale.on(theta="scale", x="slopes") + jumps.on(theta="jumps", x="level")
    return plain(misfit, data, term, prior, thetas, start, sweeps=3000)


def five_rows() -> Problem:
    """Five rows of three features, in noise of known size."""
    rng = np.random.default_rng(307)
    features = rng.normal(size=(5, 3))
    y = features @ np.array([2.0, 0.0, -1.0]) + rng.normal(size=5)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        return jnp.sum((data["features"] @ x - data["y"]) ** 2) / 2

    data = {"features": features, "y": y}
    return plain(misfit, data, LaplaceScale(), laplace, (0.0, 3.0), np.zeros(3), chains=400)


def no_signal() -> Problem:
    """Labels that have nothing to do with 15 features, and an intercept without a prior.

    The likelihood has a weak maximum at a small scale: below it, down to 0, it hardly falls.
    """
    rng = np.random.default_rng(308)
    features, labels = rng.normal(size=(150, 15)), (np.arange(150) % 3 == 0).astype(float)

    def misfit(theta: Any, x: Any, data: Any) -> jax.Array:
        z = x["intercept"] + data["features"] @ x["slopes"]
        return jnp.sum(jnp.logaddexp(0.0, z) - data["y"] * z)

    data, start = {"features": features, "y": labels}, {"intercept": 0.0, "slopes": np.zeros(15)}
    term = LaplaceScale().on(x="slopes")
    return plain(misfit, data, term, slopes_prior, (0.0, -2.0), start, chains=200, sweeps=3000)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        *(large_counts, two_noises, units, volatility, schools, collinear_labels, additive),
        *(five_rows, no_signal),
    )
}
