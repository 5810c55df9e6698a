"""The logistic function of the logistic model: to rounding everywhere, in both precisions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipla.models.likelihoods import Logistic, even_softplus

odd_sigmoid = jnp.vectorize(jax.grad(even_softplus))
FAR = np.array([0.0, 1e-30, 1e-6, 0.5, 16.0, 88.0, 1e4, 1e30, np.inf])


def _arguments(dtype):
    z = np.concatenate([np.linspace(-20, 20, 40_001), FAR, -FAR]).astype(dtype)
    return jnp.asarray(z), z.astype(float)


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2.5e-7), (np.float64, 1e-15)])
def test_the_odd_part_is_sigma_minus_one_half(dtype, error):
    z, exact = _arguments(dtype)
    found = odd_sigmoid(z)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.tanh(exact / 2) / 2, rtol=0, atol=error)
    np.testing.assert_array_equal(odd_sigmoid(-z), -found)
    assert np.abs(found).max() <= 0.5


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_the_slope_of_the_odd_part_is_that_of_sigma(dtype, error):
    """Curvature, and with it the suggested step size, comes from here."""
    z, exact = _arguments(dtype)
    slope = jax.vmap(jax.grad(jax.grad(even_softplus)))(z)
    np.testing.assert_allclose(
        slope, 0.25 / np.cosh(np.minimum(abs(exact), 600) / 2) ** 2, atol=error
    )


def test_nan_stays_nan():
    assert np.isnan(odd_sigmoid(jnp.float32(jnp.nan)))


def test_the_even_part_is_softplus_less_half_its_argument():
    z = jnp.linspace(-30.0, 30.0, 301)
    exact = np.logaddexp(0, np.asarray(z, float)) - np.asarray(z, float) / 2
    np.testing.assert_allclose(even_softplus(z), exact, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(even_softplus))(z), odd_sigmoid(z), rtol=1e-6)


def test_the_potential_is_minus_the_log_likelihood():
    rng = np.random.default_rng(0)
    features, x = rng.uniform(-1, 1, (40, 5)), rng.normal(0, 4, 5)
    labels = (rng.uniform(size=40) < 0.5).astype(float)
    chance = 1 / (1 + np.exp(-features @ x))
    exact = -np.sum(labels * np.log(chance) + (1 - labels) * np.log(1 - chance))
    potential = Logistic(features, labels)
    value, slope = jax.value_and_grad(lambda x: potential(jnp.zeros(()), x))(jnp.asarray(x))
    np.testing.assert_allclose(value, exact, rtol=1e-5)
    np.testing.assert_allclose(slope, features.T @ (chance - labels), rtol=1e-4, atol=1e-5)
