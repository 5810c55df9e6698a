"""The sweeps over coefficients against enumeration and quadrature."""

import numpy as np
import pytest
import scipy.sparse
from regression_truths import PRIOR, error, linear, on_a_grid, tally
from scipy import stats

from pipla.regression._chains import GlmChain, LinearChain, LinearData, MultinomialChain
from pipla.regression._design import design_of
from pipla.regression._kernels import observations
from pipla.regression._learned import grid, sample
from pipla.regression._precision import (
    FEW,
    FIRST,
    LOSS,
    MANY,
    WORK,
    another_round,
    monte_carlo_error,
)
from pipla.regression._state import Prior


def assert_within(found, truth, mcse, errors=5.0):
    """Five standard errors: a right sampler fails 6e-7 times, for each number."""
    np.testing.assert_array_less(np.abs(found - truth), errors * mcse + 1e-12)


def problem(n=8, p=4):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, p)) + rng.standard_normal((n, 1))  # correlated
    return x, x @ np.array([1.0, 0.0, -0.5, 0.0])[:p] + 0.7 * rng.standard_normal(n)


@pytest.mark.parametrize("form", ["gram", "residual", "sparse"])
def test_linear_sweeps_sample_the_enumerated_posterior(form):
    x, y = problem()
    centred, noise, sweeps = x - x.mean(0), 0.5, 20_000
    truth = linear(centred, y - y.mean(), noise)
    given = scipy.sparse.csc_array(x) if form == "sparse" else x
    design = design_of(given, np.ones(8), centre=True, scale=False)
    data = LinearData(design, y, np.ones(8), intercept=True)
    assert data.gram == (form != "sparse")
    if form == "residual":
        data.gram, data.columns = False, design.columns
    chain = LinearChain(data, np.zeros(4), noise, 0)
    chain.attend(np.array([0.9, 0.1, 0.4, 0.2]))  # effects change places at any probabilities
    found = tally(sweeps, 4)
    chain.sweep(PRIOR, np.zeros(sweeps), 1, found)
    kept = found.draws.astype(float)
    assert_within(found.mean / sweeps, truth[0], error(kept))
    assert_within(found.slab / sweeps, truth[1], error((kept != 0).astype(float)))
    residuals = (y - y.mean())[:, None] - centred @ kept.T
    np.testing.assert_allclose(found.scores[:, 0], np.sum(residuals**2, axis=0), rtol=1e-4)


