"""The recommended rule: it converges without hand-set numbers, and stays finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla

NO_MOMENTS = pipla.Save(moments_every=None)


def started(rule, problem, thetas, num_particles, seed=1):
    thetas = jnp.asarray(thetas)
    keys = jax.random.split(jax.random.key(seed), len(thetas))
    particles = jax.vmap(lambda k, t: problem.particles(k, num_particles, t))(keys, thetas)
    return thetas, jax.vmap(rule.start)(thetas, particles)


def test_it_reaches_the_maximiser_of_the_toy_model_from_anywhere():
    problem = pipla.problems.toy()
    rule = pipla.recommended(problem.model)
    thetas, particles = started(rule, problem, [-30.0, -3.0, 0.0, 20.0], 20)
    result = pipla.sweep(
        rule.model,
        rule.algorithm,
        theta=thetas,
        particles=particles,
        num_steps=2000,
        key=jax.random.key(0),
        num_replicates=4,
        start_per_replicate=True,
        save=NO_MOMENTS,
        progress=False,
    )
    assert np.max(np.abs(result.theta[0] - problem.maximiser)) < 0.02


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    ("prior", "thetas"),
    [
        ("laplace", [-200.0, -30.0, -8.0, 6.0, 30.0, 200.0]),
        ("uniform", [1e-3, 0.05, 0.5, 6.0, 50.0, 500.0]),
    ],
)
def test_it_stays_finite_from_far_starts(prior, thetas, dtype):
    problem = pipla.problems.logistic(prior, dimension=10, observations=100)
    rule = pipla.recommended(problem.model)
    thetas, particles = started(rule, problem, thetas, 10)
    model, thetas, particles = jax.tree.map(
        lambda leaf: leaf.astype(dtype) if isinstance(leaf, jax.Array) else leaf,
        (rule.model, thetas, particles),
    )
    result = pipla.sweep(
        model,
        rule.algorithm,
        theta=thetas,
        particles=particles,
        num_steps=600,
        key=jax.random.key(0),
        num_replicates=6,
        start_per_replicate=True,
        save=NO_MOMENTS,
        progress=False,
    )
    assert result.theta_trace.dtype == dtype
    assert result.finite.all()
    assert np.isfinite(result.theta_trace).all()


def both(problem):
    """The rule and the reference, each with its model and a start."""
    rule = pipla.recommended(problem.model)
    theta, particles = started(rule, problem, [0.5], 6)
    start = {"theta": theta[0], "particles": particles[0]}
    return rule.model, start, (rule.algorithm, pipla.MetropolisAdjusted(0.1, 0.1))


def test_run_and_sweep_give_the_same_numbers():
    model, start, algorithms = both(pipla.problems.toy(dimension=5))
    for algorithm in algorithms:
        many = pipla.sweep(
            model,
            algorithm,
            **start,
            num_steps=60,
            key=jax.random.key(2),
            num_replicates=2,
            progress=False,
        )
        one = pipla.run(
            model, algorithm, **start, num_steps=60, key=many.keys[1], progress=False, check=False
        )
        np.testing.assert_allclose(one.theta_trace, many.theta_trace[0, 1], rtol=1e-9, atol=1e-9)


def test_a_saved_run_resumes_bit_for_bit(tmp_path):
    model, start, algorithms = both(pipla.problems.toy(dimension=5))
    options = {**start, "key": jax.random.key(0), "burn_in": 10, "progress": False, "check": False}
    for number, algorithm in enumerate(algorithms):
        whole = pipla.run(model, algorithm, num_steps=50, **options)
        half = pipla.run(model, algorithm, num_steps=20, **options)
        half.save(tmp_path / str(number))
        loaded = pipla.load(tmp_path / str(number))
        assert type(loaded.algorithm) is type(algorithm)
        more = pipla.resume(tmp_path / str(number), model, num_steps=30, progress=False)
        assert np.array_equal(more.theta_trace, whole.theta_trace)
        assert np.array_equal(more.particles, whole.particles)
        assert np.array_equal(more.x_mean, whole.x_mean)
