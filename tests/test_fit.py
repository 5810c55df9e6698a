"""`pipla.fit` on problems whose answers are known, and what it says when it should not be believed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.diagnostics import ConvergenceWarning, monte_carlo_error, rhat
from pipla.fitting.information import Scores, covariance_of
from pipla.fitting.observer import Block, Look, Observer
from pipla.fitting.result import stretched
from pipla.fitting.verdict import judge

zoo = pytest.importorskip("pipla_lab.zoo")
pytestmark = pytest.mark.slow

LASSO = zoo.get("lasso")


@pytest.fixture(scope="module")
def lasso():
    return pipla.fit(LASSO.model, theta=LASSO.theta, x=LASSO.x)


def test_the_standard_error_is_that_of_the_information(lasso):
    assert lasso.theta_stderr == pytest.approx(float(LASSO.answer.theta_stderr), rel=0.05)
    low, high = lasso.theta_interval
    half = 1.6449 * np.hypot(lasso.theta_stderr, lasso.theta_mcse)
    assert float(high - low) == pytest.approx(2 * half, rel=1e-3)


def test_intervals_of_x_are_quantiles(lasso):
    low, high = lasso.x_interval
    known = LASSO.answer
    np.testing.assert_allclose(low, known.x_quantiles[0], atol=0.15 * known.x_sd.max())
    np.testing.assert_allclose(high, known.x_quantiles[2], atol=0.15 * known.x_sd.max())


def test_equal_keys_give_equal_fits(lasso):
    again = pipla.fit(LASSO.model, theta=LASSO.theta, x=LASSO.x, key=jax.random.key(0))
    assert float(again.theta) == float(lasso.theta)
    np.testing.assert_array_equal(again.x_sd, lasso.x_sd)


@pytest.mark.parametrize("shift", [-5.0, 5.0, 20.0])
def test_far_starts_end_at_the_same_answer(lasso, shift):
    """Within the tolerance of a tenth of a standard error, of which each fit may use its own."""
    start = float(LASSO.answer.theta) + shift * float(LASSO.answer.theta_stderr)
    found = pipla.fit(LASSO.model, theta=start, x=LASSO.x, key=jax.random.key(2))
    assert found.converged
    assert abs(found.theta - lasso.theta) < 0.1 * lasso.theta_stderr


def test_the_bias_is_known_to_its_own_size_and_the_noise_of_the_difference(lasso):
    """One of a part of theta was predicted as -.0005, and measured as .0001."""
    fit = lasso
    apart = np.subtract(*fit.theta_trace)[fit.burn_in :] / (2**fit.order - 1)
    np.testing.assert_allclose(apart.mean(), fit.theta_bias, rtol=1e-3)
    noise = monte_carlo_error(apart[:, None])[0]
    np.testing.assert_allclose(fit.theta_bias_error, np.hypot(noise, fit.theta_bias), rtol=1e-3)
    assert 0 < noise < fit.theta_mcse


def test_the_step_is_halved_where_it_changes_an_sd_of_x_too_much():
    """A rate of decay above which all curves are 0: its posterior has a tail that the data allow.

    There the likelihood is flat, and the Gaussian near it is not. One of 30 sds was 24 % too small
    in a fit that had converged: half the step had changed it by 12 %.
    """
    rng, times = np.random.default_rng(14), np.array([0.2, 0.5, 1.0, 2.0, 4.0, 8.0])
    rates = np.exp(-0.5 + 0.8 * rng.laplace(size=30))
    y = 5 * np.exp(-np.outer(rates, times)) + 0.4 * rng.normal(size=(30, 6))
    few = y[[18, 3, 1, 20, 27, 25]]

    def smooth(theta, x, data):
        curves = 5 * jnp.exp(-jnp.outer(jnp.exp(x), data["times"]))
        return jnp.sum((curves - data["y"]) ** 2) / (2 * 0.38**2)

    model = pipla.Model(smooth, pipla.prox.LaplaceLocation(0.8), {"times": times, "y": few})
    with pytest.warns(ConvergenceWarning, match="not converged"):
        fit = pipla.fit(model, theta=0.0, x=np.zeros(6), max_steps=1500)
    assert "the step size was halved: it changes a posterior sd by" in fit.reasons[1]


@pytest.mark.parametrize(
    ("factor", "shift", "words"),
    [(1.12, 0.0, "a posterior sd by 5"), (1.0, 0.2, "a posterior mean by 0.1"), (1.02, 0.02, "")],
)
def test_what_the_step_does_to_x_is_judged(factor, shift, words):
    """Shared noise makes the difference exact; 300 looks at 100 particles."""
    rng, observer = np.random.default_rng(0), Observer(3, np.random.default_rng(0))
    stretch = np.array([1.0, 1.0, factor])
    for step in range(10, 3010, 10):
        fine = stretch * rng.normal(size=(100, 3))
        coarse = (fine - shift) / stretch
        observer.add(Look(step, np.stack([coarse, fine])))
        observer.add_scores(step, [Scores(np.zeros((1, 1)), np.eye(1))])
    theta = 0.01 * rng.normal(size=(3000, 1))
    found = judge(theta, theta, observer, ["theta"], np.ones(1), None, 0, 1.5)
    assert found.settled
    assert found.x_bias.startswith(words) if words else found.x_bias == ""
    assert any("the bias of the step is too large for x" in p for p in found.open_points) == (
        words != ""
    )


def test_intervals_have_the_level_that_is_asked_for(lasso):
    """90 % by default, for theta, x and the parameters alike; before, 95 % and 90 %."""
    assert lasso.intervals() == (lasso.theta_interval, lasso.x_interval, lasso.parameters)
    wide = lasso.intervals(0.99)
    half = 2.5758 * np.hypot(lasso.theta_stderr, lasso.theta_mcse)
    np.testing.assert_allclose(wide.theta[1], lasso.theta + half, rtol=1e-3)
    np.testing.assert_allclose(wide.parameters["scale"][1:], np.exp(2 * np.asarray(wide.theta)))
    inside = np.mean([(lasso.x_samples > wide.x[0]) & (lasso.x_samples < wide.x[1])])
    assert inside == pytest.approx(0.99, abs=0.01)
    assert lasso.summary().count("90 % interval") == 2
    assert lasso.summary(level=0.5).count("50 % interval") == 2
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        lasso.summary(95)


@pytest.mark.parametrize("function", [np.exp, lambda theta: 3 * theta, np.square])
def test_named_parameters_are_stretched_as_theta_is(function):
    ends = [function(0.7 + side * 1.3) for side in (-1, 1)]
    expected = [function(0.7 + side * 2 * 1.3) for side in (-1, 1)]
    np.testing.assert_allclose(stretched(function(0.7), *ends, 2.0)[1:], expected)


def test_the_summary_says_how_to_see_all_of_x(lasso):
    assert f"fit.summary(most={lasso.x_sd.size}) shows all" in lasso.summary(most=3)
    assert "shows all" not in lasso.summary(most=lasso.x_sd.size)


def test_a_fit_that_ended_by_itself_does_not_speak_of_callbacks(lasso):
    assert "callback" not in lasso.message
    assert lasso.message.endswith("theta and x are known well enough")


def test_named_parameters_have_intervals(lasso):
    value, low, high = lasso.parameters["scale"]
    assert value == pytest.approx(np.exp(2 * lasso.theta))
    ends = np.exp(2 * np.asarray(lasso.theta_interval))
    assert (low, high) == pytest.approx(tuple(ends))


def test_the_summary_fits_80_columns(lasso):
    lines = lasso.summary().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("converged after")
    assert any(line.startswith("scale") for line in lines)


def test_a_budget_that_is_too_small_is_said():
    with pytest.warns(ConvergenceWarning, match="not converged"):
        found = pipla.fit(LASSO.model, theta=LASSO.theta, x=LASSO.x, max_steps=300, tolerance=1e-6)
    assert not found.converged
    assert "NOT CONVERGED" in found.summary()
    assert found.num_steps == 300


def test_a_noise_that_the_data_do_not_determine_is_named():
    problem = zoo.get("laplace-scale-no-noise")
    with pytest.warns(ConvergenceWarning, match=r"theta\['noise'\]: decided by the step size"):
        found = pipla.fit(problem.model, theta=problem.theta, x=problem.x, max_steps=3000)
    assert not found.converged


def test_there_are_no_intervals_of_x_that_has_not_mixed():
    """Two wells with a barrier of 20 between them: half of the particles start in either."""
    model = pipla.Model(lambda t, x, _: 20 * jnp.sum((x**2 - 1) ** 2), pipla.prox.L1(3.0))
    start = np.repeat([[1.0], [-1.0]], 10, axis=0)
    with pytest.warns(ConvergenceWarning, match="R-hat of x"):
        found = pipla.fit(model, theta=0.0, particles=start, max_steps=300)
    assert not found.converged
    assert np.all(np.isnan(found.x_interval))


def test_counts_do_not_overflow_from_a_far_start():
    """A prior scale 19 times too large: steps in which the curvature of e^x grows manifold."""
    problem = zoo.get("poisson-regression")
    start = float(problem.answer.theta + 10 * problem.answer.theta_stderr)
    with pytest.warns(ConvergenceWarning, match="not converged"):
        found = pipla.fit(
            problem.model, theta=start, x=problem.x, key=jax.random.key(2), max_steps=300
        )
    assert found.num_steps == 300
    assert abs(found.theta - problem.answer.theta) < 0.1 * problem.answer.theta_stderr


def test_where_values_overflow_the_first_steps_are_shortened():
    """The curvature is 0 where x starts, and nothing says how steep exp(x⁴) is nearby."""
    model = pipla.Model(lambda theta, x, _: jnp.sum(jnp.expm1(x**4)), pipla.prox.L1(0.1))
    options = {"num_particles": 10, "max_steps": 600, "key": jax.random.key(1)}
    with pytest.warns(ConvergenceWarning):
        found = pipla.fit(model, theta=0.0, x=np.zeros(2), **options)
    assert found.status is pipla.Status.COMPLETED
    assert found.num_steps == 600
    (restart,) = found.reasons[1:]
    assert "a value became non-finite: begun again with 100 steps that are 1000 times" in restart
    assert np.all(np.abs(found.x_mean) < 0.3)
    with pytest.warns(ConvergenceWarning, match="became non-finite, also with first steps"):
        hopeless = pipla.fit(model, theta=0.0, x=np.full(2, 9.0), **options)
    assert hopeless.num_steps == 0
    assert hopeless.status is pipla.Status.NONFINITE


def test_theta_of_several_parts_keeps_its_structure():
    problem = zoo.get("two-scales")
    found = pipla.fit(problem.model, theta=problem.theta, x=problem.x)
    assert set(found.theta) == {"main", "pairs"}
    assert found.x_mean["pairs"].shape == problem.x["pairs"].shape
    assert found.theta_correlation.shape == (2, 2)
    assert set(found.parameters) == {"main: scale", "pairs: scale"}
    for name in found.theta:
        error = abs(found.theta[name] - problem.answer.theta[name])
        assert error < 0.1 * problem.answer.theta_stderr[name]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, TypeError, "give x, where one particle starts, or particles"),
        ({"x": 0.0, "particles": [0.0]}, TypeError, "and not both"),
        ({"x": np.zeros(15), "num_particles": 7}, ValueError, "must be even"),
        ({"x": np.zeros(15), "num_particles": 2}, ValueError, "num_particles"),
        ({"x": np.zeros(15), "max_steps": 10}, ValueError, "max_steps"),
        ({"x": np.zeros(15), "max_seconds": -1.0}, ValueError, "max_seconds"),
        ({"x": np.zeros(15), "tolerance": 0.0}, ValueError, "tolerance"),
        ({"x": np.zeros(15), "tolerance": {"a": -1.0}}, ValueError, r"tolerance\['a'\] must be"),
        ({"x": np.zeros(15), "tolerance": {"a": 1.0}}, ValueError, "tolerance .* like theta"),
        ({"x": np.zeros(15), "key": 3}, TypeError, "key"),
        ({"x": "text"}, TypeError, "x must be"),
    ],
)
def test_arguments_are_checked(arguments, error, words):
    with pytest.raises(error, match=words):
        pipla.fit(LASSO.model, theta=LASSO.theta, **arguments)


def test_a_half_width_of_0_is_refused():
    """It ran into non-finite values at once, and said that the data do not determine it."""
    problem = zoo.get("uniform-half-width")
    with pytest.raises(
        ValueError, match="theta: the prior has no width there; start at a positive"
    ):
        pipla.fit(problem.model, theta=0.0, x=problem.x)


def test_extrapolation_removes_the_bias_of_the_step():
    """Of Euler's scheme for the scale of a Gaussian; six errors, once in 10⁸ runs."""
    problem = pipla.problems.gaussian_hierarchy("scale")
    found = pipla.extrapolate(
        problem.model,
        pipla.IPLA(0.2, theta_scale=0.05),
        theta=problem.theta,
        particles=problem.particles(jax.random.key(1), 100),
        num_steps=6000,
        key=jax.random.key(0),
    )
    error = float(found.theta - problem.maximiser)
    assert abs(error) < 6 * float(found.theta_mcse)
    assert abs(error) < 0.3 * abs(float(found.theta_coarse - problem.maximiser))
    assert found.x_mean.shape == found.x_variance.shape == (problem.dimension,)


