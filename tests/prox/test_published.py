"""The published approximations against literal transcriptions of the paper's formulae."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from pipla import prox

solve = jax.jit(lambda term, *at: term.prox(*at))
seeds = pytest.mark.parametrize("seed", range(6))


def setting(seed, shape=(8,)):
    rng = np.random.default_rng(seed)
    return rng.normal(), 2 * rng.laplace(size=shape), 10 ** rng.uniform(-3, -0.5)


def check(term, theta, x, lam, expected):
    u0, u = solve(term, theta, jnp.asarray(x), lam, lam)
    assert float(u0) == pytest.approx(expected[0], rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(u, expected[1], rtol=1e-12, atol=1e-12)


@seeds
def test_laplace_location(seed):
    theta, x, lam = setting(seed)
    u = theta + (x - theta - lam * np.sign(x - theta)) * (np.abs(x - theta) >= lam)
    check(
        prox.LaplaceLocation(approximation="published"),
        theta,
        x,
        lam,
        (theta + lam * np.sum(np.sign(u - theta)), u),
    )


@seeds
@pytest.mark.parametrize("sweeps", [1, 40])
def test_laplace_location_sweeps(seed, sweeps):
    theta, x, lam = setting(seed)
    u0, u = theta, x
    for _ in range(sweeps):
        u = np.array([x[i] - lam * np.sign(u[i] - u0) for i in range(8)])
        u0 = theta + lam * sum(np.sign(u[i] - u0) for i in range(8))
    term = prox.LaplaceLocation(approximation="iterative", sweeps=sweeps)
    check(term, theta, x, lam, (u0, u))


def test_the_sweeps_are_exact_when_they_settle_without_ties():
    x, lam = jnp.array([-5.0, 3.0, 4.0, 6.0, 7.0]), 0.1
    exact = solve(prox.LaplaceLocation(), 0.5, x, lam, lam)
    sweeps = solve(prox.LaplaceLocation(approximation="iterative"), 0.5, x, lam, lam)
    for a, b in zip(exact, sweeps, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


@seeds
def test_laplace_scale(seed):
    theta, x, lam = setting(seed)
    threshold = lam * np.exp(-2 * theta)
    u = (x - threshold * np.sign(x)) * (np.abs(x) >= threshold)
    lambert = special.lambertw(4 * lam * np.exp(-2 * theta) * np.sum(np.abs(u))).real
    expected = (theta - lam * 8 + lambert / 2, u)
    check(prox.LaplaceScale(approximation="published"), theta, x, lam, expected)


@seeds
def test_uniform(seed):
    theta, x, lam = setting(seed)
    for half_width in (0.3 + abs(theta), 4.0):
        if half_width**2 >= 4 * lam * 8:
            u0 = (half_width + np.sqrt(half_width**2 - 4 * lam * 8)) / 2
        else:
            u0 = np.max(np.abs(x))
        expected = (u0, np.sign(x) * np.minimum(np.abs(x), abs(u0)))
        check(prox.UniformBox(approximation="published"), half_width, x, lam, expected)


@seeds
def test_nuclear(seed):
    theta, x, lam = setting(seed, (3, 4))
    left, values, right = np.linalg.svd(x, full_matrices=False)
    shrunk = np.maximum(values - lam * np.exp(theta), 0)
    alpha = theta + special.lambertw(lam * np.exp(theta) * np.sum(shrunk)).real
    expected = (alpha, left @ np.diag(np.maximum(values - lam * np.exp(alpha), 0)) @ right)
    check(prox.NuclearStrength(approximation="published"), theta, x, lam, expected)


@pytest.mark.parametrize("lam", [0.05, 0.4, 0.9])
def test_hard_tanh(lam):
    def literal(x):
        if x < -1:
            return x
        if x <= -1 + lam:
            return -1.0
        if x <= 1 - lam:
            return x - lam
        return 1.0 if x <= 1 else x

    x = np.linspace(-2, 2, 401)
    expected = [literal(one) for one in x]
    term = prox.HardTanh(approximation="published")
    np.testing.assert_allclose(term.prox(None, jnp.asarray(x), 0.0, lam)[1], expected, atol=1e-14)


def test_the_published_hard_tanh_is_not_a_minimiser():
    # At 0.95 with lam = 0.2 it goes up to 1, where the objective is larger than at 0.75.
    x, lam = jnp.array([0.95]), 0.2

    def objective(term):
        u = term.prox(None, x, 0.0, lam)[1]
        return float(jnp.sum(jnp.clip(u, -1, 1)) + jnp.sum((u - x) ** 2) / (2 * lam))

    assert objective(prox.HardTanh(approximation="published")) > objective(prox.HardTanh()) + 0.1


def test_published_maps_leave_theta_alone_without_its_smoothing():
    x = jnp.array([[1.0, -2.0], [0.5, 3.0]])
    for term in (
        prox.LaplaceLocation(approximation="published"),
        prox.LaplaceLocation(approximation="iterative"),
        prox.LaplaceScale(approximation="published"),
        prox.NuclearStrength(approximation="published"),
        prox.UniformBox(approximation="published"),
    ):
        assert float(term.prox(0.3, x, 0.0, 0.1)[0]) == 0.3
