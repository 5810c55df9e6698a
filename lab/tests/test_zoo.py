"""The zoo: its problems are sound, and its answers hold up against other methods."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from pipla.problems.toy_model import exact_maximiser
from pipla_lab import zoo
from pipla_lab.zoo.base import ANSWERS, fingerprint, stored
from pipla_lab.zoo.catalogue import cases

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def problems():
    return {problem.name: problem for problem in zoo.all()}


def test_every_problem_has_an_answer():
    assert list(stored()) == list(cases()) == zoo.names()
    assert len(zoo.names()) >= 24
    assert ANSWERS.stat().st_size < 300_000


@pytest.mark.parametrize("name", cases())
def test_the_data_are_those_that_were_answered(problems, name):
    # NumPy may change its streams, scikit-learn its data: the stored answers were then of others.
    assert fingerprint(problems[name].data) == pytest.approx(stored()[name]["data"], rel=1e-9)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="name must be one of 'laplace-location'.*got 'lasagne'"):
        zoo.get("lasagne")


@pytest.fixture(scope="module")
def starts(problems):
    """The potential, and the gradients of its smooth part, where each problem starts."""

    # One program for each: for all of them together, XLA takes five times as long.
    @eqx.filter_jit
    def evaluate(model, theta, x):
        potential = model.smooth_value(theta, x) + model.nonsmooth.value(theta, x)
        return potential, jax.grad(model.smooth_value, (0, 1))(theta, x)

    return {p.name: evaluate(p.model, p.theta, p.x) for p in problems.values()}


@pytest.mark.parametrize("name", cases())
def test_a_problem_starts_where_its_potential_is_finite(problems, starts, name):
    problem = problems[name]
    assert problem.about.endswith(".")
    leaves = jax.tree.leaves((problem.model, problem.theta, problem.x))
    kinds = {leaf.dtype for leaf in leaves if hasattr(leaf, "dtype")}
    assert {kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)} == {jnp.dtype(float)}
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(starts[name]))


@pytest.mark.parametrize("name", cases())
def test_an_answer_fits_its_problem_and_is_accurate(problems, name):
    problem = problems[name]
    answer = problem.answer
    shapes = jax.tree.map(np.shape, problem.theta), jax.tree.map(np.shape, problem.x)
    for part in (answer.theta, answer.theta_error, answer.theta_stderr):
        assert jax.tree.map(np.shape, part) == shapes[0]
    for part in (answer.x_mean, answer.x_mean_error, answer.x_sd, answer.x_sd_error):
        assert jax.tree.map(np.shape, part) == shapes[1]
    for part in (answer.x_quantiles, answer.x_quantiles_error):
        assert jax.tree.map(lambda leaf: leaf.shape[1:], part) == shapes[1]
    finite = [np.isfinite(leaf) for leaf in jax.tree.leaves(answer.theta)]
    assert answer.identifiable == all(finite)
    flat = [
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(part)]) for part in answer[:7]
    ]
    theta, theta_error, theta_stderr, mean, mean_error, sd, sd_error = flat
    low, middle, high = (
        np.concatenate([leaf[k].ravel() for leaf in jax.tree.leaves(answer.x_quantiles)])
        for k in range(3)
    )
    quantile_error = max(
        np.max(error / np.maximum(spread, 1e-12))
        for error, spread in zip(
            jax.tree.leaves(answer.x_quantiles_error), jax.tree.leaves(answer.x_sd), strict=True
        )
    )
    if not answer.identifiable:
        assert np.all(np.isnan(theta_stderr[~np.isfinite(theta)]))
        return
    assert np.all(theta_error < 0.02 * theta_stderr)
    assert np.all(mean_error < 0.02 * sd)
    assert np.all(sd_error < 0.01 * sd)
    assert quantile_error < 0.03
    assert np.all((low < middle) & (middle < high) & (low < mean) & (mean < high))
    # 1.645 for a normal density, 1.63 for a Laplace, 1.56 for a uniform one.
    assert np.all(np.abs((high - low) / (2 * sd) - 1.6) < 0.25)


def test_known_numbers_are_reproduced(problems):
    # By other programs, before the zoo existed.
    diabetes, cancer = problems["diabetes"].answer, problems["breast-cancer"].answer
    assert 2 * diabetes.theta["prior"] == pytest.approx(-1.954, abs=2e-3)
    assert diabetes.theta["noise"] == pytest.approx(-0.3523, abs=2e-4)
    assert -2 * cancer.theta == pytest.approx(-0.144, abs=8e-3)  # its error was .002


def test_a_laplace_location_has_its_maximiser_by_normal_tails(problems):
    for name in ("laplace-location", "laplace-location-weak-data", "laplace-location-far-start"):
        problem = problems[name]
        exact = exact_maximiser(problem.data["y"], float(problem.data["noise"]))
        assert problem.answer.theta == pytest.approx(exact, abs=1e-6)


def test_a_uniform_half_width_has_its_answer_by_truncated_normals(problems):
    problem = problems["uniform-half-width"]
    y, noise = problem.data["y"], float(problem.data["noise"])

    def minus(theta):
        inside = stats.norm.cdf((theta - y) / noise) - stats.norm.cdf((-theta - y) / noise)
        return -np.sum(np.log(inside / theta))

    theta = optimize.minimize_scalar(minus, bounds=(1, 5), options={"xatol": 1e-9}).x
    assert problem.answer.theta == pytest.approx(theta, abs=1e-6)
    second = (minus(theta + 1e-3) - 2 * minus(theta) + minus(theta - 1e-3)) / 1e-6
    assert problem.answer.theta_stderr == pytest.approx(second**-0.5, rel=1e-3)
    exact = stats.truncnorm((-theta - y) / noise, (theta - y) / noise, loc=y, scale=noise)
    np.testing.assert_allclose(problem.answer.x_mean, exact.mean(), atol=1e-5)
    np.testing.assert_allclose(problem.answer.x_sd, exact.std(), atol=1e-5)
    for level, quantile in zip(zoo.LEVELS, problem.answer.x_quantiles, strict=True):
        np.testing.assert_allclose(quantile, exact.ppf(level), atol=1e-5)


def test_poisson_counts_have_no_score_by_adaptive_quadrature(problems):
    # The score of theta is the sum of 2 (e^{-2 theta} E|x_i| - 1), here by QUADPACK.
    problem = problems["laplace-scale-poisson"]
    strength = float(np.exp(-2 * problem.answer.theta))
    score = 0.0
    for k, count in enumerate(problem.data["counts"]):

        def density(x, power, count=count):
            return abs(x) ** power * np.exp(count * x - np.exp(1 + x) + np.e - strength * abs(x))

        mass, first = (
            sum(integrate.quad(density, *ends, args=(power,))[0] for ends in ((-30, 0), (0, 9)))
            for power in (0, 1)
        )
        score += 2 * (strength * first / mass - 1)
        if k < 3:

            def signed(x, count=count):
                return x * density(x, 0, count)

            mean = sum(integrate.quad(signed, *ends)[0] for ends in ((-30, 0), (0, 9))) / mass
            assert problem.answer.x_mean[k] == pytest.approx(mean, abs=1e-6)
    assert abs(score * problem.answer.theta_stderr) < 1e-5


@pytest.mark.parametrize(
    "name", ["tv-signal", "tv-image", "tv-mask", "nuclear-denoising", "nuclear-completion"]
)
def test_moments_of_a_strength_satisfy_the_identity_of_the_maximum(problems, name):
    r"""Integration by parts: E[x . grad g1] + t E[R] = d, and t E[R] is the degrees at the maximum.

    Where each pixel is observed by itself the first term needs means and standard deviations only.
    The error of a sum is at most the sum of the errors; five of them are a rate below 6e-7.
    """
    problem = problems[name]
    y, noise, answer = problem.data["y"], float(problem.data["noise"]), problem.answer
    seen = problem.data.get("seen", np.ones_like(y))
    mean, sd = answer.x_mean, answer.x_sd
    excess = np.sum(seen * (sd**2 + mean**2 - y * mean)) / noise**2 - name.startswith("tv")
    slack = np.sum(seen * (np.abs(2 * mean - y) * answer.x_mean_error + 2 * sd * answer.x_sd_error))
    # The excess is the score of theta: times its variance, it is an error of theta.
    error = slack / noise**2 * answer.theta_stderr**2 + answer.theta_error
    assert abs(excess) * answer.theta_stderr**2 < 5 * error
    # So that the test can fail: with another mask, the excess is 14 standard errors and more.
    assert error < 0.25 * answer.theta_stderr


def test_the_lasso_agrees_with_a_sampler_of_another_kind(problems):
    """One coefficient at a time: its conditional is a normal density on either side of 0.

    400 chains start from a rough copy of the posterior. Each bound is six standard errors of the
    mean over the chains and of the stored answer together: with 16 of them, a right answer fails
    with probability 3e-8.
    """
    problem = problems["lasso"]
    features, y = problem.data["features"], problem.data["y"]
    answer, chains, sweeps = problem.answer, 400, 60
    rng = np.random.default_rng(0)
    strength = float(np.exp(-2 * answer.theta))
    x = answer.x_mean + answer.x_sd * rng.standard_normal((chains, 15))
    total, size = np.zeros((chains, 15)), np.zeros(chains)
    residual = y - x @ features.T
    for sweep in range(-20, sweeps):
        for k in range(15):
            column = features[:, k]
            precision = column @ column
            residual = residual + np.outer(x[:, k], column)
            centre = residual @ column / precision
            x[:, k] = two_sided(centre, precision, strength, rng)
            residual = residual - np.outer(x[:, k], column)
        if sweep >= 0:
            total += x / sweeps
            size += np.abs(x).sum(1) / sweeps
    error = np.hypot(total.std(0) / np.sqrt(chains), answer.x_mean_error)
    assert np.max(np.abs(total.mean(0) - answer.x_mean) / error) < 6
    # The score of theta, 2 (t |x|_1 - d), divided by the information, is an error of theta.
    scores = 2 * (strength * size - 15) * answer.theta_stderr**2
    error = np.hypot(scores.std() / np.sqrt(chains), answer.theta_error)
    assert abs(scores.mean()) < 6 * error
    assert error < 0.1 * answer.theta_stderr  # so that the test can fail


def two_sided(centre, precision, strength, rng):
    """A draw from exp(-precision (x - centre)²/2 - strength |x|)."""
    sd = precision**-0.5
    means = centre - strength / precision, centre + strength / precision
    logs = [
        stats.norm.logcdf(sign * mean / sd) + precision * mean**2 / 2
        for sign, mean in zip((1, -1), means, strict=True)
    ]
    right = rng.uniform(size=centre.shape) < 1 / (1 + np.exp(logs[1] - logs[0]))
    mean = np.where(right, means[0], -means[1])  # reflected: the draw is positive in both
    tail = stats.norm.sf(-mean / sd)
    draw = mean + sd * stats.norm.isf(tail * rng.uniform(size=centre.shape))
    return np.where(right, draw, -draw)