# Its parts. #


def test_blocks_merge_to_the_moments_of_all():
    values = np.random.default_rng(0).normal(size=(5, 2, 6, 3))
    blocks = [Block.of(Look(i, v)) for i, v in enumerate(values)]
    total = blocks[0]
    for block in blocks[1:]:
        total = total.merged(block)
    together = np.moveaxis(values, 0, 1).reshape(2, -1, 3)
    np.testing.assert_allclose(total.mean, together.mean(axis=1))
    np.testing.assert_allclose(total.squares / total.number, together.var(axis=1))


def test_the_memory_of_an_observer_is_bounded():
    observer = Observer(3, np.random.default_rng(0))
    for step in range(5000):
        observer.add(Look(step, np.full((2, 4, 3), float(step))))
    assert len(observer.blocks) <= 64
    assert len(observer.looks) <= 400
    assert 1000 <= len(observer.means) <= 2000
    assert {b[0] - a[0] for a, b in zip(observer.means, observer.means[1:], strict=False)} == {4}
    np.testing.assert_allclose(observer.moments(-1).mean, 4999 / 2)
    # Of all looks after burn-in, but for a part of a block (128 looks).
    np.testing.assert_allclose(observer.moments(1666).mean, (1667 + 4999) / 2, atol=64)


def test_r_hat_sees_particles_that_do_not_mix():
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(100, 8, 2))
    apart = mixed + 3 * np.arange(8)[:, None]
    assert np.all(rhat(mixed) < 1.05)
    assert np.all(rhat(apart) > 2)


