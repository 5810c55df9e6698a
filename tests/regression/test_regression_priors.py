"""Priors with a learned scale: their terms, and their scales against independent samplers."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from pipla.prox import GroupLasso
from pipla.regression import SparseLinearRegression
from pipla.regression._answers import Answer
from pipla.regression._proximal import _normal
from pipla.regression._terms import ElasticNetScale, Groups

GROUPS = np.array([0, 0, 0, 1, 1, 2, 3, 3])


def test_the_joint_prox_of_an_elastic_net_minimises():
    term = ElasticNetScale(jnp.asarray(0.4))
    theta, x, lams = 0.1, np.array([1.5, -0.3, 0.05]), (0.02, 0.1)

    def objective(at):
        c = np.exp(2 * at[0])
        value = 0.4 * np.sum(np.abs(at[1:])) / c + 0.6 * np.sum(at[1:] ** 2) / (2 * c**2)
        value += 2 * 3 * at[0]
        distance = (at[0] - theta) ** 2 / lams[0] + np.sum((at[1:] - x) ** 2) / lams[1]
        return value + 0.5 * distance

    best = optimize.minimize(
        objective, [theta, *x], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12}
    )
    moved, point = term.prox(jnp.asarray(theta), jnp.asarray(x), *lams)
    np.testing.assert_allclose([float(moved), *np.asarray(point)], best.x, atol=2e-4)
    alone = term.prox(jnp.asarray(theta), jnp.asarray(x), None, 0.1)[1]
    c = np.exp(0.2)
    expected = np.sign(x) * np.maximum(np.abs(x) - 0.04 / c, 0) / (1 + 0.06 / c**2)
    np.testing.assert_allclose(alone, expected, rtol=1e-5)


def test_the_closed_form_of_an_elastic_net_minimises():
    term = ElasticNetScale(jnp.asarray(0.4))
    particles = jnp.asarray(np.random.default_rng(0).standard_normal((5, 4)))

    def mean(theta):
        return float(np.mean([term.value(jnp.asarray(theta), x) for x in particles]))

    best = optimize.minimize_scalar(mean, bounds=(-3, 3), method="bounded").x
    assert abs(float(term.closed_form(jnp.asarray(0.0), particles)) - best) < 1e-3


def test_a_scale_without_a_standard_error_has_an_interval_without_end():
    answer = Answer(*[None] * 8, {"scale": np.exp(_normal(0.5, np.inf))}, (), None, None)
    middle, low, high = answer.learned(0.9)["scale"]
    assert (low, high) == (0, np.inf)
    np.testing.assert_allclose(middle, np.exp(0.5))
    answer = answer._replace(theta={"scale": _normal(0.5, 2.0)})
    np.testing.assert_allclose(
        answer.learned(0.95)["scale"], 0.5 + 2 * 1.96 * np.array([0, -1, 1]), atol=0.02
    )


def test_equal_groups_are_a_group_lasso_whatever_their_order():
    x = jnp.asarray(np.random.default_rng(1).standard_normal((3, 2)))
    whole, parts = GroupLasso(2.0, axis=1), Groups(2.0, (0, 1, 2, 0, 1, 2))
    flat = x.T.ravel()  # first of each group, then second
    np.testing.assert_allclose(parts.value(None, flat), whole.value(None, x), rtol=1e-6)
    shrunk = parts.prox(None, flat, None, 0.3)[1]
    np.testing.assert_allclose(shrunk, whole.prox(None, x, None, 0.3)[1].T.ravel(), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"groups": [0, 1]}, r"groups must hold the group of each of the 3 features"),
        ({"l1_ratio": 2.0}, "l1_ratio must be between 0 and 1"),
    ],
)
def test_bad_settings_are_named(given, said):
    with pytest.raises(ValueError, match=said):
        SparseLinearRegression("group", **given).fit(np.eye(3), np.arange(3.0))


def sampled(x, y, prior, c, sigma, sweeps=12_000, l1_ratio=0.5):
    """Gibbs sampler at given scales: the sum that c follows from, and the residual squares.

    A potential a|b| is a mixture of normals: 1/tau is inverse Gaussian given b.
    """
    rng = np.random.default_rng(0)
    size = np.bincount(GROUPS)[GROUPS] if prior == "group" else np.ones(x.shape[1])
    rate = np.sqrt((size + 1) / 2) / c
    ridge = 0.0
    if prior == "elastic-net":
        rate, ridge = np.full(x.shape[1], l1_ratio / c), (1 - l1_ratio) / c**2
    gram, product = x.T @ x / sigma**2, x.T @ y / sigma**2
    b, found = np.full(x.shape[1], 0.1), []
    for _ in range(sweeps):
        norm = np.abs(b)
        if prior == "group":
            norm = np.sqrt(np.bincount(GROUPS, b**2))[GROUPS]
            drawn = rng.wald(rate / norm, rate**2)
            first = np.searchsorted(GROUPS, GROUPS)  # one for each group
            precision = drawn[first]
        else:
            precision = rng.wald(rate / norm, rate**2)
        lower = np.linalg.cholesky(gram + np.diag(precision + ridge))
        mean = np.linalg.solve(lower.T, np.linalg.solve(lower, product))
        b = mean + np.linalg.solve(lower.T, rng.standard_normal(len(b)))
        if prior == "group":
            penalty = np.sum(rate * np.sqrt(np.bincount(GROUPS, b**2))[GROUPS] / size)
        else:
            penalty = np.sum(rate * np.abs(b)) + ridge * b @ b
        found.append((penalty, np.sum((y - x @ b) ** 2)))
    return np.mean(found[sweeps // 10 :], axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["elastic-net", "group"])
def test_scales_are_stationary_for_an_independent_sampler(prior):
    """At the maximum d = E[potential's part in c] and n sigma² = E|y - Xb|².

    A step of Newton from the fit, with the information of its interval, moves log c and log sigma
    by .02 at most: a tenth of a standard error. The sampler's error is a quarter of that.
    """
    rng = np.random.default_rng(3)
    x = rng.standard_normal((60, 8))
    y = x @ np.array([1, -0.5, 0.7, 0, 0, 0.3, 0.5, -0.2]) + rng.standard_normal(60)
    x = (x - x.mean(0)) / x.std(0)
    y = (y - y.mean()) / y.std()
    model = SparseLinearRegression(prior, groups=GROUPS).fit(x, y)
    c, sigma = model.theta_["scale"], model.theta_["noise"]
    penalty, squares = sampled(x, y, prior, c, sigma)
    low, high = np.log(model.theta_interval_["scale"])
    variance = ((high - low) / 3.29) ** 2  # of a 90 % interval
    assert abs(penalty - 8) * variance < 0.02
    assert abs(squares / sigma**2 - 60) / (2 * 60) < 0.005
