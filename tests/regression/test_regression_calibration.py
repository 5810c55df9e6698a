"""Simulation-based calibration of the samplers, and what 90 % means where 0 has a probability.

Where everything unknown is drawn from its prior and data from the model, the rank of each unknown
among its posterior draws is uniform (Talts et al. 2018). One rank of each kind is taken from each
simulation, so that they are independent; they fall into ten bins, and Pearson's statistic has to be
below its 1 - 1e-6 quantile: a right sampler fails once in a million times, for each kind.
"""

import numpy as np
import pytest
from regression_truths import PRIOR, closed_coverage, tally
from scipy import stats

from pipla.regression._chains import GlmChain, LinearChain, LinearData
from pipla.regression._design import design_of
from pipla.regression._mixture import CERTAINTY, EFFECTS
from pipla.regression._state import Prior

BURN_IN, THIN, KEPT, RUNS = 100, 25, 49, 600
SWEEPS = BURN_IN + THIN * KEPT


def rank(truth, draws, rng):
    """Among 50 places; ties, which are zeros, are broken at random."""
    return np.sum(draws < truth) + rng.integers(0, np.sum(draws == truth) + 1)


def assert_uniform(ranks):
    counts = np.histogram(ranks, bins=np.arange(0, KEPT + 2, 5))[0]
    assert stats.chisquare(counts).pvalue > 1e-6, counts.tolist()


def concentrations(size):
    """The parameters of the Dirichlet prior of the weights, as `draw_weights` explains it."""
    shares = 1 / (1 + PRIOR.variances[1:])
    zeros = 1 + CERTAINTY * size
    return np.append(zeros, zeros * min(EFFECTS / size, 1) * shares / shares.sum())


def simulate(rng, size, drawn):
    """Weights, the prior's or drawn from theirs, and coefficients."""
    weights = rng.dirichlet(concentrations(size)) if drawn else PRIOR.weights
    labels = rng.choice(3, size, p=weights)
    b = np.sqrt(PRIOR.variances[labels]) * rng.standard_normal(size)
    return weights, b.astype(np.float32).astype(float)  # draws are kept in single precision


def sweep(chain, size, drawn):
    """Draws of the coefficients, and of (sigma squared, the weight of 0)."""
    found = tally(SWEEPS, size)
    rates = np.full(SWEEPS, -1.0 if drawn else 0.0)
    chain.sweep(Prior(PRIOR.variances, PRIOR.weights.copy()), rates, 1, found)
    chosen = slice(BURN_IN + THIN - 1, None, THIN)
    return found.draws[chosen], found.theta[chosen, :2]


@pytest.mark.parametrize("drawn", [False, True], ids=["prior known", "prior drawn"])
def test_linear_regression(drawn):
    """Three rows without features, whose responses are given, make sigma's prior a proper one."""
    rng = np.random.default_rng(4)
    n, p, ranks = 10, 3, []
    for _ in range(RUNS):
        x = rng.standard_normal((n, p)) + rng.standard_normal((n, 1))
        weights, b = simulate(rng, p, drawn)
        noise = 0.5 * 3 / rng.standard_gamma(1.5) if drawn else 0.8
        y = x @ b + np.sqrt(noise) * rng.standard_normal(n)
        x, y = np.concatenate([np.zeros((3, p)), x]), np.concatenate([np.ones(3), y])
        design = design_of(x, np.ones(n + 3), centre=False, scale=False)
        data = LinearData(design, y, np.ones(n + 3), intercept=False)
        draws, theta = sweep(LinearChain(data, np.zeros(p), 0.8, rng), p, drawn)
        j = rng.integers(p)
        at = [(b[j], draws[:, j])]
        if drawn:
            at += [(noise, theta[:, 0]), (weights[0], theta[:, 1])]
        ranks.append([rank(*one, rng) for one in at])
    for column in np.transpose(ranks):
        assert_uniform(column)


@pytest.mark.parametrize("drawn", [False, True], ids=["prior known", "prior drawn"])
@pytest.mark.parametrize("poisson", [False, True], ids=["logistic", "Poisson"])
def test_generalised_linear_regression(poisson, drawn):
    rng = np.random.default_rng(5)
    n, p, ranks = 12, 3, []
    for _ in range(RUNS):
        x = 0.5 * rng.standard_normal((n, p)) + 0.5 * rng.standard_normal((n, 1))
        weights, b = simulate(rng, p, drawn)
        mean = np.exp(x @ b) if poisson else 1 / (1 + np.exp(-x @ b))
        y = 1.0 * (rng.poisson(mean) if poisson else rng.random(n) < mean)
        columns = design_of(x, np.ones(n), centre=False, scale=False).columns
        chain = GlmChain(columns, y, np.ones(n), np.zeros(n), False, poisson, np.zeros(p), rng)
        draws, theta = sweep(chain, p, drawn)
        j = rng.integers(p)
        at = [(b[j], draws[:, j])] + ([(weights[0], theta[:, 1])] if drawn else [])
        ranks.append([rank(*one, rng) for one in at])
    for column in np.transpose(ranks):
        assert_uniform(column)


def test_intervals_that_may_end_at_0_hold_more_than_they_say():
    """Orthogonal features: 5 % and 95 % quantiles against the exact coverage at the true prior.

    It is .9 for a prior without an atom and more with one, however many draws there are: a point
    that holds 5 % or more cannot be cut. Ranks, whose ties are broken at random, do hold 90 %.
    Five standard errors of independent intervals: a false alarm in 2 million.
    """
    rng = np.random.default_rng(6)
    n, p, sweeps = 400, 200, 2000
    sparse = Prior(PRIOR.variances, np.array([0.95, 0.02, 0.03]))
    dense = Prior(PRIOR.variances, np.array([1e-300, 0.5, 0.5]))
    noise = 0.1 * n  # the standard error of a coefficient is sqrt(.1)
    assert abs(closed_coverage(dense, 0.1) - 0.9) < 1e-6
    assert closed_coverage(sparse, 0.1) > 0.96
    x = np.linalg.qr(rng.standard_normal((n, p)))[0] * np.sqrt(n)
    for prior in (sparse, dense):
        inside, middle = [], []
        for _ in range(10):
            b = np.sqrt(rng.choice(prior.variances, p, p=prior.weights)) * rng.standard_normal(p)
            y = x @ b + np.sqrt(noise) * rng.standard_normal(n)
            design = design_of(x, np.ones(n), centre=False, scale=False)
            chain = LinearChain(LinearData(design, y, np.ones(n), False), np.zeros(p), noise, rng)
            found = tally(sweeps, p)
            chain.sweep(prior, np.zeros(sweeps), 1, found)
            low, high = np.quantile(found.draws, [0.05, 0.95], axis=0)
            inside.append((low <= b) & (b <= high))
            below = np.mean(found.draws < b, axis=0)
            place = below + rng.random(p) * np.mean(found.draws == b, axis=0)
            middle.append(abs(place - 0.5) < 0.45)
        for share, truth in ((inside, closed_coverage(prior, 0.1)), (middle, 0.9)):
            assert abs(np.mean(share) - truth) < 5 * np.sqrt(truth * (1 - truth) / (10 * p))
