"""The reference maximiser is unbiased, whatever its numbers; and it agrees with an independent sampler.

Keys are fixed, so a pass stays a pass; 5 standard errors fail a correct program once in a million.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.integrate import quad
from scipy.stats import truncnorm

import pipla
from experiments.independent import maximiser

STILL = pipla.Save(moments_every=1)


def frozen(**numbers):
    """The sampler alone: theta does not move."""
    return pipla.MetropolisAdjusted(theta_optimizer=optax.set_to_zero(), **numbers)


def moments(model, algorithm, theta, start, steps=3000, replicates=8):
    """Means and standard errors over replicates of the first and second moment of x."""
    result = pipla.sweep(
        model,
        algorithm,
        theta=theta,
        particles=start,
        num_steps=steps,
        burn_in=steps // 6,
        key=jax.random.key(3),
        num_replicates=replicates,
        save=STILL,
        progress=False,
    )
    first = result.x_mean[0]
    second = result.x_variance[0] + first**2
    return [(m.mean(axis=0), m.std(axis=0, ddof=1) / np.sqrt(replicates)) for m in (first, second)]


def test_it_lands_on_the_exact_maximiser_of_the_toy_model():
    problem = pipla.problems.toy(dimension=20)
    model, back = pipla.noncentred(problem.model)
    theta = jnp.asarray(-1.0)
    particles = problem.particles(jax.random.key(1), 20, theta)
    result = pipla.sweep(
        model,
        pipla.MetropolisAdjusted(),
        theta=theta,
        particles=jax.vmap(back.inverse, in_axes=(None, 0))(theta, particles),
        num_steps=4000,
        burn_in=1500,
        key=jax.random.key(0),
        num_replicates=8,
        save=pipla.Save(moments_every=None),
        progress=False,
    )
    error = result.theta[0].std(ddof=1) / np.sqrt(8)
    assert error < 0.01
    assert abs(result.theta[0].mean() - problem.maximiser) < 5 * error


def kinked(theta, x, data):
    return 2.0 * jnp.sum((x - data) ** 2)


# Steps and smoothings from small to absurdly large: the law must not depend on them.
@pytest.mark.parametrize(("step", "smoothing"), [(0.02, 0.05), (0.3, 0.1), (0.2, 2.0)])
def test_a_posterior_with_a_kink_is_invariant(step, smoothing):
    y = np.array([0.0, 0.3, 1.5])
    theta = 0.2
    model = pipla.Model(kinked, pipla.prox.LaplaceLocation(scale=0.4), data=jnp.asarray(y))
    start = jnp.tile(jnp.asarray(y), (10, 1))
    found = moments(model, frozen(step_size=step, smoothing=smoothing), jnp.asarray(theta), start)
    for power, (mean, error) in enumerate(found, start=1):
        for i, centre in enumerate(y):

            def density(x, centre=centre):
                return np.exp(-2 * (x - centre) ** 2 - abs(x - theta) / 0.4)

            ends = {"points": [theta, centre], "limit": 200}
            mass = quad(density, -6, 8, **ends)[0]
            exact = quad(lambda x: x**power * density(x), -6, 8, **ends)[0] / mass
            assert error[i] < 0.03
            assert abs(mean[i] - exact) < 5 * error[i]


@pytest.mark.parametrize(("step", "smoothing"), [(0.05, 0.1), (0.3, 1.0)])
def test_a_posterior_in_a_box_is_invariant(step, smoothing):
    y = np.array([0.0, 0.8, 1.5])
    model = pipla.Model(kinked, pipla.prox.Box(-1.0, 1.0), data=jnp.asarray(y))
    start = jnp.zeros((10, 3))
    found = moments(model, frozen(step_size=step, smoothing=smoothing), jnp.zeros(()), start)
    exact = truncnorm((-1 - y) / 0.5, (1 - y) / 0.5, loc=y, scale=0.5)
    for power, (mean, error) in enumerate(found, start=1):
        truth = exact.mean() if power == 1 else exact.var() + exact.mean() ** 2
        assert np.all(error < 0.02)
        assert np.all(np.abs(mean - truth) < 5 * error)


@pytest.mark.slow
def test_the_uniform_reference_agrees_with_an_independent_sampler():
    problem = pipla.problems.logistic("uniform", dimension=5, observations=100, seed=1)
    model, _ = pipla.noncentred(problem.model)
    theta = jnp.asarray(1.5)
    inside = jax.random.uniform(jax.random.key(1), (30, 5), minval=-1.0, maxval=1.0)
    result = pipla.sweep(
        model,
        pipla.MetropolisAdjusted(),
        theta=theta,
        particles=inside,
        num_steps=6000,
        burn_in=2000,
        key=jax.random.key(0),
        num_replicates=8,
        save=pipla.Save(moments_every=None),
        progress=False,
    )
    ours = result.theta[0].mean()
    error = result.theta[0].std(ddof=1) / np.sqrt(8)
    likelihood = problem.model.smooth
    features, labels = np.asarray(likelihood.design.columns), np.asarray(likelihood.responses)
    theirs, their_error = maximiser(
        features.T, labels, ours + np.array([-0.06, -0.02, 0.02, 0.06]), 60, 600, 60
    )
    assert error < 0.02
    assert their_error < 0.02
    assert (
        abs(ours - theirs) < 4 * np.hypot(error, their_error) + 0.002
    )  # the scores are not exactly linear