def test_flat_directions_have_no_standard_error():
    covariance = covariance_of(np.array([[2.0, 0.0], [0.0, -1e-9]]))
    assert covariance[0, 0] == pytest.approx(0.5)
    assert np.isinf(covariance[1, 1])


# Simulation-based calibration: data drawn from the model, x sampled at the true theta. #

ROWS = 60
DESIGN = np.random.default_rng(100).normal(size=(6, 3))


def of_squares(z, y):
    return (z - y) ** 2 / (2 * 0.7**2)


def of_labels(z, y):
    return jnp.logaddexp(0.0, z) - y * z


def of_counts(z, y):
    return jnp.exp(z) - y * z


CALIBRATED = {
    "L1, normal": (pipla.prox.L1(), of_squares, lambda rng, z: z + 0.7 * rng.normal(size=z.shape)),
    "L1, labels": (
        pipla.prox.L1(),
        of_labels,
        lambda rng, z: rng.random(z.shape) * (1 + np.exp(-z)) < 1,
    ),
    "L1, counts": (pipla.prox.L1(2.0), of_counts, lambda rng, z: rng.poisson(np.exp(z))),
    "box, normal": (
        pipla.prox.Box(-1.0, 1.0),
        of_squares,
        lambda rng, z: z + 0.7 * rng.normal(size=z.shape),
    ),
}