def test_weights_count_observations_several_times():
    x, y = problem()
    weights = np.array([1.0, 2.0, 3.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    found = []
    for rows, w in ((np.arange(8), weights), (np.repeat(np.arange(8), weights.astype(int)), None)):
        w = np.ones(len(rows)) if w is None else w
        design = design_of(x[rows], w, centre=True, scale=True)
        chain = LinearChain(LinearData(design, y[rows], w, True), np.zeros(4), 0.5, 0)
        found.append(tally(200, 4))
        chain.sweep(PRIOR, np.zeros(200), 1, found[-1])
    np.testing.assert_allclose(found[0].draws, found[1].draws, rtol=1e-5, atol=1e-8)


def likelihood(x, y, poisson):
    def log_likelihood(b, level):
        eta = b @ x.T + level[:, None]
        cumulant = np.exp(eta) if poisson else np.logaddexp(0, eta)
        return np.sum(y * eta - cumulant, axis=1)

    return log_likelihood


@pytest.mark.parametrize("poisson", [False, True])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_glm_sweeps_sample_the_posterior_by_quadrature(poisson, form):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((12, 2)) + 0.5 * rng.standard_normal((12, 1))
    eta = x @ [0.3 if poisson else 1.0, 0.0] + 0.3
    y = (rng.poisson(np.exp(eta)) if poisson else rng.random(12) < 1 / (1 + np.exp(-eta))) * 1.0
    mean, slab, level = on_a_grid(likelihood(x, y, poisson), 2, level_sd=10.0, reach=8.0)
    given = scipy.sparse.csc_array(x) if form == "sparse" else x
    columns = design_of(given, np.ones(12), centre=False, scale=False).columns
    sweeps = 40_000
    chain = GlmChain(columns, y, np.ones(12), np.zeros(12), True, poisson, np.zeros(2), 0)
    chain.visits = np.array([1.0, 0.5])
    found = tally(sweeps, 2)
    chain.sweep(PRIOR, np.zeros(sweeps), 1, found)
    kept = found.draws.astype(float)
    assert_within(kept.mean(0), mean, error(kept))
    assert_within(found.slab / sweeps, slab, error((kept != 0).astype(float)))
    assert_within(found.levels[0].mean(), level, error(found.levels[0]))
    assert found.scores[:, 0].sum() > 0.7 * found.scores[:, 1].sum()  # proposals are accepted


def test_an_effect_seen_in_few_labels_comes_and_goes():
    """The expansion at 0 ends far below the effect; without long steps there are few switches.

    The weights of the prior make 0 as probable as not; with 60 switches in a thousand sweeps, four
    standard errors of the frequency are .13 (a false alarm in 15 000).
    """
    rng = np.random.default_rng(5)
    x = rng.standard_normal((20, 1))
    y = (rng.random(20) < 1 / (1 + np.exp(-8 * x[:, 0]))) * 1.0
    axis = np.linspace(-40, 40, 8001)
    gain = likelihood(x, y, False)(axis[:, None], np.zeros(8001)) + 20 * np.log(2)
    ratio = np.sum(np.exp(gain - axis**2 / 18)) * 0.01 / np.sqrt(18 * np.pi)
    assert ratio > 100
    prior = Prior(np.array([0.0, 9.0]), np.array([ratio, 1.0]) / (1 + ratio))
    columns = design_of(scipy.sparse.csc_array(x), np.ones(20), centre=False, scale=False).columns
    sweeps = 8000
    chain = GlmChain(columns, y, np.ones(20), np.zeros(20), False, False, np.zeros(1), 0)
    found = tally(sweeps, 1, labels=2)
    chain.sweep(prior, np.zeros(sweeps), 1, found)
    present = found.draws[:, 0] != 0
    assert np.mean(present[1:] != present[:-1]) > 0.03
    assert abs(present.mean() - 0.5) < 0.13


def test_an_effect_that_separates_the_labels_moves():
    """The likelihood is flat there: most proposals are 0, and only steps that keep the label help.

    The mean is that of quadrature, to five standard errors.
    """
    x = np.random.default_rng(6).standard_normal((20, 1))
    y = (x[:, 0] > 0) * 1.0
    prior = Prior(np.array([0.0, 1e-4, 9.0]), np.array([0.98, 0.0195, 0.0005]))
    axis = np.linspace(0, 30, 30_001)
    mass = np.exp(likelihood(x, y, False)(axis[:, None], np.zeros(30_001)) - axis**2 / 18)
    columns = design_of(x, np.ones(20), centre=False, scale=False).columns
    sweeps = 20_000
    chain = GlmChain(columns, y, np.ones(20), np.zeros(20), False, False, np.full(1, 3.0), 0)
    found = tally(sweeps, 1)
    chain.sweep(prior, np.zeros(sweeps), 1, found)
    b = found.draws[:, 0].astype(float)
    present = b > 0.1
    assert present.mean() > 0.9
    assert np.mean(b[1:] != b[:-1]) > 0.08  # without such steps .055
    assert_within(b[present].mean(), axis @ mass / mass.sum(), error(b))


def test_several_classes_sample_the_posterior_by_quadrature():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((10, 1))
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 0, 1, 2])

    def log_likelihood(b, level):
        z = b[:, :, None] * x[:, 0]
        return np.sum(z[:, labels, np.arange(10)] - np.logaddexp.reduce(z, axis=1), axis=1)

    mean, slab, _ = on_a_grid(log_likelihood, 3, points=61)
    columns = design_of(x, np.ones(10), centre=False, scale=False).columns
    sweeps = 20_000
    chain = MultinomialChain(columns, labels, np.ones(10), np.zeros(3), False, np.zeros((3, 1)), 0)
    found = tally(sweeps, 3, levels=3)
    chain.sweep(PRIOR, np.zeros(sweeps), 1, found)
    kept = found.draws.astype(float)
    assert_within(kept.mean(0), mean, error(kept))
    assert_within(found.slab / sweeps, slab, error((kept != 0).astype(float)))


