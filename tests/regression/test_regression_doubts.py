"""Responses that contradict the model of a regression are named."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from pipla.regression import SparseLinearRegression, SparseLogisticRegression
from pipla.regression._doubts import (
    FALSE_ALARMS,
    FEWEST,
    dependent_doubt,
    family_doubt,
    index_doubt,
    rows_doubt,
    tails_doubt,
)


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
    assert any("heavier tails" in str(finding) for finding in model.findings_)
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
        alarms += any("heavier tails" in str(finding) for finding in model.findings_)
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


def test_few_observations_are_named():
    x = np.random.default_rng(0).standard_normal((3, 2))
    with pytest.warns(UserWarning, match="only 3 observations"):
        model = SparseLinearRegression().fit(x, x[:, 0])
    assert "only 3 observations" in model.summary()
    assert rows_doubt(10) is None


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_an_index_among_the_features_is_named(form):
    rng = np.random.default_rng(1)
    n = 200
    split = rng.permutation(n)[:150]
    age = rng.integers(18, 90, n)
    bad = [np.arange(n), np.arange(1, n + 1), rng.permutation(n)]
    good = [age, np.round(rng.standard_normal(n), 2), np.arange(n) % 50, 1e6 + np.arange(n)]
    for column, expected in [(c, True) for c in bad] + [(c, False) for c in good]:
        features = np.column_stack([rng.standard_normal(n), column])
        for rows in (np.arange(n), split):
            given = features[rows] if form == "dense" else scipy.sparse.csr_array(features[rows])
            said = index_doubt(given, "feature {}".format)
            assert (said is not None) == expected
            assert said is None or str(said).startswith(
                "feature 1 has another integer in every row"
            )


def test_an_index_is_named_as_the_column_is():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    x = pd.DataFrame({"dose": rng.standard_normal(60), "id": np.arange(60)})
    with pytest.warns(UserWarning, match="feature 'id' has another integer in every row"):
        SparseLogisticRegression().fit(x, rng.integers(0, 2, 60))


def test_classes_and_counts_in_a_linear_regression_are_named():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((100, 3))
    for y, words in (
        (rng.integers(1, 4, 100), "only the values 1, 2, 3, .* SparseLogisticRegression"),
        (rng.choice([-1.0, 1.0], 100), "only the values -1, 1, "),
        (rng.poisson(3, 100), "integers from 0 to .* SparsePoissonRegression"),
    ):
        with pytest.warns(UserWarning, match=words):
            SparseLinearRegression().fit(x, y)
    for y in (
        rng.standard_normal(100),
        rng.integers(25, 346, 100),  # as the progression of diabetes
        rng.choice([0.5, 1.5, 2.5], 100),
        rng.integers(1, 4, FEWEST - 1),
    ):
        assert family_doubt(np.asarray(y, float)) is None


def told(x, intercept=True, factors=()):
    dense = dependent_doubt(x, intercept, factors, "x{}".format)
    assert dependent_doubt(scipy.sparse.csr_array(x), intercept, factors, "x{}".format) == dense
    return dense


def test_features_that_determine_each_other_are_named():
    rng = np.random.default_rng(4)
    shares = rng.dirichlet(np.ones(3), 100)
    x = np.column_stack([rng.standard_normal(100), shares, np.ones(100)])
    assert str(told(x)).startswith("x1, x2, x3 determine each other up to a constant;")
    assert told(x[:, :4], intercept=False) is None
    assert told(np.delete(x, 2, axis=1)) is None
    total = np.column_stack([x[:, :2], x[:, 0] - 2 * x[:, 1]])
    assert str(told(total, intercept=False)).startswith("x0, x1, x2 determine each other;")
    with pytest.warns(UserWarning, match="feature 0, feature 1, feature 2 determine each other"):
        SparseLinearRegression().fit(shares, rng.standard_normal(100))


def test_what_the_sampler_knows_and_strong_correlations_are_not_named():
    rng = np.random.default_rng(5)
    one_hot = np.eye(3)[rng.integers(0, 3, 100)]
    z = rng.standard_normal((100, 1))
    assert told(one_hot) is not None
    assert told(one_hot, factors=[(1, 0, 2)]) is None
    assert told(np.column_stack([z, z])) is None
    assert told(z + 1e-4 * rng.standard_normal((100, 5))) is None
    assert told(rng.standard_normal((60, 58))) is None
    assert told(rng.standard_normal((50, 80))) is None
    assert told(1e3 + rng.standard_normal((100, 3))) is None
