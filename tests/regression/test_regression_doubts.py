"""Responses that contradict the model of a regression are named."""

import warnings

import numpy as np
import pytest
from scipy import stats

from pipla.regression import SparseLinearRegression
from pipla.regression._doubts import FALSE_ALARMS, FEWEST, tails_doubt


def linear(noise, seed=0, p=20):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((100, p))
    return x, x[:, 0] - x[:, 1] + noise(rng, 100)


def normal(rng, n):
    return rng.standard_normal(n)


def outlier(rng, n):
    return rng.standard_normal(n) + 20.0 * (np.arange(n) == 17)


@pytest.mark.parametrize("p", [20, 200])
def test_an_outlier_is_named(p):
    x, y = linear(outlier, p=p)
    with pytest.warns(UserWarning, match="heavier tails than a normal .* observations 17, "):
        model = SparseLinearRegression().fit(x, y)
    assert any("heavier tails" in sentence for sentence in model.warnings_)
    assert "heavier tails" in model.summary()


def test_noise_without_a_variance_is_named():
    """Student's t with two degrees of freedom: eight of ten are named at this size.

    Fewer than five of twelve would be once in 1700 times.
    """
    found = 0
    for seed in range(12):
        x, y = linear(lambda rng, n: rng.standard_t(2, n), seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            SparseLinearRegression(random_state=seed).fit(x, y)
        found += any("heavier tails" in str(one.message) for one in caught)
    assert found >= 5


def test_normal_noise_is_not_named():
    """At most one in a thousand by construction: two of 25 would be once in 3000 times."""
    alarms = 0
    for seed in range(25):
        x, y = linear(normal, seed, p=5 + 8 * seed)
        model = SparseLinearRegression(random_state=seed).fit(x, y)
        alarms += any("heavier tails" in sentence for sentence in model.warnings_)
    assert alarms <= 1


def test_the_bound_on_false_alarms_is_kept():
    """Where all draws have the same residuals, the alarms are those of one test at half the rate.

    The approximation of the kurtosis' distribution is liberal by a third at most (100 000
    simulations): 7 of 10 000 alarms are expected, and 30 come once in 10^10 times.
    """
    rng = np.random.default_rng(0)
    r = rng.standard_normal((10_000, 100))
    p = stats.kurtosistest(r, axis=1, alternative="greater").pvalue
    assert np.sum(2 * p < FALSE_ALARMS) < 30
    extreme = r[np.argmin(p)]
    assert tails_doubt(extreme, np.zeros((20, 100)), np.ones(100)) is not None


def test_weights_that_count_or_that_divide_the_variance_raise_no_alarm():
    rng = np.random.default_rng(1)
    weights = np.repeat([1.0, 100.0], 200)
    e = rng.standard_normal(400)
    predicted = np.zeros((20, 400))
    assert tails_doubt(e, predicted, weights) is None
    assert tails_doubt(e / np.sqrt(weights), predicted, weights) is None
    assert tails_doubt(e / np.sqrt(weights), predicted, np.ones(400)) is not None


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_the_unit_of_the_response_does_not_matter(unit):
    rng = np.random.default_rng(2)
    y = rng.standard_t(1, 100)
    given = tails_doubt(y, np.zeros((5, 100)), np.ones(100))
    assert given is not None
    assert tails_doubt(unit * y, np.zeros((5, 100)), np.ones(100)) == given


def test_few_residuals_and_rounding_are_not_judged():
    few = np.append(np.zeros(FEWEST - 2), 1.0)
    assert tails_doubt(few, np.zeros((5, FEWEST - 1)), np.ones(FEWEST - 1)) is None
    y = np.full(100, 1e8)
    rounding = np.where(np.arange(100) == 3, 1e-8, 0.0)
    assert tails_doubt(y, y + np.tile(rounding, (5, 1)), np.ones(100)) is None
    assert tails_doubt(np.zeros(100), np.zeros((5, 100)), np.ones(100)) is None
