"""Posteriors of small regressions by enumeration and quadrature, in NumPy, for comparison."""

import itertools

import numpy as np

from pipla.regression._state import Prior, Tally

#: Half at 0, the rest on two variances.
PRIOR = Prior(np.array([0.0, 0.25, 2.0]), np.array([0.5, 0.3, 0.2]))


def tally(sweeps, size, labels=3, draws=None, levels=1):
    draws = sweeps if draws is None else draws
    return Tally(
        np.zeros(size),
        np.zeros(size),
        np.zeros((sweeps, labels)),
        np.zeros(labels),
        np.zeros((sweeps, 2)),
        np.zeros((sweeps, 3)),
        np.zeros((draws, size), np.float32),
        np.zeros((levels, draws)),
    )


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
