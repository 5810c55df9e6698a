"""The uniform densities: which stationary point, and what happens where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipla import prox

solve = jax.jit(lambda term, *at: term.prox(*at))
value_of = jax.jit(lambda term, *at: term.value(*at))
entries = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.5]), st.floats(-5, 5, allow_subnormal=False))
points = st.lists(entries, min_size=6, max_size=6)
exponents = st.floats(-4, 1)


def derivative(u, theta, x, lam_theta, lam_x):
    outside = np.sum(np.maximum(np.abs(x)[:, None] - u, 0), axis=0)
    return u - theta + lam_theta * x.size / u - lam_theta / lam_x * outside


@settings(max_examples=300, deadline=None)
@given(st.floats(-3, 6), points, exponents, exponents)
def test_largest_stationary_point_or_the_smallest_derivative(theta, x, log_lt, log_lx):
    x, lam_theta, lam_x = np.array(x), 10**log_lt, 10**log_lx
    u0, u = solve(prox.UniformBox(), theta, jnp.asarray(x), lam_theta, lam_x)
    u0 = float(u0)
    assert u0 > 0
    np.testing.assert_array_equal(u, np.clip(x, -u0, u0))
    args = (theta, x, lam_theta, lam_x)
    top = max(theta, np.max(np.abs(x)), u0) + np.sqrt(lam_theta * x.size) + 1
    scale = top * (1 + lam_theta / lam_x * x.size)
    above = u0 * (top / u0) ** np.linspace(1e-6, 1, 4000)
    assert np.all(derivative(above, *args) >= -1e-9 * scale)  # no stationary point is larger
    here = derivative(np.array([u0]), *args)[0]
    if here > 1e-7 * scale:
        everywhere = np.concatenate([np.geomspace(1e-6, top, 20000), np.abs(x[np.abs(x) > 1e-6])])
        assert np.all(derivative(everywhere, *args) >= here - 1e-7 * scale)
    else:
        assert here >= -1e-7 * scale


def test_the_fallback_continues_the_double_root():
    # As theta shrinks, the stationary point disappears at θ² = 4 λ d, where both give √(λ d).
    x, lam, d = jnp.zeros(4), 0.01, 4
    edge = np.sqrt(4 * lam * d)
    thetas = edge + np.array([1e-10, -1e-10])
    real, fallback = (float(solve(prox.UniformBox(), t, x, lam, lam)[0]) for t in thetas)
    assert real == pytest.approx(np.sqrt(lam * d), abs=1e-4)
    assert fallback == pytest.approx(np.sqrt(lam * d), abs=1e-9)


@pytest.mark.parametrize("theta", [-2.0, 0.0, 1.5])
@pytest.mark.parametrize("approximation", [None, "published"])
def test_a_frozen_theta_clips_x_whatever_its_sign(theta, approximation):
    x = jnp.array([-3.0, 0.2, 2.0])
    u0, u = solve(prox.UniformBox(approximation=approximation), theta, x, 0.0, 0.1)
    assert float(u0) == theta
    np.testing.assert_array_equal(u, np.clip(x, -max(theta, 0.0), max(theta, 0.0)))


def test_value_is_infinite_outside_and_has_no_tolerance():
    term, x = prox.UniformBox(), jnp.array([0.5, -1.0])
    assert float(term.value(1.0, x)) == pytest.approx(2 * np.log(2))
    assert float(term.value(np.nextafter(1.0, 0), x)) == np.inf
    assert float(term.value(-1.0, jnp.zeros(2))) == np.inf
    logarithmic = prox.UniformLogBox()
    assert float(logarithmic.value(0.0, x)) == pytest.approx(2 * np.log(2))
    assert float(logarithmic.value(-1e-9, x)) == np.inf


@settings(max_examples=200, deadline=None)
@given(st.floats(0.1, 6), points, exponents, exponents)
def test_the_proximal_point_is_always_inside_the_box(theta, x, log_lt, log_lx):
    for term in (prox.UniformBox(), prox.UniformLogBox()):
        point = solve(term, theta, jnp.asarray(np.array(x)), 10**log_lt, 10**log_lx)
        assert np.isfinite(value_of(term, *point))


def log_derivative(u, eta, x, lam_theta, lam_x):
    outside = np.sum(np.maximum(np.abs(x)[:, None] - np.exp(u), 0), axis=0)
    return u - eta + lam_theta * x.size - lam_theta / lam_x * np.exp(u) * outside


@settings(max_examples=300, deadline=None)
@given(st.floats(-3, 3), points, exponents, exponents)
def test_log_box_takes_the_first_root_met_from_eta(eta, x, log_lt, log_lx):
    x, lam_theta, lam_x = np.array(x), 10**log_lt, 10**log_lx
    u0, u = solve(prox.UniformLogBox(), eta, jnp.asarray(x), lam_theta, lam_x)
    u0 = float(u0)
    np.testing.assert_allclose(u, np.clip(x, -np.exp(u0), np.exp(u0)), rtol=1e-12)
    args = (eta, x, lam_theta, lam_x)
    scale = 1 + abs(u0 - eta) + lam_theta * x.size + lam_theta / lam_x * np.sum(x**2)
    assert abs(log_derivative(np.array([u0]), *args)[0]) <= 1e-8 * scale
    between = eta + (u0 - eta) * np.linspace(0, 1, 5000)[:-1]
    start = np.sign(log_derivative(np.array([eta]), *args)[0])
    assert np.all(start * log_derivative(between, *args) >= -1e-9 * scale)


def test_log_box_survives_an_eta_whose_exponential_overflows():
    x = jnp.array([0.5, -1.0], jnp.float32)
    u0, u = solve(prox.UniformLogBox(), jnp.asarray(200.0, jnp.float32), x, 0.1, 0.1)
    assert float(u0) == pytest.approx(199.8, rel=1e-6)
    np.testing.assert_array_equal(u, x)
