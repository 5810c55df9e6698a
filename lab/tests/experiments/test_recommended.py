"""The row of the rule of `pipla.fit`: it needs no hand-set number, from any start."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.algorithms.wrappers.paired import Paired
from pipla_lab.experiments.theta import measure
from pipla_lab.experiments.theta.logistic import RECOMMENDED, UNIFORM
from pipla_lab.experiments.theta.toy import TOY


def test_it_reaches_the_maximiser_of_the_toy_model_from_anywhere():
    preset = dataclasses.replace(TOY.presets["tiny"], num_particles=20, num_steps=3600)
    job, _ = TOY.prepare(preset, seed=0)
    job = job._replace(starts=np.array([-30.0, -3.0, 0.0, 20.0]))
    outcome = measure.row(job, RECOMMENDED, job.problem.maximiser, progress=False)
    assert outcome.row.num_steps == 600  # of six gradients
    assert outcome.row.evaluations == 3600
    assert outcome.row.finite == 1
    assert outcome.row.distance_to_reference < 0.03


def test_a_half_width_starts_at_its_absolute_value():
    job, _ = UNIFORM.prepare(UNIFORM.presets["tiny"], seed=0)
    begin = measure._setup(job, RECOMMENDED).begin
    np.testing.assert_array_equal(begin(jnp.array([-2.0, 0.0, 3.0]), None)[0], [2.0, 0.5, 3.0])


@pytest.mark.parametrize(
    ("prior", "thetas"),
    [
        ("laplace", [-200.0, -30.0, -8.0, 6.0, 30.0, 200.0]),
        ("uniform", [1e-3, 0.05, 0.5, 6.0, 50.0, 500.0]),
    ],
)
def test_it_stays_finite_from_far_starts(prior, thetas):
    problem = pipla.problems.logistic(prior, dimension=10, observations=100)
    thetas = jnp.asarray(thetas)
    keys = jax.random.split(jax.random.key(1), len(thetas))
    particles = jax.vmap(lambda k, t: problem.particles(k, 10, t))(keys, thetas)
    # The terms' own numbers follow the particles.
    model, thetas, particles = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if isinstance(leaf, jax.Array) else leaf,
        (problem.model, thetas, particles),
    )
    result = pipla.sweep(
        model,
        Paired(pipla.IRPL(0.08)),
        theta=thetas,
        particles=particles,
        num_steps=200,
        key=jax.random.key(0),
        num_replicates=6,
        start_per_replicate=True,
        save=pipla.Save(moments_every=None),
        progress=False,
    )
    assert result.theta_trace.fine.dtype == np.float32
    assert result.finite.all()
    assert np.isfinite(result.theta_trace.fine).all()