@pytest.mark.parametrize("poisson", [False, True])
def test_cumulants_and_their_derivatives(poisson):
    eta = np.concatenate([np.linspace(-30, 30, 121), [-600.0, 600.0]])
    value, first, second = np.empty((3, len(eta)))
    observations(poisson, eta, value, first, second)
    if poisson:
        truth = (np.exp(eta),) * 3
    else:
        p = 1 / (1 + np.exp(-eta))
        truth = (np.logaddexp(0, eta), p, np.exp(-np.logaddexp(0, eta) - np.logaddexp(0, -eta)))
    for found, right in zip((value, first, second), truth, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-11)


def test_weights_and_noise_are_drawn_from_their_posterior():
    """One coefficient far from 0: the weight of 0 is Beta(1.01, 2.01), sigma² inverse gamma.

    Four standard errors of independent draws, doubled for the noise: a right sampler fails 1e-4
    times.
    """
    n, sweeps = 40, 4000
    rng = np.random.default_rng(9)
    x = np.ones((n, 1))
    y = 5 + rng.standard_normal(n)
    design = design_of(x, np.ones(n), centre=False, scale=False)
    chain = LinearChain(LinearData(design, y, np.ones(n), False), np.array([5.0]), 1.0, 0)
    prior = Prior(np.array([0.0, 25.0]), np.array([0.5, 0.5]))
    found = tally(sweeps, 1, labels=2)
    chain.sweep(prior, np.full(sweeps, -1.0), 1, found)
    noise, zeros, scale = found.theta.T
    truth = stats.beta(1.01, 2.01)
    assert abs(zeros.mean() - truth.mean()) < 4 * truth.std() / np.sqrt(sweeps)
    # Given b, sigma² has the mean |y - b|²/(n - 2); over b, n - 1 degrees are left of n.
    total = np.sum((y - y.mean()) ** 2)
    assert abs(noise.mean() - total / (n - 3)) < 4 * noise.std() / np.sqrt(sweeps) * 2
    np.testing.assert_allclose(scale, 5.0)


def test_learned_weights_maximise_the_marginal_likelihood():
    """With orthogonal features it is a product over them, and EM on it is exact."""
    rng = np.random.default_rng(5)
    n, p = 400, 200
    x = np.linalg.qr(rng.standard_normal((n, p)))[0] * np.sqrt(n)
    b = rng.standard_normal(p) * (rng.random(p) < 0.2)
    y = x @ b + rng.standard_normal(n)
    scale = y.std()
    design = design_of(x, np.ones(n), centre=False, scale=False)
    data = LinearData(design, y / scale, np.ones(n), intercept=False)
    chains = [LinearChain(data, np.zeros(p), 0.7, seed) for seed in (0, 1)]
    found = sample(list(chains), 1e-3, data.degrees)
    assert abs(found.noise * scale - 1) < 0.15  # four standard errors with 200 degrees left
    estimate = x.T @ y / n / scale  # normal with variance v + sigma²/n
    spread = found.variances + found.noise**2 / n
    density = np.exp(-(estimate[:, None] ** 2) / (2 * spread)) / np.sqrt(spread)

    def log_likelihood(weights):
        return np.sum(np.log(density @ weights)) + 2 * np.log(weights[0])  # in favour of 0

    weights = np.full(len(found.variances), 1 / len(found.variances))
    for _ in range(20_000):
        shares = density * weights
        weights = np.sum(shares / shares.sum(1, keepdims=True), axis=0)
        weights[0] += 2
        weights /= weights.sum()
    best = log_likelihood(weights)
    assert best - 0.5 < log_likelihood(found.weights) <= best + 1e-6
    assert found.rhat < 1.1
    draws = found.theta[:, 1]
    assert abs(draws.mean() - 0.8) < 4 * draws.std()


def test_the_grid_grows_where_the_data_ask_for_it():
    rng = np.random.default_rng(6)
    x = 0.01 * rng.standard_normal((300, 2))
    y = 70 * x[:, 0] + 0.1 * rng.standard_normal(300)  # and the features are not scaled
    design = design_of(x, np.ones(300), centre=True, scale=False)
    data = LinearData(design, y / y.std(), np.ones(300), intercept=True)
    chains = [LinearChain(data, np.zeros(2), 0.7, seed) for seed in (0, 1)]
    # One effect of 70: the learned variances reach beyond the grid at the start.
    assert sample(list(chains), 1e-3, data.degrees).variances[-1] > grid(1e-3).variances[-1]


