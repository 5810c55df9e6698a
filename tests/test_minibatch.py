"""Minibatches: the order of an epoch, unbiased estimates, control variates, runs and files."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.algorithms.wrappers.minibatch import shuffled
from pipla.models.likelihoods import Gaussian, Logistic

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(3)
COUNT, FEATURES = 60, 3
MATRIX = RNG.normal(size=(COUNT, FEATURES))
LABELS = RNG.uniform(size=COUNT) < 1 / (1 + np.exp(-MATRIX @ [1.0, -0.5, 0.2]))
THETA = jnp.asarray(0.3)
PARTICLES = jnp.asarray(RNG.normal(size=(4, FEATURES)))
SCHEME = pipla.PIPGLA(0.02, theta_scale=0.3)


# A location whose prox is a formula: these tests are about the likelihood.


def logistic():
    return pipla.Model(Logistic(MATRIX, LABELS), pipla.prox.GaussianLocation())


def by_hand(theta, x, data):
    """The same likelihood as a function."""
    z = data["features"] @ x
    return jnp.sum(jnp.logaddexp(0.0, z) - data["labels"] * z)


def as_function():
    data = {"features": MATRIX, "labels": LABELS.astype(float)}
    return pipla.Model(by_hand, pipla.prox.GaussianLocation(), data)


def run(model, algorithm, num_steps=12, **options):
    start = {"theta": THETA, "particles": PARTICLES} | options
    return pipla.run(
        model, algorithm, num_steps=num_steps, key=jax.random.key(0), check=False, **start
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def orders_of(num_seeds, size, count):
    """The first `size` places of the orders of these many seeds."""

    def one(seed):
        return shuffled(jnp.arange(size), seed, count)

    return jax.vmap(one)(jnp.arange(num_seeds, dtype=jnp.uint32))


@pytest.mark.parametrize("count", [1, 2, 5, 16, 4097])
def test_the_order_of_an_epoch_is_a_permutation(count):
    orders = np.asarray(orders_of(5, count, count))
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(count))
    if count > 16:
        assert len({tuple(order) for order in orders}) == 5


def test_batches_are_as_good_as_random_ones():
    """Sums of a smooth and of a periodic function of the row vary like those of random subsets.

    Variances of 2000 sums have a relative standard deviation of about .032; five of them.
    """
    count, size = 1000, 50
    rows = orders_of(2000, size, count)
    places = np.arange(count)
    for values in (places / count, np.cos(np.pi * places), np.cos(2 * np.pi * places / 8)):
        sums = values[np.asarray(rows)].sum(axis=1)
        variance = size * values.var(ddof=1) * (1 - size / count)
        assert abs(sums.mean() - size * values.mean()) < 5 * np.sqrt(variance / 2000)
        assert abs(sums.var() / variance - 1) < 5 * np.sqrt(2 / 2000)


@pytest.mark.parametrize(("model", "control_variate"), [(logistic, False), (as_function, True)])
def test_a_batch_of_all_observations_is_the_plain_algorithm(model, control_variate):
    options = {"control_variate": control_variate, "data_rows": model is as_function}
    batched = run(model(), pipla.Minibatch(SCHEME, COUNT, **options))
    plain = run(logistic(), SCHEME)
    np.testing.assert_allclose(batched.theta_trace, plain.theta_trace, rtol=1e-10)
    np.testing.assert_allclose(batched.particles, plain.particles, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "control_variate"),
    [(logistic, True), (lambda: pipla.noncentred(scales()).model, False)],
    ids=["control variate", "non-centred"],
)
def test_the_gradients_of_an_epoch_have_the_mean_of_all_data(make, control_variate):
    """Exactly so where batches divide the data: steps so short that nothing moves."""
    model = make()
    scheme = pipla.PIPGLA(1e-14, theta_noise=False)
    algorithm = pipla.Minibatch(scheme, 12, control_variate=control_variate)
    state = algorithm.init(model, THETA, PARTICLES)
    found = []
    step = jax.jit(lambda key, state: algorithm.step(key, state, model))
    for number in range(5):
        state, info = step(jax.random.fold_in(jax.random.key(1), number), state)
        found.append((info.theta_gradient, info.particle_gradient))
    exact = model.gradients(THETA, PARTICLES)
    mean = jax.tree.map(lambda *each: sum(each) / 5, *found)
    np.testing.assert_allclose(mean[0], exact.theta, atol=1e-5)
    np.testing.assert_allclose(mean[1], exact.particles, atol=1e-5)
    spread = jnp.std(jnp.stack([each[1] for each in found]))
    assert spread > 0.1  # they are not all of the same batch


def test_symmetric_batches_come_back_in_reverse():
    """Steps so short that nothing moves: gradients tell the batches apart."""
    model = logistic()
    algorithm = pipla.Minibatch(pipla.PIPGLA(1e-14, theta_noise=False), 12, symmetric=True)
    state = algorithm.init(model, THETA, PARTICLES)
    step = jax.jit(lambda key, state: algorithm.step(key, state, model))
    found = []
    for number in range(15):
        state, info = step(jax.random.fold_in(jax.random.key(1), number), state)
        found.append(np.asarray(info.particle_gradient))
    first, second, third = found[:5], found[5:10], found[10:]
    np.testing.assert_allclose(second, first[::-1], atol=1e-4)
    np.testing.assert_allclose(sum(third), sum(first), atol=1e-4)  # all data once more,
    for one in first:
        assert np.abs(third[0] - one).max() > 0.01  # in other batches


def scales():
    """A learned scale that is not normalised: its non-centred form has a remainder."""
    term = pipla.prox.Strength(pipla.prox.L1(), degrees=2.0)
    return pipla.Model(Logistic(MATRIX, LABELS), term)


def test_a_control_variate_removes_the_noise_at_the_reference():
    """Where all particles are at their mean, every batch has the gradient of all data."""
    model, together = logistic(), jnp.tile(PARTICLES[:1], (4, 1))
    for control_variate, noise in ((True, 0.0), (False, 1.0)):
        algorithm = pipla.Minibatch(SCHEME, 7, control_variate=control_variate)
        state = algorithm.init(model, THETA, together)
        step = jax.jit(lambda key, state, algorithm=algorithm: algorithm.step(key, state, model))
        _, info = step(jax.random.key(2), state)
        error = info.particle_gradient - model.gradients(THETA, together).particles
        assert (jnp.max(jnp.abs(error)) > 1e-9) == bool(noise)


def test_left_over_observations_change_with_the_epoch():
    """60 observations in batches of 25: ten are left out of each epoch, not always the same."""
    seen = np.zeros(COUNT)
    np.add.at(seen, np.asarray(orders_of(30, 50, COUNT)), 1)
    assert seen.min() > 10  # in the mean 25, with standard deviation 2: 1e-13 for each
    assert seen.max() < 31


def test_a_gaussian_likelihood_has_rows_that_add_up():
    observed = MATRIX @ [1.0, 2.0, 3.0]
    noises = RNG.uniform(0.5, 2.0, COUNT)
    x = PARTICLES[0]
    for noise in (0.7, noises, None):
        whole = Gaussian(pipla.operators.Dense(MATRIX), observed, noise)
        parts = [whole.rows(jnp.asarray(part)) for part in np.arange(COUNT).reshape(3, -1)]
        total = sum(part(THETA, x) for part in parts)
        np.testing.assert_allclose(total, whole(THETA, x))
        assert parts[0].closed_form(THETA, PARTICLES) is not None
    assert Gaussian(pipla.operators.Identity(), observed, 1.0).num_rows() is None


def test_saved_resumed_and_swept(tmp_path):
    model, algorithm = logistic(), pipla.Minibatch(SCHEME, 25, control_variate=True)
    whole = run(model, algorithm, 11, burn_in=2)
    run(model, algorithm, 4, burn_in=2).save(tmp_path / "part")
    more = pipla.resume(tmp_path / "part", model, num_steps=7)
    np.testing.assert_array_equal(more.theta_trace, whole.theta_trace)
    np.testing.assert_array_equal(more.particles, whole.particles)
    sizes = pipla.Minibatch(pipla.PIPGLA(np.asarray([0.02, 0.01]), theta_scale=0.3), 25)
    swept = pipla.sweep(
        model,
        sizes,
        theta=THETA,
        particles=PARTICLES,
        num_steps=11,
        key=jax.random.key(0),
    )
    assert np.all(np.isfinite(swept.theta))
    assert np.ptp(swept.theta) > 0


def test_with_missing_numbers_and_inside_other_wrappers():
    model = pipla.noncentred(logistic()).model
    for algorithm in (
        pipla.Minibatch(pipla.PIPGLA(theta_scale="auto"), 20),
        pipla.Minibatch(pipla.Adaptive(pipla.PIPGLA(1.0, theta_noise=False)), 20),
    ):
        result = run(model, algorithm, 30)
        assert np.all(np.isfinite(result.theta_trace)), algorithm.label
        assert np.ptp(result.theta_trace) > 0


def test_the_gradient_noise_widens_x_as_stated():
    r"""Gaussian observations of x itself: Var x is $1 + \gamma h n/(2|B|)$ = 21 times too large.

    All particles see the same batches, so that only time averages: 20000 steps with a correlation
    of 5 give the variance to 2.2 %. Five times that is 11 %; that the batches of an epoch (200
    steps) are disjoint takes off some 5 % more.
    """
    count, size, step = 400, 2, 0.2
    data = np.random.default_rng(0).normal(size=count)
    data = (data - data.mean()) / data.std()
    likelihood = Gaussian(pipla.operators.Dense(np.ones((count, 1))), data, 1.0)
    scheme = pipla.MYULA(step / count, smoothing=1.0)
    variance = {}
    for name, algorithm in (("all", scheme), ("batch", pipla.Minibatch(scheme, size))):
        result = pipla.run(
            pipla.Model(likelihood),
            algorithm,
            theta=0.0,
            particles=jnp.zeros((10, 1)),
            num_steps=40_000,
            key=jax.random.key(0),
            check=False,
        )
        variance[name] = float(result.x_variance[0])
    assert variance["all"] * count == pytest.approx(1 / (1 - step / 2), rel=0.05)
    assert variance["batch"] / variance["all"] == pytest.approx(21, rel=0.2)


@pytest.mark.parametrize(
    ("model", "algorithm", "message"),
    [
        (as_function, lambda: pipla.Minibatch(SCHEME, 5), "data_rows=True"),
        (logistic, lambda: pipla.Minibatch(SCHEME, 61), "at most the 60 observations, got 61"),
        (logistic, lambda: pipla.Minibatch(SCHEME, 5, data_rows=True), "leading axis"),
        (logistic, lambda: pipla.Minibatch(SCHEME, 0), "size"),
        (logistic, lambda: pipla.Minibatch(3.0, 5), "scheme must be an algorithm"),
        (logistic, lambda: pipla.Minibatch(pipla.MetropolisAdjusted(0.1), 5), "whole likelihood"),
    ],
)
def test_errors_name_the_argument(model, algorithm, message):
    with pytest.raises((TypeError, ValueError), match=message):
        run(model(), algorithm())