@pytest.mark.parametrize("name", CALIBRATED)
def test_ranks_of_the_truth_are_uniform_in_the_posterior(name):
    """60 data sets in one model of 60 rows, which are independent: 180 ranks from one run.

    With uniform ranks, a chi-square of 8 bins exceeds 35 once in 10⁵ runs.
    """
    term, potential, observe = CALIBRATED[name]
    rng = np.random.default_rng(3)
    if isinstance(term, pipla.prox.Box):
        truth = rng.uniform(-1, 1, size=(ROWS, 3))
    else:
        truth = rng.laplace(scale=1 / float(term.weight), size=(ROWS, 3))
    data = np.asarray(observe(rng, truth @ DESIGN.T), float)
    model = pipla.Model(lambda theta, x, y: jnp.sum(potential(x @ DESIGN.T, y)), term, data)
    result = pipla.run(
        model,
        pipla.IRPL(0.05, theta_update="frozen"),
        theta=jnp.zeros(()),
        particles=jnp.zeros((20, ROWS, 3)),
        num_steps=2000,
        key=jax.random.key(0),
        save=pipla.Save(particles_every=100),
        check=False,
    )
    draws = result.saved_particles[5:].reshape(-1, ROWS, 3)
    ranks = (draws < truth).mean(axis=0).ravel()
    counts, _ = np.histogram(ranks, bins=8, range=(0, 1))
    expected = ranks.size / 8
    assert np.sum((counts - expected) ** 2 / expected) < 35
