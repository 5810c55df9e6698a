"""Posteriors of small regressions by enumeration and quadrature, in NumPy, for comparison."""

import itertools

import numpy as np
from scipy import stats

from pipla.regression._state import Prior, Tally

#: Half at 0, the rest on two variances.
PRIOR = Prior(np.array([0.0, 0.25, 2.0]), np.array([0.5, 0.3, 0.2]))


def tally(sweeps, size, labels=3, draws=None, levels=1):
    draws = sweeps if draws is None else draws
    return Tally.empty(size, labels, sweeps, draws, levels)


def linear(x, y, noise, prior=PRIOR):
    """Posterior means and probabilities of not being 0, over all labels of all coefficients."""
    n, p = x.shape
    total, mean, slab = 0.0, np.zeros(p), np.zeros(p)
    for labels in itertools.product(range(len(prior.weights)), repeat=p):
        v = prior.variances[list(labels)]
        covariance = noise * np.eye(n) + (x * v) @ x.T
        solved = np.linalg.solve(covariance, y)
        log_density = -0.5 * (y @ solved + np.linalg.slogdet(covariance)[1])
        weight = np.exp(log_density) * np.prod(prior.weights[list(labels)])
        total += weight
        mean += weight * v * (x.T @ solved)
        slab += weight * (np.asarray(labels) > 0)
    return mean / total, slab / total


def on_a_grid(log_likelihood, size, level_sd=None, prior=PRIOR, points=81, reach=6.0):
    """Means and probabilities of not being 0 for a likelihood of few coefficients, by quadrature.

    `log_likelihood(b, level)` gets arrays of shape (grid, size) and (grid,).
    """
    axis = np.linspace(-reach, reach, points)
    step = axis[1] - axis[0]
    density = sum(
        w * np.exp(-(axis**2) / (2 * v)) / np.sqrt(2 * np.pi * v)
        for w, v in zip(prior.weights[1:], prior.variances[1:], strict=True)
    )
    # Each coefficient is at 0, with its weight, or on the grid.
    nodes = np.append(axis, 0.0)
    masses = np.append(density * step, prior.weights[0])
    grids = [nodes] * size + ([] if level_sd is None else [axis])
    level_mass = np.exp(-(axis**2) / (2 * (level_sd or 1) ** 2))
    weights = [masses] * size + ([] if level_sd is None else [level_mass])
    points = np.stack([g.ravel() for g in np.meshgrid(*grids, indexing="ij")], axis=1)
    weight = np.prod([g.ravel() for g in np.meshgrid(*weights, indexing="ij")], axis=0)
    places = np.stack(
        [g.ravel() for g in np.meshgrid(*[np.arange(len(g)) for g in grids], indexing="ij")], axis=1
    )
    b = points[:, :size]
    level = points[:, size] if level_sd is not None else np.zeros(len(points))
    logs = log_likelihood(b, level)
    weight = weight * np.exp(logs - logs.max())
    weight /= weight.sum()
    nonzero = places[:, :size] != len(axis)
    return weight @ b, weight @ nonzero, weight @ level


def error(draws):
    """The Monte-Carlo standard error of the mean of each column, from 50 batches."""
    batches = draws[: len(draws) // 50 * 50].reshape(50, -1, *draws.shape[1:]).mean(axis=1)
    return batches.std(axis=0, ddof=1) / np.sqrt(50)


def closed_coverage(prior, square, level=0.9):
    """The coverage of [q(a), q(1 - a)] with a = (1 - level)/2, the quantiles of the posterior.

    The data are one estimate of each coefficient, normal with the variance `square` (orthogonal
    features), and coefficients come from the prior. Where the lower quantile is 0, the interval
    holds a - P(b < 0) more than the level; where the upper one is, a - P(b > 0).
    """
    tail = (1 - level) / 2
    # One range of the estimate for each variance: a single grid would be too coarse for some.
    total = 0.0
    for variance, weight in zip(prior.variances, prior.weights, strict=True):
        units = np.linspace(-9, 9, 20_001)
        estimate = units * np.sqrt(variance + square)
        masses = prior.weights * stats.norm.pdf(
            estimate[:, None], scale=np.sqrt(prior.variances + square)
        )
        masses /= masses.sum(axis=1, keepdims=True)
        v = prior.variances[1:]
        spread = np.sqrt(v * square / (v + square))
        mean = estimate[:, None] * v / (v + square)
        below = np.sum(masses[:, 1:] * stats.norm.cdf(-mean / spread), axis=1)
        above = 1 - masses[:, 0] - below
        gain = np.where(below + masses[:, 0] >= tail, np.maximum(tail - below, 0), 0)
        gain += np.where(above + masses[:, 0] >= tail, np.maximum(tail - above, 0), 0)
        total += weight * np.sum((level + gain) * stats.norm.pdf(units)) * (units[1] - units[0])
    return total
