"""Features that are the levels of a category: found, drawn together, and relative to one of them."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from regression_truths import error, linear, on_a_grid, tally

from pipla.regression import (
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
)
from pipla.regression._chains import GlmChain, LinearChain, LinearData
from pipla.regression._design import design_of
from pipla.regression._factors import factors_of, references, relative
from pipla.regression._state import Prior

#: Zeros are as probable as not; effects are large, so that sweeps do not lead from one to another.
PRIOR = Prior(np.array([0.0, 0.25, 9.0]), np.array([0.5, 0.2, 0.3]))


def one_hot(levels, count=None):
    return np.eye(int(np.max(levels)) + 1 if count is None else count)[levels]


def found_in(x, intercept=True):
    design = design_of(x, np.ones(x.shape[0]), centre=intercept, scale=True)
    return design, factors_of(design.columns, np.ones(x.shape[0]), intercept)


def sets_of(factors):
    return [factors.members[part].tolist() for part in factors.groups()]


@pytest.mark.parametrize("form", ["dense", "sparse", "scaled"])
def test_factors_are_found_wherever_their_columns_are(form):
    rng = np.random.default_rng(0)
    city, day = rng.integers(0, 4, 60), rng.integers(0, 3, 60)
    x = np.column_stack(
        [rng.random(60) < 0.3, one_hot(city), rng.standard_normal(60), one_hot(day)]
    )
    order = rng.permutation(9)
    x = x[:, order]
    if form == "scaled":
        x = (x - x.mean(0)) / x.std(0)
    given = scipy.sparse.csc_array(x) if form == "sparse" else x
    place = np.argsort(order)
    expected = {tuple(sorted(place[1:5])), tuple(sorted(place[6:9]))}
    factors = found_in(given)[1]
    assert {tuple(group) for group in sets_of(factors)} == expected
    for part, labels, first in zip(factors.groups(), factors.levels, (1, 6), strict=False):
        assert np.sum(factors.totals[part]) == 60
        assert np.all(x[np.arange(60), factors.members[labels]] > 0), first


def test_a_missing_level_or_no_intercept_is_no_factor():
    levels = np.arange(40) % 4
    assert not sets_of(found_in(one_hot(levels)[:, 1:])[1])
    assert not sets_of(found_in(one_hot(levels), intercept=False)[1])
    assert not sets_of(found_in(np.random.default_rng(0).standard_normal((40, 3)))[1])


@pytest.mark.parametrize("form", ["gram", "residual", "sparse"])
def test_effects_of_a_factor_are_drawn_from_the_enumerated_posterior(form):
    """Twelve observations of three levels, and one other feature; five standard errors."""
    rng = np.random.default_rng(1)
    levels = np.repeat([0, 1, 2], [5, 4, 3])
    x = np.column_stack([one_hot(levels), rng.standard_normal(12)])
    y = 2.5 * (levels == 1) + 0.5 * x[:, 3] + 0.5 * rng.standard_normal(12)
    noise, sweeps = 0.25, 20_000
    truth = linear(x - x.mean(0), y - y.mean(), noise, PRIOR)
    given = scipy.sparse.csc_array(x) if form == "sparse" else x
    design = design_of(given, np.ones(12), centre=True, scale=False)
    data = LinearData(design, y, np.ones(12), intercept=True)
    assert sets_of(data.factors) == [[0, 1, 2]]
    if form == "residual":
        data.gram, data.columns = False, design.columns
    chain = LinearChain(data, np.zeros(4), noise, 0)
    found = tally(sweeps, 4)
    chain.sweep(PRIOR, np.zeros(sweeps), 1, found)
    kept = found.draws.astype(float)
    assert np.all(np.abs(kept.mean(0) - truth[0]) < 5 * error(kept))
    present = (kept != 0).astype(float)
    assert np.all(np.abs(present.mean(0) - truth[1]) < 5 * error(present))


@pytest.mark.parametrize("poisson", [False, True])
@pytest.mark.parametrize("form", ["centred", "sparse"])
def test_effects_on_labels_and_counts_are_drawn_from_the_posterior_by_quadrature(poisson, form):
    levels = np.repeat([0, 1], [8, 6])
    y = np.array([0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1]) * (2.0 if poisson else 1.0)
    x = one_hot(levels)
    given = scipy.sparse.csc_array(x) if form == "sparse" else x
    columns = design_of(given, np.ones(14), centre=form == "centred", scale=False).columns
    seen = x - x.mean(0) if form == "centred" else x

    def log_likelihood(b, level):
        eta = b @ seen.T + level[:, None]
        return np.sum(y * eta - (np.exp(eta) if poisson else np.logaddexp(0, eta)), axis=1)

    prior = Prior(np.array([0.0, 0.25, 2.0]), np.array([0.5, 0.2, 0.3]))
    mean, slab, level = on_a_grid(log_likelihood, 2, level_sd=10.0, prior=prior, reach=8.0)
    chain = GlmChain(columns, y, np.ones(14), np.zeros(14), True, poisson, np.zeros(2), 0)
    assert sets_of(chain.factors) == [[0, 1]]
    sweeps = 40_000
    found = tally(sweeps, 2)
    chain.sweep(prior, np.zeros(sweeps), 1, found)
    kept = found.draws.astype(float)
    present = (kept != 0).astype(float)
    assert np.all(np.abs(kept.mean(0) - mean) < 5 * error(kept))
    assert np.all(np.abs(present.mean(0) - slab) < 5 * error(present))
    assert abs(found.levels[0].mean() - level) < 5 * error(found.levels[0])


def test_predictors_do_not_change_with_the_reference():
    rng = np.random.default_rng(2)
    x = np.column_stack([one_hot(rng.integers(0, 3, 50)), rng.standard_normal(50)])
    for given in (x, scipy.sparse.csc_array(x)):
        design, factors = found_in(given)
        b, level = rng.standard_normal((2, 4)), rng.standard_normal(2)
        places = references(factors, np.array([[0.5, 0.9, 0.52, 1.0]]))
        moved, gained = relative(factors, places, b)
        matrix = design.columns.dense.T
        if not design.is_dense:
            stored = (design.columns.values, design.columns.rows, design.columns.starts)
            matrix = scipy.sparse.csc_array(stored, x.shape)
        np.testing.assert_allclose(
            matrix @ moved.T + level + gained, matrix @ b.T + level, atol=1e-12
        )
        # Levels 0 and 2 are 0 about as often: the more frequent one is the reference.
        assert factors.members[places[0]] == (0 if x[:, 0].sum() > x[:, 2].sum() else 2)
        assert np.all(moved[:, factors.members[places[0]]] == 0)


def cities(n, seed=0):
    """Five cities of which the third has an effect."""
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, 5, n)
    return one_hot(levels), 0.8 * (levels == 2), rng


@pytest.mark.parametrize(
    ("kind", "n"),
    [
        (SparseLinearRegression, 100_000),
        (SparseLogisticRegression, 20_000),
        (SparsePoissonRegression, 20_000),
    ],
)
def test_cities_without_effect_have_none_in_large_data(kind, n):
    x, eta, rng = cities(n)
    y = eta + rng.standard_normal(n)
    if kind is SparseLogisticRegression:
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
    elif kind is SparsePoissonRegression:
        y = rng.poisson(np.exp(eta))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kind().fit(x, y)
    inclusion, (low, high) = model.inclusion_.ravel(), model.coef_interval_.reshape(2, 5)
    assert inclusion[2] > 0.99
    assert np.all(np.delete(inclusion, 2) < 0.95)
    assert np.all(np.delete((low <= 0) & (high >= 0), 2))
    assert abs(model.coef_.ravel()[2] - 0.8) < 0.15
    assert "relative to" in model.summary()


def test_effects_of_two_levels_are_certain_although_either_may_be_zero():
    x, _, rng = cities(400)
    both = one_hot((x[:, 0] > 0).astype(int))
    y = 2 * both[:, 1] + rng.standard_normal(400)
    model = SparseLinearRegression().fit(both, y)
    assert sorted(model.inclusion_.tolist()) == [0.0, 1.0]
    assert abs(np.sum(model.coef_ * [-1, 1]) - 2) < 0.5


def test_classes_share_the_reference():
    x, _, rng = cities(600)
    y = np.where(x[:, 2] > 0, 2, rng.integers(0, 2, 600))
    model = SparseLogisticRegression().fit(x, y)
    assert np.sum(np.all(model.coef_ == 0, axis=0)) == 1
    assert np.mean(model.predict(x)[x[:, 2] > 0] == 2) == 1
    shares = model.predict_proba(x[x[:, 0] > 0][:1])[0]
    assert np.all(np.abs(shares - [0.5, 0.5, 0]) < 0.15)
