"""Nothing wrong in silence: a run that should not be believed says so, in status and warning."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.diagnostics import ConvergenceWarning
from pipla.engine.doubts import unused
from pipla.tuning import TheoryWarning

pytestmark = pytest.mark.slow

KEY = jax.random.key(0)


def box_run(algorithm, start, term=None, **options):
    """A standard normal in the unit box, so far as the algorithm keeps it there."""
    model = pipla.Model(lambda theta, x, _: jnp.sum(x**2) / 2, term or pipla.prox.Box(0.0, 1.0))
    return pipla.run(
        model,
        algorithm,
        theta=jnp.zeros(()),
        particles=jnp.full((4, 3), start),
        num_steps=40,
        key=KEY,
        **options,
    )


def test_metropolis_refuses_to_start_where_it_would_never_leave():
    with pytest.raises(ValueError, match=r"particles: 4 of them start.*MetropolisAdjusted"):
        box_run(pipla.MetropolisAdjusted(0.1, 0.1, theta_scale=1.0), 5.0)
    inside = box_run(pipla.MetropolisAdjusted(0.1, 0.1, theta_scale=1.0), 0.5)
    assert np.all((inside.particles >= 0) & (inside.particles <= 1))


@pytest.mark.parametrize("make", [pipla.IPLA, pipla.PGD, pipla.SOUL])
def test_algorithms_without_a_prox_say_that_they_ignore_constraints(make):
    with pytest.warns(TheoryWarning, match=rf"{make.__name__} has no proximal step .* Box"):
        result = box_run(make(0.1), 0.5)
    assert result.status is pipla.Status.UNRELIABLE
    assert "outside the support" in result.message
    assert "ignores the constraints of Box" in result.message
    assert any("outside the support" in str(finding) for finding in result.findings)
    assert box_run(pipla.PGLA(0.1), 0.5).status is pipla.Status.COMPLETED


def test_the_centred_uniform_says_that_it_has_no_sound_prox():
    """The case of issue 15: exact 1.318, centred runs end anywhere between .08 and .97."""
    data = np.random.default_rng(5).uniform(-1.5, 1.5, 50)
    particles = jnp.asarray(np.random.default_rng(6).normal(size=(20, 50)))
    model = pipla.Model(
        lambda theta, x, d: 2 * jnp.sum((x - d) ** 2), pipla.prox.UniformBox(), jnp.asarray(data)
    )
    options = {"theta": jnp.asarray(1.0), "particles": particles, "num_steps": 30, "key": KEY}
    with pytest.warns(TheoryWarning, match=r"UniformBox has no sound joint prox.*E18"):
        result = pipla.run(model, pipla.PIPGLA(0.01), **options)
    assert result.status is pipla.Status.UNRELIABLE  # also where every particle is inside
    assert "E18" in result.message
    part = model.nonsmooth.on(theta="w", x="u")
    assert "E18" in part.objections()[0]
    assert pipla.noncentred(model).model.nonsmooth.objections() == []
    pipla.run(model, pipla.PGLA(0.01), **options)  # a sampler: theta is given, no warning
    pipla.run(model, pipla.IRPL(0.01), **options)  # moves theta in the non-centred form, too


def test_a_short_transient_is_judged():
    """998.98 ± .25 for a truth of 1, "completed": 300 steps of a start far away."""
    model = pipla.Model(lambda theta, x, _: jnp.sum((x - theta) ** 2) / 2 + (theta - 1) ** 2 / 2)
    with pytest.warns(ConvergenceWarning, match="theta was still moving"):
        result = pipla.run(
            model,
            pipla.PGD(1e-5),
            theta=jnp.asarray(1000.0),
            particles=jnp.full((4, 3), 1000.0),
            num_steps=300,
            key=KEY,
        )
    assert result.status is pipla.Status.UNRELIABLE
    assert "unreliable" in repr(result)


def test_a_difference_of_no_consequence_is_not_called_moving():
    from pipla.diagnostics import still_moving

    settled = 1.0 + 1e-3 * np.linspace(0, 1, 1000)  # a drift of .1 % after a way of 5
    assert still_moving(settled)
    assert not still_moving(settled, ignore=0.05)


def test_a_strength_that_runs_away_is_noticed():
    """`MYIPLA()` on 1-D total variation: the smoothing that suits the start suits it no more."""
    rng = np.random.default_rng(0)
    y = np.repeat(rng.normal(size=5), 12) + 0.3 * rng.normal(size=60)
    model = pipla.Model(
        lambda theta, x, y: jnp.sum((x - y) ** 2) / 0.18, pipla.prox.TVStrength(), jnp.asarray(y)
    )
    seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = pipla.run(
            model,
            pipla.MYIPLA(),
            theta=jnp.zeros(()),
            particles=jnp.asarray(np.tile(y, (6, 1))),
            num_steps=500,
            key=KEY,
            callbacks=[lambda view: seen.append((view.step, len(caught)))],
            chunk_size=100,
        )
    assert result.status is pipla.Status.UNRELIABLE
    said = [str(each.message) for each in caught if each.category is ConvergenceWarning]
    noticed = next(step for step, count in seen if count)
    assert noticed < 500
    assert said[0].startswith(f"after step {noticed}: ")
    assert sum("after step" in sentence for sentence in said) == 1
    assert any("is too large where theta ended" in str(finding) for finding in result.findings)
    likelihood = pipla.likelihoods.Gaussian(pipla.operators.Identity(), y, 0.3)
    sound = pipla.run(
        pipla.Model(likelihood, pipla.prox.TVStrength()),
        pipla.RPL(),
        theta=jnp.zeros(()),
        particles=jnp.asarray(np.tile(y, (6, 1))),
        num_steps=600,
        key=KEY,
    )
    assert sound.status is pipla.Status.COMPLETED, sound.message


def test_a_theta_that_nobody_uses_is_a_warning():
    """A random walk, or the start itself, must not pass for an estimate."""
    model = pipla.Model(lambda theta, x, _: jnp.sum((x - theta["a"]) ** 2) / 2, pipla.prox.L1())
    options = {
        "theta": {"a": jnp.zeros(()), "b": jnp.zeros(())},
        "particles": jnp.zeros((4, 3)),
        "num_steps": 20,
        "key": KEY,
    }
    with pytest.warns(
        ConvergenceWarning, match=r"^theta\['b'\]: neither smooth nor the non-smooth"
    ):
        result = pipla.run(model, pipla.PGD(0.1), **options)
    assert result.status is pipla.Status.UNRELIABLE
    sampled = pipla.run(model, pipla.PGLA(0.1), **options)  # theta is given, not learned
    assert sampled.status is pipla.Status.COMPLETED
    used = pipla.Model(model.smooth, pipla.prox.LaplaceScale().on(theta="b"))
    assert unused(used, options["theta"], options["particles"]) == []


def test_an_inexact_prox_is_a_warning():
    rng = np.random.default_rng(0)
    image = jnp.asarray(100 * rng.normal(size=(16, 16)))
    term = pipla.prox.TotalVariation(30.0, max_iterations=5, tolerance=1e-9)
    model = pipla.Model(lambda theta, x, y: jnp.sum((x - y) ** 2) / 2000, term, image)
    with pytest.warns(ConvergenceWarning, match=r"duality gap reached .* for 256 elements"):
        result = pipla.run(
            model,
            pipla.PGLA(20.0),
            theta=jnp.zeros(()),
            particles=jnp.stack([image, image]),
            num_steps=10,
            key=KEY,
            check=False,
        )
    assert result.status is pipla.Status.UNRELIABLE


def test_warnings_are_saved(tmp_path):
    with pytest.warns(TheoryWarning):
        result = box_run(pipla.IPLA(0.1), 0.5)
    result.save(tmp_path / "run")
    again = pipla.load(tmp_path / "run")
    assert again.findings == result.findings
    assert again.status is pipla.Status.UNRELIABLE
