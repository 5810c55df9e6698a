"""Ordinary problems that `pipla.fit` was not made for, each with its density written once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import pipla
from answers.differentiated import Differentiated, Potential
from pipla.models.likelihoods import Multinomial, Poisson
from pipla.prox import L1, GroupLasso, LaplaceScale, NonNegative, Strength, TVStrength


class Problem(NamedTuple):
    """A model, its potential without pipla, and where theta (twice) and x start."""

    model: pipla.Model
    potential: Potential
    thetas: tuple[Any, Any]
    x: Any
    chains: int = 100
    sweeps: int = 1000
    positive: bool = False
    slopes: tuple[float, ...] = ()  # where there is no maximum: where to look at the slope

    @property
    def target(self) -> Differentiated:
        return Differentiated(self.potential, self.thetas[0], self.x, self.positive)


#: Minus a log likelihood: (theta, x, data) -> number.
Misfit = Callable[[Any, Any, Any], jax.Array]


def plain(
    misfit: Misfit,
    data: Any,
    term: pipla.prox.Term,
    prior: Potential,
    thetas: tuple[Any, Any],
    x: Any,
    **options: Any,
) -> Problem:
    """A likelihood as users write it; `prior` is what `term` says, without pipla."""

    def potential(theta: Any, x: Any) -> jax.Array:
        return misfit(theta, x, data) + prior(theta, x)

    return Problem(pipla.Model(misfit, term, data=data), potential, thetas, x, **options)


def laplace(theta: Any, x: jax.Array) -> jax.Array:
    """Minus the log density of Laplace numbers of scale e^{2 theta}."""
    return jnp.exp(-2 * theta) * jnp.sum(jnp.abs(x)) + 2 * x.size * theta


def l1(theta: Any, x: jax.Array) -> jax.Array:
    """Minus the log density of Laplace numbers of scale e^{-theta}."""
    return jnp.exp(theta) * jnp.sum(jnp.abs(x)) - x.size * theta


def groups(theta: Any, x: jax.Array) -> jax.Array:
    """The norms of the rows of x with strength e^theta."""
    return jnp.exp(theta) * jnp.sum(jnp.sqrt(jnp.sum(x**2, axis=1))) - x.size * theta


def variation(theta: Any, x: jax.Array) -> jax.Array:
    """The total variation of a signal with strength e^theta."""
    return jnp.exp(theta) * jnp.sum(jnp.abs(x[1:] - x[:-1])) - (x.size - 1) * theta


def nothing(theta: Any, x: jax.Array) -> jax.Array:
    """No more than that x is positive."""
    return jnp.zeros(())


def labels_misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
    z = data["features"] @ x.ravel()
    return jnp.sum(jnp.logaddexp(0.0, z) - data["y"] * z)


def counts_misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
    z = data["features"] @ x.ravel()
    return jnp.sum(jnp.exp(z) - data["y"] * z)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def chain(rng: np.random.Generator, rows: int, columns: int, correlation: float) -> np.ndarray:
    """Features, each of which has this correlation with the next."""
    features = rng.normal(size=(rows, columns))
    for j in range(1, columns):
        own = np.sqrt(1 - correlation**2) * features[:, j]
        features[:, j] = correlation * features[:, j - 1] + own
    return features


def classes(features: np.ndarray, labels: np.ndarray, far: float, **options: Any) -> Problem:
    """Several classes, each with a column of Laplace coefficients."""
    features = (features - features.mean(0)) / features.std(0)

    def potential(theta: Any, x: jax.Array) -> jax.Array:
        z = features @ x
        chosen = z[np.arange(len(labels)), labels]
        return jnp.sum(jax.nn.logsumexp(z, axis=1) - chosen) + laplace(theta, x)

    model = pipla.Model(Multinomial(features, labels), LaplaceScale())
    x = np.zeros((features.shape[1], labels.max() + 1))
    return Problem(model, potential, (0.0, far), x, **options)


def wine() -> Problem:
    """Three separable classes of wine, 13 standardised features.

    There is no maximum: beyond a scale of some 6 all coefficients separate the classes, and the
    score that `scores` prints is 0 within its error. A fit must say so, or that it has not
    converged.
    """
    from sklearn.datasets import load_wine

    slopes = (0.0, 0.3, 0.6, 0.9, 1.2, 1.6)
    return classes(*load_wine(return_X_y=True), 3.0, slopes=slopes)


def iris() -> Problem:
    """Three classes of iris, two of which overlap."""
    from sklearn.datasets import load_iris

    return classes(*load_iris(return_X_y=True), 2.0, sweeps=3000)


def sparse_counts() -> Problem:
    """Poisson regression on 60 indicators, five of which are on in each of 300 rows."""
    rng = np.random.default_rng(200)
    features = np.zeros((300, 60))
    for row in features:
        row[rng.choice(60, 5, replace=False)] = 1
    x = 0.4 * rng.laplace(size=60)
    counts = rng.poisson(np.exp(0.5 + features @ x)).astype(float)
    model = pipla.Model(Poisson(features, counts, offsets=np.full(300, 0.5)), LaplaceScale())

    def potential(theta: Any, x: jax.Array) -> jax.Array:
        z = 0.5 + features @ x
        return jnp.sum(jnp.exp(z) - counts * z) + laplace(theta, x)

    return Problem(model, potential, (0.0, -2.0), np.zeros(60))


def grouped_labels() -> Problem:
    """Logistic regression on twelve groups of four features, a third of which matter."""
    rng = np.random.default_rng(201)
    features = rng.normal(size=(250, 48))
    x = rng.normal(size=(12, 4)) * (np.arange(12) < 4)[:, None]
    labels = (rng.uniform(size=250) < sigmoid(features @ x.ravel())).astype(float)
    data, term = {"features": features, "y": labels}, Strength(GroupLasso(axis=1))
    return plain(labels_misfit, data, term, groups, (0.0, 3.0), np.zeros((12, 4)))


def grouped_counts() -> Problem:
    """Poisson regression on ten groups of three features, four of which matter."""
    rng = np.random.default_rng(204)
    features = rng.normal(size=(150, 30))
    x = 0.3 * rng.normal(size=(10, 3)) * (np.arange(10) < 4)[:, None]
    counts = rng.poisson(np.exp(features @ x.ravel())).astype(float)
    data, term = {"features": features, "y": counts}, Strength(GroupLasso(axis=1))
    return plain(counts_misfit, data, term, groups, (0.0, 4.0), np.zeros((10, 3)))


def correlated_net() -> Problem:
    """Elastic net: 40 features in a chain of correlation .98."""
    rng = np.random.default_rng(202)
    features = chain(rng, 100, 40, 0.98)
    y = features @ (rng.laplace(size=40) * (np.arange(40) % 4 == 0)) + rng.normal(size=100)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        return jnp.sum((data["features"] @ x - data["y"]) ** 2) / 2 + 0.25 * jnp.sum(x**2)

    data = {"features": features, "y": y}
    return plain(misfit, data, Strength(L1()), l1, (0.0, 3.0), np.zeros(40))


def outliers() -> Problem:
    """Four plateaus in noise, every fifteenth value far off; total variation, Student noise."""
    rng = np.random.default_rng(203)
    signal = np.repeat([0.0, 3.0, 1.0, 4.0], 20)
    y = signal + 0.3 * rng.normal(size=80)
    y[::15] += 5 * rng.choice([-1.0, 1.0], size=len(y[::15]))

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        return 2.5 * jnp.sum(jnp.log1p(((x - data) / 0.3) ** 2 / 4))

    return plain(misfit, y, TVStrength(degrees=79), variation, (0.0, 3.0), y, sweeps=4000)


def count_signal() -> Problem:
    """Counts around three rates; total variation of their logarithms."""
    counts = np.random.default_rng(205).poisson(np.repeat([2.0, 9.0, 4.0], 20)).astype(float)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        return jnp.sum(jnp.exp(x) - data * x)

    term, x = TVStrength(degrees=59), np.log1p(counts)
    return plain(misfit, counts, term, variation, (0.0, 4.0), x, sweeps=3000)


def binomial_offset() -> Problem:
    """Binomial counts of 1 to 20 trials with known offsets; 25 features in a chain."""
    rng = np.random.default_rng(206)
    features, trials = chain(rng, 80, 25, 0.8), rng.integers(1, 21, size=80).astype(float)
    offset = rng.normal(size=80) - 1
    x = 0.3 * rng.laplace(size=25)
    y = rng.binomial(trials.astype(int), sigmoid(offset + features @ x)).astype(float)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        z = data["offset"] + data["features"] @ x
        return jnp.sum(data["trials"] * jnp.logaddexp(0.0, z) - data["y"] * z)

    data = {"features": features, "trials": trials, "offset": offset, "y": y}
    return plain(misfit, data, LaplaceScale(), laplace, (0.0, 2.0), np.zeros(25))


def two_blocks() -> Problem:
    """Logistic regression: a strong and a weak block of features, an intercept with a prior."""
    rng = np.random.default_rng(207)
    strong, weak = rng.normal(size=(200, 12)), rng.normal(size=(200, 20))
    z = 1 + strong @ (0.8 * rng.laplace(size=12)) + weak @ (0.15 * rng.laplace(size=20))
    labels = (rng.uniform(size=200) < sigmoid(z)).astype(float)

    def misfit(theta: Any, x: Any, data: Any) -> jax.Array:
        z = x["intercept"] + data["strong"] @ x["strong"] + data["weak"] @ x["weak"]
        own = x["intercept"] ** 2 / 8
        return jnp.sum(jnp.logaddexp(0.0, z) - data["y"] * z) + own

    def prior(theta: Any, x: Any) -> jax.Array:
        return laplace(theta["strong"], x["strong"]) + laplace(theta["weak"], x["weak"])

    parts = [LaplaceScale().on(theta=name, x=name) for name in ("strong", "weak")]
    data = {"strong": strong, "weak": weak, "y": labels}
    thetas = ({"strong": 0.0, "weak": 0.0}, {"strong": -2.0, "weak": 1.0})
    x = {"intercept": 0.0, "strong": np.zeros(12), "weak": np.zeros(20)}
    return plain(misfit, data, parts[0] + parts[1], prior, thetas, x)


def nonnegative() -> Problem:
    """Exponential numbers of unknown mean, seen through a blur in noise of unknown size."""
    rng = np.random.default_rng(208)
    places = np.arange(30)
    blur = np.exp(-((places[:, None] - places[None]) ** 2) / 2)
    blur = np.repeat(blur / blur.sum(1, keepdims=True), 2, axis=0)
    y = blur @ rng.exponential(2.0, size=30) + 0.3 * rng.normal(size=60)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        squares = jnp.sum((data["blur"] @ x - data["y"]) ** 2)
        fit = jnp.exp(-2 * theta["noise"]) * squares / 2 + 60 * theta["noise"]
        return fit + jnp.exp(theta["rate"]) * jnp.sum(x) - 30 * theta["rate"]

    data = {"blur": blur, "y": y}
    thetas = ({"noise": 0.0, "rate": 0.0}, {"noise": 1.0, "rate": 2.0})
    return plain(misfit, data, NonNegative(), nothing, thetas, np.ones(30), positive=True)


def survival() -> Problem:
    """Weibull times of unknown shape, a third of them censored; an intercept without a prior."""
    rng = np.random.default_rng(209)
    features = rng.normal(size=(150, 15))
    z = 0.5 + features @ (0.4 * rng.laplace(size=15))
    times = np.exp(z) * rng.weibull(1.6, size=150)
    limits = np.exp(z.mean()) * rng.uniform(0.5, 3, size=150)
    seen, logs = (times < limits).astype(float), np.log(np.minimum(times, limits))

    def misfit(theta: Any, x: Any, data: Any) -> jax.Array:
        shape = jnp.exp(theta["shape"])
        u = shape * (data["logs"] - x["intercept"] - data["features"] @ x["slopes"])
        return jnp.sum(jnp.exp(u) - data["seen"] * (u + theta["shape"]))

    def prior(theta: Any, x: Any) -> jax.Array:
        return laplace(theta["scale"], x["slopes"])

    data = {"features": features, "logs": logs, "seen": seen}
    thetas = ({"scale": 0.0, "shape": 0.0}, {"scale": -2.0, "shape": 1.5})
    term = LaplaceScale().on(theta="scale", x="slopes")
    return plain(misfit, data, term, prior, thetas, {"intercept": 0.0, "slopes": np.zeros(15)})


def studies() -> Problem:
    """Twelve studies with effects around an unknown mean, which only the likelihood knows."""
    rng = np.random.default_rng(210)
    trials = rng.integers(15, 120, size=12).astype(float)
    y = rng.binomial(trials.astype(int), sigmoid(-1 + 0.6 * rng.laplace(size=12))).astype(float)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        z = theta["mean"] + x
        return jnp.sum(data["trials"] * jnp.logaddexp(0.0, z) - data["y"] * z)

    def prior(theta: Any, x: jax.Array) -> jax.Array:
        return laplace(theta["scale"], x)

    thetas = ({"mean": 0.0, "scale": 0.0}, {"mean": 4.0, "scale": -2.0})
    data, term = {"trials": trials, "y": y}, LaplaceScale().on(theta="scale")
    return plain(misfit, data, term, prior, thetas, np.zeros(12))


def one_number() -> Problem:
    """One number seen once, in noise 1: only its scale is unknown."""

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        return jnp.sum((x - data) ** 2) / 2

    return plain(
        misfit, np.array([3.0]), LaplaceScale(), laplace, (0.0, -2.0), np.zeros(1), chains=400
    )


def overdispersed() -> Problem:
    """Negative binomial counts of unknown dispersion, 20 features in a chain."""
    rng = np.random.default_rng(211)
    features = chain(rng, 120, 20, 0.6)
    rates = np.exp(1 + features @ (0.3 * rng.laplace(size=20)))
    y = rng.poisson(rates * rng.gamma(2.0, 0.5, size=120)).astype(float)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        z, size = 1 + data["features"] @ x, jnp.exp(theta["size"])
        y = data["y"]
        each = gammaln(y + size) - gammaln(size) + size * theta["size"] + y * z
        return jnp.sum((y + size) * jnp.logaddexp(theta["size"], z) - each)

    def prior(theta: Any, x: jax.Array) -> jax.Array:
        return l1(theta["strength"], x)

    thetas = ({"size": 0.0, "strength": 0.0}, {"size": 3.0, "strength": 4.0})
    data, term = {"features": features, "y": y}, Strength(L1()).on(theta="strength")
    return plain(misfit, data, term, prior, thetas, np.zeros(20))


def robust() -> Problem:
    """Student noise of 3 degrees and unknown size; 30 features, L1 of unknown strength."""
    rng = np.random.default_rng(212)
    features = chain(rng, 100, 30, 0.5)
    y = features @ (0.5 * rng.laplace(size=30)) + 0.7 * rng.standard_t(3, size=100)

    def misfit(theta: Any, x: jax.Array, data: Any) -> jax.Array:
        u = (data["features"] @ x - data["y"]) * jnp.exp(-theta["noise"])
        return 2 * jnp.sum(jnp.log1p(u**2 / 3)) + 100 * theta["noise"]

    def prior(theta: Any, x: jax.Array) -> jax.Array:
        return l1(theta["strength"], x)

    thetas = ({"noise": 0.0, "strength": 0.0}, {"noise": 2.0, "strength": -2.0})
    data, term = {"features": features, "y": y}, Strength(L1()).on(theta="strength")
    return plain(misfit, data, term, prior, thetas, np.zeros(30))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        *(wine, iris, sparse_counts, grouped_labels, correlated_net, outliers),
        *(grouped_counts, count_signal, binomial_offset, two_blocks, nonnegative, survival),
        *(studies, one_number, overdispersed, robust),
    )
}