def test_effects_of_correlated_features_change_places():
    """Two features of correlation .995: one has an effect, and which one is hardly known.

    Without exchanges the effect moves 21 times. The frequency is that of enumeration, to five
    standard errors.
    """
    rng = np.random.default_rng(10)
    n, sweeps, noise = 60, 4000, 1.0
    common = rng.standard_normal(n)
    x = common[:, None] + 0.07 * rng.standard_normal((n, 2))
    y = 2 * common + rng.standard_normal(n)
    x, y = x - x.mean(0), y - y.mean()
    prior = Prior(np.array([0.0, 4.0]), np.array([0.95, 0.05]))
    design = design_of(x, np.ones(n), centre=False, scale=False)
    chain = LinearChain(LinearData(design, y, np.ones(n), False), np.zeros(2), noise, 0)
    found = tally(sweeps, 2, labels=2)
    chain.sweep(prior, np.zeros(sweeps), 1, found)
    first = found.draws[:, 0] != 0
    assert np.sum(first[1:] != first[:-1]) > 500
    assert_within(found.slab / sweeps, linear(x, y, noise, prior)[1], error(found.draws != 0))


def test_the_monte_carlo_error_is_the_variance_of_predictions():
    """Independent parts: the mean of both estimates is the variance of the mean of all.

    The larger of both is larger on average, by less than half for many observations; four standard
    errors of 200 repetitions.
    """
    rng = np.random.default_rng(11)
    found = [
        monte_carlo_error(rng.standard_normal((2, 2, 50)), lambda d, m: float(np.mean(d**2)))
        for _ in range(200)
    ]
    assert 0.25 * 0.95 < np.mean(found) < 0.25 * 1.5
    drifting = np.zeros((2, 2, 50)) + np.array([-1.0, 1.0])[:, None]  # both chains alike
    assert monte_carlo_error(drifting, lambda d, m: float(np.mean(d**2))) > 0.3


def test_rounds_end_when_predictions_are_known_or_the_work_is_done():
    def more(sweeps=FIRST, error=0.0, rhat=1.0, linear=True, work=1.0, correlated=False):
        return another_round(sweeps, error, rhat, linear, work, correlated)

    assert not more(error=0.5 * LOSS)
    assert more(error=2 * LOSS)
    assert not more(error=2 * LOSS, linear=False)  # labels may lose more
    assert not more(rhat=2.0)
    assert more(rhat=2.0, work=2e6)  # for large data, chains that disagree
    for rounds, correlated in ((FEW, False), (MANY, True)):
        last = FIRST * 2 ** (rounds - 1)
        assert more(last // 2, error=1.0, correlated=correlated)
        assert not more(last, error=1.0, correlated=correlated)
    assert more(error=1.0, work=WORK / (3 * FIRST))
    assert not more(error=1.0, work=WORK / (3 * FIRST - 1))


@pytest.mark.parametrize(("n", "p", "correlation"), [(400, 20, 0.0), (200, 100, 0.95)])
def test_chains_that_mix_slowly_sweep_longer(n, p, correlation):
    """A round leaves predictions uncertain where features are correlated, and not elsewhere."""
    rng = np.random.default_rng(12)
    common, own = rng.standard_normal((n, 1)), rng.standard_normal((n, p))
    x = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
    y = x[:, :10].sum(1) + 2 * rng.standard_normal(n)
    design = design_of(x, np.ones(n), centre=True, scale=True)
    data = LinearData(design, y / y.std(), np.ones(n), intercept=True)
    assert data.correlated == (correlation > 0)
    chains = [LinearChain(data, np.zeros(p), 0.7, seed) for seed in (0, 1)]
    found = sample(list(chains), 1e-3, data.degrees)
    assert found.error <= LOSS
    assert (found.sweeps > 580) == (correlation > 0)


def test_no_features_and_constant_features_are_no_error():
    design = design_of(np.ones((5, 2)), np.ones(5), centre=True, scale=True)
    assert design.size == 0
    prior = Prior(PRIOR.variances, PRIOR.weights.copy())
    chain = LinearChain(LinearData(design, np.arange(5.0), np.ones(5), True), np.zeros(0), 1.0, 0)
    chain.sweep(prior, np.full(3, 0.1), 1, tally(3, 0))
