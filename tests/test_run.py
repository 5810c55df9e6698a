"""The run: what it keeps, how it ends, what it says, and that it can go on."""

import sys
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pipla
from pipla.diagnostics import monte_carlo_error
from pipla.engine import compiled
from pipla.tuning import TheoryWarning

D, N = 3, 4
Y = np.array([0.5, -1.0, 2.0])
START = jnp.asarray(np.random.default_rng(0).normal(size=(N, D)))


def smooth(theta, x, y):
    return jnp.sum((x - y) ** 2) / 2


MODEL = pipla.Model(smooth, pipla.prox.LaplaceLocation(2.0), data=Y)
FAST = pipla.PIPGLA(0.1)


def run(num_steps=30, model=MODEL, algorithm=FAST, *, theta=0.5, particles=START, **options):
    return pipla.run(
        model,
        algorithm,
        theta=jnp.asarray(theta),
        particles=particles,
        num_steps=num_steps,
        **{"key": jax.random.key(1), "check": False} | options,
    )


# What it keeps. #


@pytest.mark.parametrize("burn_in", [0, 7, 29])
def test_moments_are_those_of_the_clouds(burn_in):
    save = pipla.Save(moments_every=1, particles_every=1)
    result = run(save=save, burn_in=burn_in)
    assert result.saved_particles.shape == (30, N, D)
    kept = result.saved_particles[burn_in:].reshape(-1, D)
    np.testing.assert_allclose(result.x_mean, kept.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(result.x_variance, kept.var(axis=0), rtol=1e-10)


@pytest.mark.parametrize("every", [1, 4, 7])
def test_moments_are_taken_every_so_many_steps_after_burn_in(every):
    burn_in = 5
    clouds = run(save=pipla.Save(particles_every=1), burn_in=burn_in).saved_particles
    result = run(save=pipla.Save(moments_every=every), burn_in=burn_in)
    kept = clouds[burn_in::every].reshape(-1, D)
    np.testing.assert_allclose(result.x_mean, kept.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(result.x_variance, kept.var(axis=0), rtol=1e-10)


def test_moments_do_not_lose_digits_far_from_zero_in_float32():
    far = pipla.Model(lambda theta, x, y: jnp.sum((x - 1e4) ** 2) / 2)
    particles = jnp.full((N, D), 1e4, jnp.float32)
    save = pipla.Save(moments_every=1, particles_every=1)
    result = run(
        200, far, pipla.PGLA(0.1), theta=np.float32(0), particles=particles, save=save, burn_in=0
    )
    kept = result.saved_particles.reshape(-1, D).astype(np.float64)
    np.testing.assert_allclose(result.x_variance, kept.var(axis=0), rtol=1e-3)


def test_clouds_are_kept_every_so_many_steps_whatever_the_chunks():
    every = run(save=pipla.Save(particles_every=1)).saved_particles
    for chunk_size in (None, 2, 100):
        some = run(save=pipla.Save(particles_every=7), chunk_size=chunk_size).saved_particles
        np.testing.assert_array_equal(some, every[6::7])


def test_nothing_is_kept_that_was_not_asked_for():
    result = run(save=pipla.Save(moments_every=None))
    assert result.x_mean is None
    assert result.x_variance is None
    assert result.saved_particles is None


def test_moments_of_a_quantity_replace_those_of_x():
    def quantity(theta, x):
        return {"norm": jnp.sum(x**2), "shifted": x - theta}

    save = pipla.Save(moments_every=1, particles_every=1, quantity=quantity)
    result = run(save=save, burn_in=4)
    clouds = run(save=pipla.Save(particles_every=1)).saved_particles[4:]
    thetas = result.theta_trace[4:]
    norms = (clouds**2).sum(axis=2)
    np.testing.assert_allclose(result.x_mean["norm"], norms.mean(), rtol=1e-12)
    np.testing.assert_allclose(result.x_variance["norm"], norms.var(), rtol=1e-10)
    shifted = (clouds - thetas[:, None, None]).reshape(-1, D)
    np.testing.assert_allclose(result.x_mean["shifted"], shifted.mean(axis=0), rtol=1e-12)
    # What is saved is the quantity, too: of a non-centred model x, not z.
    saved = result.saved_particles
    np.testing.assert_allclose(saved["norm"][4:], norms, rtol=1e-12)
    np.testing.assert_allclose(saved["shifted"][4:].reshape(-1, D), shifted, rtol=1e-12)


def test_the_mean_of_truth_values_is_a_probability():
    save = pipla.Save(moments_every=1, particles_every=1, quantity=lambda theta, x: x > 0)
    result = run(save=save, burn_in=4)
    clouds = run(save=pipla.Save(particles_every=1)).saved_particles
    share = (clouds[4:] > 0).mean(axis=(0, 1))
    np.testing.assert_allclose(result.x_mean, share, rtol=1e-12)
    assert result.x_mean.dtype == result.particles.dtype


def test_averages_begin_after_burn_in():
    result = run(40, burn_in=10)
    assert result.theta_trace.shape == (40,)
    np.testing.assert_allclose(result.theta, result.theta_trace[10:].mean(), rtol=1e-14)
    np.testing.assert_allclose(result.theta_mcse, monte_carlo_error(result.theta_trace[10:]))
    assert result.theta_last == result.theta_trace[-1]


def test_half_of_the_steps_are_burn_in_unless_said_otherwise():
    assert run(31).burn_in == 15
    assert run(31, burn_in=0).burn_in == 0


def test_burn_in_changes_averages_and_nothing_else():
    one, two = run(burn_in=0), run(burn_in=20)
    np.testing.assert_array_equal(one.theta_trace, two.theta_trace)
    np.testing.assert_array_equal(one.particles, two.particles)


def test_a_theta_pytree_gives_a_trace_pytree():
    model = pipla.Model(
        lambda theta, x, y: jnp.sum((x - y) ** 2) / 2 + jnp.sum(theta["b"] ** 2),
        pipla.prox.LaplaceLocation().on(theta="a"),
        data=Y,
    )
    result = pipla.run(
        model,
        FAST,
        theta={"a": 0.1, "b": jnp.ones((2, 2))},
        particles=START,
        num_steps=5,
        key=jax.random.key(0),
        check=False,
    )
    assert result.theta_trace["a"].shape == (5,)
    assert result.theta_trace["b"].shape == (5, 2, 2)
    assert result.theta["b"].shape == result.theta_mcse["b"].shape == (2, 2)
    assert "theta=(" in repr(result)


def test_a_result_says_where_it_comes_from():
    result = run()
    assert result.status is pipla.Status.COMPLETED
    assert result.message == "completed 30 steps"
    assert set(result.versions) == {"pipla", "jax", "python", "device"}
    assert result.versions["pipla"] == pipla.__version__
    assert float(result.algorithm.step_size) == 0.1
    assert result.seconds > 0
    assert result.compile_seconds > 0
    assert repr(result).startswith("Result(PIPGLA: theta=")


# How it ends: a value that is not finite. #


def cliff(theta, x, y):
    """Fine below 1, NaN beyond, and a steady push upwards."""
    level = jnp.sum(x)
    return jnp.where(level < 1.0, -level, jnp.sqrt(1.0 - level))


CLIFF = pipla.Model(cliff)


def climb(num_steps, **options):
    climber = pipla.PGD(1e-3, theta_update="frozen")
    return run(num_steps, CLIFF, climber, particles=jnp.full((2, 1), -0.2), **options)


def test_a_run_stops_at_the_last_good_state():
    result = climb(20_000)
    assert result.status is pipla.Status.NONFINITE
    steps = result.num_steps
    assert 16 < steps < 20_000
    assert np.all(np.isfinite(result.theta_trace))
    assert np.all(np.isfinite(result.particles))
    assert f"non-finite at step {steps + 1};" in result.message
    assert f"the state after step {steps} is kept" in result.message
    assert "step_size" in result.message

    good = climb(steps, burn_in=result.burn_in if result.burn_in < steps else steps - 1)
    assert good.status is pipla.Status.COMPLETED
    np.testing.assert_array_equal(result.theta_trace, good.theta_trace)
    np.testing.assert_array_equal(result.particles, good.particles)
    one_more = climb(steps + 1, burn_in=0)
    assert one_more.status is pipla.Status.NONFINITE
    assert one_more.num_steps == steps


@pytest.mark.parametrize("chunk_size", [1, 5, 64])
def test_where_a_run_stops_does_not_depend_on_the_chunks(chunk_size):
    assert climb(20_000, chunk_size=chunk_size).num_steps == climb(20_000).num_steps


def test_a_run_that_fails_at_once_keeps_its_start():
    model = pipla.Model(lambda theta, x, y: jnp.sum(x) * jnp.sqrt(-1.0 + 0 * theta))
    result = run(10, model, pipla.PGD(0.1))
    assert result.status is pipla.Status.NONFINITE
    assert result.num_steps == 0
    assert "at step 1;" in result.message
    np.testing.assert_array_equal(result.particles, START)
    assert result.theta == 0.5
    assert result.x_mean is None
    assert np.isnan(result.theta_mcse)
    again = pipla.resume(result, model, num_steps=3)
    assert again.num_steps == 0


def test_divergence_names_the_broken_condition():
    stiff = pipla.Model(lambda theta, x, y: 50 * jnp.sum((x - theta) ** 2))
    result = run(5000, stiff, pipla.IPLA(1.0))
    assert result.status is pipla.Status.NONFINITE
    assert "step_size = 1 exceeds" in result.message
    assert "IPLA" in result.message


# How it ends: Ctrl-C. #


def interrupt_at(monkeypatch, call):
    """Raise KeyboardInterrupt at the given call of the compiled chunk."""
    calls = {"number": 0}
    advance = compiled.advance

    def kept(program):
        calls["number"] += 1
        if calls["number"] == call:
            raise KeyboardInterrupt
        return advance.kept(program)

    monkeypatch.setattr(compiled, "advance", types.SimpleNamespace(kept=kept))


def test_ctrl_c_returns_what_there_is_and_the_run_can_go_on(monkeypatch):
    whole = run(60, burn_in=10, save=pipla.Save(1, 5))
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5)  # the first call compiles
        part = run(60, burn_in=10, save=pipla.Save(1, 5), chunk_size=8)
    assert part.status is pipla.Status.INTERRUPTED
    assert 0 < part.num_steps < 60
    assert f"interrupted after {part.num_steps} of 60 steps" in part.message
    np.testing.assert_array_equal(part.theta_trace, whole.theta_trace[: part.num_steps])
    rest = pipla.resume(part, MODEL, num_steps=60 - part.num_steps)
    assert rest.status is pipla.Status.COMPLETED
    for name in ("theta_trace", "particles", "x_mean", "x_variance", "saved_particles"):
        np.testing.assert_array_equal(getattr(rest, name), getattr(whole, name))


def test_ctrl_c_while_compiling_returns_the_start(monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 1)
        nothing = run(20)
    assert nothing.status is pipla.Status.INTERRUPTED
    assert nothing.num_steps == 0
    np.testing.assert_array_equal(nothing.particles, START)
    np.testing.assert_array_equal(
        pipla.resume(nothing, MODEL, num_steps=20).theta_trace, run(20).theta_trace
    )


# Going on. #


def test_resuming_keeps_burn_in_and_counts_all_steps():
    more = pipla.resume(run(20, burn_in=5), MODEL, num_steps=10)
    assert (more.num_steps, more.burn_in) == (30, 5)
    assert more.message == "completed 30 steps"
    np.testing.assert_allclose(more.theta, more.theta_trace[5:].mean())


def test_resuming_several_times_is_one_run():
    whole = run(30, burn_in=3)
    part = run(10, burn_in=3)
    for _ in range(4):
        part = pipla.resume(part, MODEL, num_steps=5)
    np.testing.assert_array_equal(part.theta_trace, whole.theta_trace)
    np.testing.assert_array_equal(part.x_variance, whole.x_variance)


def test_resuming_with_another_model_says_so():
    other = pipla.Model(smooth, pipla.prox.TotalVariation(), data=Y)
    with pytest.raises(ValueError, match="model, algorithm or save does not fit"):
        pipla.resume(run(5), other, num_steps=5)


def test_resuming_moments_of_a_quantity_needs_the_quantity():
    # Silently mixing the moments of z with those of x would be worse than asking.
    save = pipla.Save(1, quantity=lambda theta, x: x - theta)
    whole, part = run(20, save=save, burn_in=2), run(10, save=save, burn_in=2)
    with pytest.raises(ValueError, match="save is needed"):
        pipla.resume(part, MODEL, num_steps=10)
    np.testing.assert_array_equal(
        pipla.resume(part, MODEL, num_steps=10, save=save).x_mean, whole.x_mean
    )


def test_numbers_that_were_left_out_are_resumed_from_the_file(tmp_path):
    with jax.numpy_dtype_promotion("standard"):
        algorithm = pipla.PGD(theta_optimizer=optax.adam(0.1))
        result = run(5, algorithm=algorithm)
        result.save(tmp_path / "run")
        with pytest.raises(ValueError, match="algorithm is needed"):
            pipla.resume(tmp_path / "run", MODEL, num_steps=5)
        again = pipla.resume(tmp_path / "run", MODEL, num_steps=5, algorithm=algorithm)
        more = pipla.resume(result, MODEL, num_steps=5)
        np.testing.assert_array_equal(again.theta_trace, more.theta_trace)
        fresh = pipla.resume(result, MODEL, num_steps=5, algorithm=algorithm)
        np.testing.assert_array_equal(fresh.theta_trace, more.theta_trace)


def test_an_optimizer_with_its_own_randomness_can_be_run_and_resumed():
    with jax.numpy_dtype_promotion("standard"):
        noisy = optax.noisy_sgd(0.1, key=jax.random.key(3))
        algorithm = pipla.PGD(0.1, theta_optimizer=noisy)
        whole, part = run(20, algorithm=algorithm), run(12, algorithm=algorithm)
        rest = pipla.resume(part, MODEL, num_steps=8)
    np.testing.assert_array_equal(rest.theta_trace, whole.theta_trace)


def test_keys_of_another_kind_can_be_resumed():
    key = jax.random.key(3, impl="rbg")
    whole, part = run(20, key=key), run(12, key=key)
    rest = pipla.resume(part, MODEL, num_steps=8)
    np.testing.assert_array_equal(rest.theta_trace, whole.theta_trace)


# What it says: the progress bar. #


def test_no_bar_where_there_is_no_terminal(capsys):
    run(20)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_no_bar_when_not_wanted(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run(20, progress=False)
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run(20)
    assert "PIPGLA" in capsys.readouterr().err


def test_the_bar_shows_theta_steps_and_time_left(capsys):
    result = run(20, progress=True)
    shown = capsys.readouterr().err
    assert f"theta {result.theta_last:.4g}" in shown
    assert "20/20" in shown
    assert "left" in shown


def test_the_bar_shows_the_first_few_numbers_of_a_long_theta():
    from pipla._trees import brief

    assert brief(np.asarray(-4.61234)) == "-4.612"
    assert brief(np.arange(2.0)) == "(0, 1)"
    assert brief({"a": np.arange(10.0)}, 3) == "(0, 1, 2, ...)"


def test_the_bar_does_not_change_the_numbers():
    np.testing.assert_array_equal(run(20, progress=True).theta_trace, run(20).theta_trace)


# What it says: conditions of the theory. #


def test_too_large_a_step_is_warned_of():
    with pytest.warns(TheoryWarning, match=r"step_size = 1\.5 exceeds 1 .*PIPGLA"):
        run(5, algorithm=pipla.PIPGLA(1.5), check=True)


def test_smoothing_unlike_the_step_is_warned_of():
    with pytest.warns(TheoryWarning, match=r"smoothing = 0\.5 is outside \[0\.1, 0\.1"):
        run(5, algorithm=pipla.PIPGLA(0.1, 0.5), check=True)


def test_the_warning_points_to_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(5, algorithm=pipla.PIPGLA(1.5), check=True)
    (warning,) = [w for w in caught if issubclass(w.category, TheoryWarning)]
    assert warning.filename == __file__


@pytest.mark.parametrize(
    "preset",
    [
        pipla.PGD, pipla.IPLA, pipla.SOUL, pipla.MYPGD, pipla.MYIPLA, pipla.PIPGLA, pipla.PIPULA,
        pipla.PPGD, pipla.MYULA, pipla.PGLA, pipla.MetropolisAdjusted,
    ],
    ids=lambda preset: preset.__name__,
)  # fmt: skip
def test_algorithms_without_numbers_run_within_the_theory(preset):
    result = run(40, algorithm=preset(), check=True)  # a warning would be an error here
    assert result.status is pipla.Status.COMPLETED
    assert result.algorithm.step_size is not None
    if not getattr(result.algorithm, "theta_drifts", True):
        return  # a sampler's numbers are those of x alone: test_tuning.py
    numbers = pipla.tuning.suggest(MODEL, jnp.asarray(0.5), START, result.algorithm.theta_scale)
    np.testing.assert_allclose(result.algorithm.step_size, numbers.step_size, rtol=1e-12)


# The error of the average. #


@pytest.mark.parametrize(
    ("time", "length", "low", "high"), [(4.5, 10_000, 0.97, 1.08), (18, 200, 0.9, 1.35)]
)
def test_stderr_of_a_correlated_series_is_its_known_error(time, length, low, high):
    # AR(1) with coefficient a: the variance of the mean is the sum of all covariances over n². The
    # root mean square of 400 estimates has an error below 3 %, its bias is in the docstring;
    # false alarm below 1e-4. Eleven correlation times are what the strength of a image has.
    rng = np.random.default_rng(0)
    a = np.exp(-1 / time)
    noise = rng.normal(size=(length, 400)) * np.sqrt(1 - a**2)
    series = np.empty_like(noise)
    series[0] = noise[0] / np.sqrt(1 - a**2)
    for t in range(1, length):
        series[t] = a * series[t - 1] + noise[t]
    lags = np.arange(1, length)
    true = np.sqrt((1 + 2 * np.sum((1 - lags / length) * a**lags)) / length)
    error = monte_carlo_error(series)
    assert low < np.sqrt(np.mean(error**2)) / true < high
    assert np.mean(np.abs(series.mean(axis=0)) < 3 * error) > 0.94


def test_stderr_of_independent_values_is_the_usual_one():
    values = np.random.default_rng(1).normal(size=(40_000, 2))
    np.testing.assert_allclose(monte_carlo_error(values), 1 / 200, rtol=0.25)  # 5 sigma


def test_stderr_of_too_few_values_is_not_a_number():
    assert np.isnan(monte_carlo_error(np.ones(3)))
    assert monte_carlo_error(np.ones(4)) == 0
    assert monte_carlo_error(np.ones((9, 2, 3))).shape == (2, 3)


# The contract's example. #

SNIPPET = """
import jax, jax.numpy as jnp, pipla

def smooth(theta, x, data):                      # g1: minus log likelihood, any pytrees
    z = data["features"] @ x
    return jnp.sum(jnp.logaddexp(0.0, z) - data["labels"] * z)

model = pipla.Model(smooth, pipla.prox.LaplaceLocation(scale=1.0), data=data)
result = pipla.run(
    model, pipla.PIPGLA(step_size=0.01),
    theta=jnp.zeros(()), particles=start,        # leading axis of every leaf: the particles
    num_steps=5000, key=jax.random.key(0),
)
result.theta, result.theta_mcse                # averaged after burn-in, with its error
result.theta_trace, result.particles, result.status
result.save("run"); again = pipla.load("run")     # arrays and settings, no code, no pickle
more = pipla.resume("run", model, num_steps=5000)  # bit for bit as if it had never stopped
"""


def test_the_contract_runs_verbatim(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, size=(30, 4))
    names = {
        "data": {"features": features, "labels": (rng.uniform(size=30) < 0.5).astype(float)},
        "start": rng.normal(size=(6, 4)),
    }
    exec(SNIPPET, names)
    result, again, more = names["result"], names["again"], names["more"]
    assert result.status is pipla.Status.COMPLETED
    np.testing.assert_array_equal(again.theta_trace, result.theta_trace)
    assert more.num_steps == 10_000
    np.testing.assert_array_equal(more.theta_trace[:5000], result.theta_trace)
    assert float(result.theta_mcse) > 0


def test_a_run_inside_a_program_is_refused_in_one_sentence():
    calls = (
        lambda step: run(5, algorithm=pipla.PIPGLA(0.1)),
        lambda step: pipla.fit(MODEL, theta=0.5, x=np.zeros(D)),
        lambda step: pipla.imaging.restore(np.eye(4), pipla.operators.Identity(), noise=1.0),
    )
    for call in calls:
        with pytest.raises(TypeError, match=r"call pipla outside of jax\.jit"):
            jax.jit(call)(0.1)
