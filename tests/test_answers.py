"""Every algorithm against problems whose exact maximiser is known.

Statistical tests state their false-alarm rate. Keys are fixed, so a pass stays a pass; the rate
says how probable a failure would have been for a right program.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

import pipla
from pipla.problems import gaussian_hierarchy, toy
from pipla.problems.toy_model import _potential, exact_maximiser, log_marginal

pytestmark = pytest.mark.slow

NO_MOMENTS = pipla.Save(moments_every=None)

# name -> (step size -> algorithm). Smoothing follows the step, so one number controls the bias.
FAMILY = {
    "PGD": lambda g, **o: pipla.PGD(g, **o),
    "IPLA": lambda g, **o: pipla.IPLA(g, **o),
    "SOUL": lambda g, **o: pipla.SOUL(g, num_moves=5, **o),
    "MYPGD": lambda g, **o: pipla.MYPGD(g / 2, g, **o),
    "MYIPLA": lambda g, **o: pipla.MYIPLA(g / 2, g, **o),
    "PIPGLA": lambda g, **o: pipla.PIPGLA(g, **o),
    "PIPGLA, no theta noise": lambda g, **o: pipla.PIPGLA(g, theta_noise=False, **o),
    "PIPULA": lambda g, **o: pipla.PIPULA(g, **o),
    "PPGD": lambda g, **o: pipla.PPGD(g, **o),
    "MYPGD, hybrid": lambda g, **o: pipla.MYPGD(g / 2, g, theta_update="gradient", **o),
    "PIPGLA, hybrid": lambda g, **o: pipla.PIPGLA(g, theta_update="gradient", **o),
}


def skewed_toy(noise=0.5, spread=3.0):
    """Exponential quantiles: the skewness makes every bias in the location visible."""
    y = -spread * np.log1p(-(np.arange(20) + 0.5) / 20)
    data = {"y": jnp.asarray(y), "noise": jnp.asarray(noise), "ridge": jnp.asarray(0.0)}
    model = pipla.Model(_potential, pipla.prox.LaplaceLocation(), data=data)
    return model, y, exact_maximiser(y, noise)


def replicated_theta(model, algorithms, theta, particles, steps, burn_in, replicates=16):
    result = pipla.sweep(
        model,
        algorithms,
        theta=theta,
        particles=particles,
        num_steps=steps,
        burn_in=burn_in,
        key=jax.random.key(7),
        num_replicates=replicates,
        save=NO_MOMENTS,
    )
    mean = result.theta.mean(axis=1)
    return mean, result.theta.std(axis=1, ddof=1) / np.sqrt(replicates)


def test_log_marginal_agrees_with_quadrature():
    for theta, y, noise, ridge in [(-3.0, -2.0, 1.0, 0.0), (0.5, 4.0, 0.3, 0.0), (1.0, -1.0, 2, 1)]:

        def integrand(x, theta=theta, y=y, noise=noise, ridge=ridge):
            t = x - theta
            return np.exp(-((y - x) ** 2) / (2 * noise**2) - abs(t) - ridge * t**2 / 2)

        value = sum(
            quad(integrand, *ends, epsabs=1e-14, epsrel=1e-12)[0]
            for ends in ((theta - 30, theta), (theta, theta + 30))
        )
        assert log_marginal(theta, [y], noise, ridge) == pytest.approx(np.log(value), abs=1e-9)


def test_exact_maximiser_is_where_the_slope_of_the_log_marginal_vanishes():
    problem = toy(ridge=0.5)
    y = np.asarray(problem.model.data["y"])
    root = brentq(
        lambda t: (
            (log_marginal(t + 1e-5, y, 1.0, 0.5) - log_marginal(t - 1e-5, y, 1.0, 0.5)) / 2e-5
        ),
        problem.maximiser - 1,
        problem.maximiser + 1,
    )
    assert problem.maximiser == pytest.approx(root, abs=1e-5)


# Without noise in theta they are the steps of MYIPLA, PIPGLA and PIPULA, and are tested below.
NOISE_FREE = ("MYPGD", "PIPGLA, no theta noise", "PPGD")


@pytest.mark.parametrize("name", [name for name in FAMILY if name not in NOISE_FREE])
def test_gaussian_location_is_the_mean_of_the_observations(name):
    """Linear drifts: the location has no bias at any step size. 5 sigma: 6e-7 a test."""
    problem = gaussian_hierarchy("location", dimension=10)
    algorithm = FAMILY[name](0.2, theta_scale=0.1)
    particles = jnp.zeros((20, 10))
    (mean,), (error,) = replicated_theta(problem.model, algorithm, 0.0, particles, 2000, 300)
    assert abs(mean - problem.maximiser) < 5 * error
    assert error < 0.02


def ula_scale_root(y, noise, step):
    r"""Where theta of the Gaussian scale settles when x is moved by Euler with this step.

    Euler on a quadratic of curvature a has variance 1/(a (1 - step a / 2)), so theta solves
    e^{-2 theta} mean(E x²) = 1 with that variance in place of 1/a.
    """

    def equation(theta):
        a = np.exp(-2 * theta) + noise**-2
        mean, variance = y / noise**2 / a, 1 / (a * (1 - step * a / 2))
        return np.exp(-2 * theta) * np.mean(mean**2 + variance) - 1

    return brentq(equation, -0.5, 2.0)


@pytest.mark.parametrize("name", ["PGD", "SOUL"])  # IPLA is PGD with noise in theta
def test_gaussian_scale_has_exactly_the_bias_that_euler_predicts(name):
    """Three step sizes, each against its own prediction. 5 sigma, and 2/N for the finite cloud."""
    problem = gaussian_hierarchy("scale", dimension=20)
    y = np.asarray(problem.model.data[0])
    steps = (0.4, 0.2, 0.1)
    predicted = np.array([ula_scale_root(y, 1.0, g) for g in steps])
    bias = predicted - problem.maximiser
    assert bias[0] / bias[1] == pytest.approx(2.0, rel=0.2)
    assert bias[1] / bias[2] == pytest.approx(2.0, rel=0.1)
    algorithms = [FAMILY[name](g, theta_scale=0.05) for g in steps]
    particles = jnp.zeros((200, 20))
    length = 400 if name == "SOUL" else 1500  # SOUL makes five moves a step
    means, errors = replicated_theta(
        problem.model, algorithms, problem.maximiser, particles, length, 200, replicates=8
    )
    assert np.all(np.abs(means - predicted) < 5 * errors + 2 / 200)
    assert np.all(errors < np.abs(bias) / 4)


# |bias| <= constant × step size on the skewed toy; measured .1 to .35. A hybrid step takes the
# slope of |x - theta| after the prox has put many x exactly on theta, where it is 0: 1.5.
BIAS_BOUND = dict.fromkeys(FAMILY, 0.4) | {"PIPGLA, hybrid": 2.0}


# name -> (noise, spread of y, largest step): where that algorithm's bias is large enough to see.
ORDERS = {
    "PGD": (1.0, 5.0, 0.4),
    "MYPGD": (1.0, 5.0, 0.4),
    "PIPGLA, no theta noise": (0.5, 3.0, 0.12),
    "PPGD": (1.0, 5.0, 0.4),
    "MYPGD, hybrid": (1.0, 5.0, 0.4),
    "PIPGLA, hybrid": (0.5, 3.0, 0.12),
}


@pytest.mark.parametrize("name", [name for name in FAMILY if name not in ORDERS])
def test_toy_reaches_the_exact_maximiser_within_error_and_bias_bound(name):
    """5 sigma: 6e-7 a test. The others have the same bound, at three steps, in the next test."""
    model, y, maximiser = skewed_toy()
    algorithm = FAMILY[name](0.05, theta_scale=0.05)
    particles = jnp.asarray(y)[None] + jnp.zeros((50, 1))
    length = 600 if name == "SOUL" else 2000
    (mean,), (error,) = replicated_theta(model, algorithm, maximiser, particles, length, 200)
    assert abs(mean - maximiser) < 5 * error + BIAS_BOUND[name] * 0.05
    assert error < 0.02


@pytest.mark.parametrize("name", ORDERS)
def test_bias_falls_linearly_when_step_and_smoothing_are_halved_twice(name):
    """Noise-free theta and antithetic pairs show the bias itself; ratios are within 4 sigma."""
    noise, spread, largest = ORDERS[name]
    model, y, maximiser = skewed_toy(noise, spread)
    steps = largest / 2.0 ** np.arange(3)
    options = {"theta_scale": 0.05, "antithetic": True}
    if name == "PIPGLA, hybrid":
        options["theta_noise"] = False
    algorithms = [FAMILY[name](g, **options) for g in steps]
    particles = jnp.asarray(y)[None] + jnp.zeros((100, 1))
    means, errors = replicated_theta(model, algorithms, maximiser, particles, 3000, 500, 8)
    bias = means - maximiser
    assert np.all(np.abs(bias) > 6 * errors), "not measurable: the test would prove nothing"
    assert np.all(np.abs(bias) < BIAS_BOUND[name] * steps)
    # First order: halving the step halves the bias; second order would quarter it.
    assert 1.5 < bias[0] / bias[1] < 2.8
    assert 1.5 < bias[1] / bias[2] < 2.6


@pytest.mark.parametrize("name", ["MYIPLA", "PIPGLA"])
def test_variance_of_theta_falls_as_one_over_the_number_of_particles(name):
    """Slope of log variance against log N: -1 ± 0.2, five standard errors of the fit.

    A count in the middle, at equal distance in log N, would not change the slope.
    """
    problem = toy(dimension=10)
    counts = np.array([4, 36])
    variances = []
    for count in counts:
        result = pipla.sweep(
            problem.model,
            FAMILY[name](0.2, theta_scale=0.2),
            theta=problem.maximiser,
            particles=problem.maximiser + jnp.zeros((int(count), 10)),
            num_steps=301,
            key=jax.random.key(int(count)),
            num_replicates=200,
            save=NO_MOMENTS,
        )
        # Three looks at each run, far apart: 600 nearly independent values a point.
        variances.append(np.var(result.theta_trace[0][:, 100::100]))
    slope = np.polyfit(np.log(counts), np.log(variances), 1)[0]
    assert -1.2 < slope < -0.8


def test_noncentred_antithetic_run_reaches_the_maximiser_far_more_precisely():
    problem = toy()
    model, _ = pipla.noncentred(problem.model)
    options = {"theta": problem.maximiser, "steps": 1000, "burn_in": 200, "replicates": 8}
    steps, theta = options.pop("steps"), options.pop("theta")
    (plain,), (plain_error,) = replicated_theta(
        problem.model, pipla.PIPGLA(0.05), theta, theta + jnp.zeros((20, 50)), steps, **options
    )
    sharp = pipla.PIPGLA(0.05, theta_scale=0.1, theta_noise=False, antithetic=True)
    (mean,), (error,) = replicated_theta(model, sharp, theta, jnp.zeros((20, 50)), steps, **options)
    assert error < plain_error / 3
    assert abs(mean - problem.maximiser) < 5 * error + 0.01
    assert abs(plain - problem.maximiser) < 5 * plain_error + 0.05
