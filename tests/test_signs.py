"""A `smooth` that is a log density, and not minus one, is named before the run."""

import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.fitting.signs import check_sign
from pipla.prox import L1, LaplaceLocation, LaplaceScale, NonNegative

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6))
LINEAR = X @ RNG.laplace(size=6)
LABELS = (LINEAR + RNG.logistic(size=60) > 0).astype(float)
COUNTS = RNG.poisson(np.exp(0.3 * LINEAR)).astype(float)


def logistic(theta, x, data):
    return jnp.sum(jnp.logaddexp(0.0, X @ x) - LABELS * (X @ x))


def poisson(theta, x, data):
    return jnp.sum(jnp.exp(X @ x) - COUNTS * (X @ x))


def gaussian(theta, x, data):
    return 0.5 * jnp.sum((X @ x - LINEAR) ** 2)


def student(theta, x, data):
    return 2.5 * jnp.sum(jnp.log1p((X @ x - LINEAR) ** 2 / 4))


def volatility(theta, x, data):
    return jnp.sum(0.5 * x + 0.5 * COUNTS[:6] ** 2 * jnp.exp(-x))


def network(theta, x, data):
    return jnp.sum((LINEAR - 3 * jnp.tanh(X @ x)) ** 2)


def two_modes(theta, x, data):
    return -jnp.sum(jnp.logaddexp(-((x - 2) ** 2), -((x + 2) ** 2)))


def said_of(smooth, term):
    return check_sign(pipla.Model(smooth, term), jnp.zeros(()), jnp.zeros(6))


@pytest.mark.parametrize(
    "smooth", [logistic, poisson, gaussian, student, volatility, network, two_modes]
)
@pytest.mark.parametrize("term", [LaplaceScale(), LaplaceLocation(), L1(), NonNegative(), None])
def test_sound_potentials_pass(smooth, term):
    assert said_of(smooth, term) is None


@pytest.mark.parametrize("smooth", [logistic, poisson, gaussian, two_modes])
def test_a_log_likelihood_is_refused_in_a_sentence(smooth):
    model = pipla.Model(lambda theta, x, data: -smooth(theta, x, data), LaplaceScale())
    with pytest.raises(ValueError, match="grows with the fit; is it minus the log density?"):
        pipla.fit(model, theta=0.0, x=np.zeros(6))


def test_a_log_likelihood_that_the_prior_outweighs_is_the_first_warning():
    """Student's t falls by a logarithm only, so that there is a posterior: of the wrong model."""
    model = pipla.Model(lambda theta, x, data: -student(theta, x, data), LaplaceLocation())
    with pytest.warns(pipla.ConvergenceWarning, match="grows with the fit"):
        found = pipla.fit(model, theta=0.0, x=np.zeros(6), num_particles=8, max_steps=300)
    assert not found.converged
    assert str(found.findings[0]).startswith("smooth grows with the fit")
