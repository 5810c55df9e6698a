"""The exact Gibbs sampler of the benchmarks, against answers that need no sampling."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

pytestmark = pytest.mark.slow

PATH = Path(__file__).parents[1] / "benchmarks" / "gibbs.py"


@pytest.fixture(scope="module")
def gibbs():
    spec = importlib.util.spec_from_file_location("gibbs", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("u", [1e-6, 0.1, 30.0])
def test_variances_are_inverse_gaussian(gibbs, u):
    t = 0.3
    draws = gibbs.inverse_variances(np.full(20_000, -u), t, np.random.default_rng(0))
    mean = t / u
    exact = stats.invgauss(mu=mean / t**2, scale=t**2)
    assert stats.kstest(draws, exact.cdf).pvalue > 1e-6  # a right sampler fails once in a million


def test_the_solver_solves(gibbs):
    rng = np.random.default_rng(0)
    shape = (9, 7)
    operator = gibbs.Circular(np.full((3, 3), 1 / 9), shape)
    posterior = gibbs.Posterior(operator, np.zeros(shape), 0.5, tolerance=1e-10)
    weights = gibbs.Edges(rng.gamma(0.3, size=(8, 7)), rng.gamma(0.3, size=(9, 6)))
    columns = [posterior._precision(e.reshape(shape), weights).ravel() for e in np.eye(63)]
    dense = np.stack(columns)
    np.testing.assert_allclose(dense, dense.T, atol=1e-12)
    target = rng.standard_normal(shape)
    solved = posterior.solve(target, weights, np.zeros(shape))
    np.testing.assert_allclose(solved.ravel(), np.linalg.solve(dense, target.ravel()), rtol=1e-6)


AXIS = np.linspace(-9, 9, 361)
RING = (0, 1, 3, 2)  # the pixels of a 2×2 image, each beside the next


def marginals(y, sigma, t):
    """log Z of four pixels without blur, and the density of each, by quadrature.

    Their differences form a ring, so that the sum over all four is the trace of a product of
    matrices, and its diagonal the density of the first one.
    """
    coupling = np.exp(-t * abs(AXIS[:, None] - AXIS))
    factors = [
        np.exp(-((AXIS - y.flat[i]) ** 2) / (2 * sigma**2))[:, None] * coupling for i in RING
    ]
    densities = {}
    for first in range(4):
        product = np.linalg.multi_dot(factors[first:] + factors[:first])
        densities[RING[first]] = np.diag(product) / np.trace(product)
    return np.log(np.trace(product)), [densities[i] for i in range(4)]


def test_moments_are_those_of_quadrature(gibbs):
    # Five standard errors from 50 batches, nine numbers: a false alarm in 1e-4 of all keys.
    y, sigma, t = np.array([[2.0, -1.0], [0.5, 1.0]]), 1.2, 0.7
    _, densities = marginals(y, sigma, t)
    total = (marginals(y, sigma, t - 1e-4)[0] - marginals(y, sigma, t + 1e-4)[0]) / 2e-4
    wanted = [p @ AXIS for p in densities] + [p @ AXIS**2 for p in densities] + [total]
    posterior = gibbs.Posterior(gibbs.Circular(np.ones((1, 1)), (2, 2)), y, sigma)
    rng = np.random.default_rng(0)
    x, draws = y, []
    for _ in range(4000):
        x = posterior.sweep(x, t, rng)
        draws.append([*x.flat, *(x.flat[i] ** 2 for i in range(4)), gibbs.Edges.of(x).total()])
    batches = np.array(draws).reshape(50, -1, 9).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(50)
    assert np.all(abs(batches.mean(axis=0) - np.array(wanted)) < 5 * error)
    assert np.all(error < 0.05)


def test_the_maximiser_is_that_of_quadrature(gibbs):
    # Five standard errors from 20 batches, two numbers: a false alarm in 2e-4 of all keys.
    y, sigma = np.array([[4.0, -1.0], [0.5, 1.0]]), 0.5
    exact = optimize.minimize_scalar(
        lambda t: -4 * np.log(t) - marginals(y, sigma, t)[0], bounds=(0.1, 2), method="bounded"
    ).x
    posterior = gibbs.Posterior(gibbs.Circular(np.ones((1, 1)), (2, 2)), y, sigma)
    for seed, start in enumerate((0.1, 3.0)):
        rng = np.random.default_rng(seed)
        answer = gibbs.maximise(posterior, start, 300, 1000, rng)
        assert abs(answer.t - exact) < 5 * answer.stderr
        assert answer.stderr < 0.02 * exact
