"""Whether a series has settled, and what a run says about it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.diagnostics import still_moving
from pipla.problems import toy

pytestmark = pytest.mark.slow


def test_a_stationary_series_is_seldom_called_moving():
    """About one in 370 by chance; 10 or more among 400 has probability below 1e-6."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(400, 1200))
    series = np.zeros_like(noise)
    for t in range(1, noise.shape[1]):
        series[:, t] = 0.5 * series[:, t - 1] + noise[:, t]
    assert sum(still_moving(one) for one in series) < 10


def test_a_drift_is_called_moving_and_a_constant_is_not():
    assert still_moving(np.linspace(0.0, 1.0, 400))
    assert still_moving(np.stack([np.zeros(400), np.linspace(0.0, 1.0, 400)], axis=1))
    assert not still_moving(np.full(400, 3.0))


def test_a_run_says_that_theta_has_not_settled():
    problem = toy()
    options = {"theta": 5.0, "particles": jnp.full((4, 50), 5.0), "key": jax.random.key(0)}
    slow = pipla.run(problem.model, pipla.MYPGD(1e-4, 0.01), num_steps=600, **options)
    assert "still moving" in slow.message
    settled = pipla.run(
        problem.model, pipla.MYPGD(0.1, 0.2, theta_scale="auto"), num_steps=2000, **options
    )
    assert settled.message == "completed 2000 steps"


def test_every_algorithm_built_without_numbers_finds_the_toys_maximiser():
    """A step size from the tuning is of use only with a theta at the pace of x."""
    problem = toy()
    # One of each scheme; noise in theta does not change the numbers that the tuning gives.
    for make in (pipla.PGD, pipla.MYIPLA, pipla.PIPGLA, pipla.PPGD):
        result = pipla.run(
            problem.model,
            make(),
            theta=0.0,
            particles=jnp.zeros((20, 50)),
            num_steps=1500,
            key=jax.random.key(1),
        )
        assert abs(result.theta - problem.maximiser) < 0.15, make.__name__


@pytest.mark.filterwarnings("ignore:(data|particles).* apart, too coarse:UserWarning")
def test_an_x_that_is_decided_by_rounding_is_said_to_be():
    """Near 1e17 neighbouring float64 numbers are 16 apart: x, of sd 1, cannot move."""
    far = 1e17 + np.zeros((4, 5))
    term = pipla.prox.LaplaceLocation(scale=1.0)
    model = pipla.Model(lambda theta, x, data: jnp.sum((x - data) ** 2) / 2, term, data=far[0])
    options = {"theta": 1e17, "particles": far, "key": jax.random.key(0)}
    result = pipla.run(model, pipla.PIPGLA(0.1), num_steps=100, **options)
    assert result.status is pipla.Status.UNRELIABLE
    assert "x is decided by rounding; near 1e+17" in result.message
    del options["key"]
    fit = pipla.fit(model, max_steps=400, **options)
    assert not fit.converged
    assert "decided by rounding" in str(fit.findings[0])


def test_a_leaf_of_x_without_elements_is_not_judged():
    model = pipla.Model(
        lambda theta, x, data: jnp.sum((x["a"] - theta) ** 2) / 2 + jnp.sum(x["b"]),
        pipla.prox.L1().on(x="a"),
    )
    start = {"a": jnp.ones((4, 3)), "b": jnp.ones((4, 0))}
    options = {"num_steps": 30, "key": jax.random.key(0), "check": False}
    result = pipla.run(model, pipla.PIPGLA(0.1), theta=0.0, particles=start, **options)
    assert result.num_steps == 30


def test_an_x_that_rests_on_a_wall_or_at_zero_is_not_called_rounded():
    for term, at in ((pipla.prox.Box(0.0, 1.0), 1.0), (pipla.prox.L1(1e4), 0.0)):
        model = pipla.Model(lambda theta, x, data: jnp.sum((x - 5) ** 2) * 50, term)
        result = pipla.run(
            model,
            pipla.PGLA(0.001),
            theta=0.0,
            particles=jnp.full((4, 3), at),
            num_steps=50,
            key=jax.random.key(0),
        )
        assert np.all(np.asarray(result.particles) == at)  # the situation that is meant
        assert "rounding" not in result.message
