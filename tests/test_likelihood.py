"""The Gaussian likelihood: gradient, flow, proximal map and noise against dense linear algebra."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

import pipla
from pipla.operators import Dense, Identity, Mask, Select, Sparse, blur, convolution
from pipla.operators.eigenbasis import mean_decay

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(1)
SIGMA = 0.7

OPERATORS = {
    "identity": (Identity(), (3, 4)),
    "mask": (Mask(np.array([[1.0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 1]])), (3, 4)),
    "circular": (convolution(blur.box(3), (5, 6)), (5, 6)),
    "circular, odd": (convolution(blur.box(3), (4, 5)), (4, 5)),
    "circular signal": (convolution(np.full(3, 1 / 3), (6,)), (6,)),
    "circular colours": (convolution(blur.box(3), (4, 3, 2), axes=(0, 1)), (4, 3, 2)),
    "renormalised": (convolution(blur.box(3), (5, 4), "renormalised"), (5, 4)),
    "dense": (Dense(RNG.normal(size=(3, 5))), (5,)),
    "dense image": (Dense(RNG.normal(size=(4, 6)), (2, 3)), (2, 3)),
    "select": (Select([0, 5, 3, 5], (2, 3)), (2, 3)),
}
TIMES = np.array([1e-6, 0.3, 50.0])
LAM = 0.4
operators = pytest.mark.parametrize("name", OPERATORS)


def dense(operator, shape):
    """The matrix of an operator, column by column."""
    size = int(np.prod(shape))
    units = jnp.asarray(np.eye(size).reshape(size, *shape))
    return np.asarray(jax.jit(jax.vmap(operator.apply))(units)).reshape(size, -1).T


@eqx.filter_jit
def calls(likelihood, theta, x, times, lam, units):
    """Everything that a likelihood computes, compiled as one program."""

    def value(x):
        return likelihood(theta, x)

    def flow(time, push):
        return likelihood.flow(theta, x, time, push)

    values = {"value": value(x), "gradient": jax.grad(value)(x)}
    if likelihood.basis is None:
        assert likelihood.resolvent(theta, x, lam) is None
        return values | {
            "drift": flow(jnp.asarray(5.0), jnp.zeros_like(x)) - x,
            "stiffness": likelihood.stiffness(theta),
        }
    resolvent = likelihood.resolvent(theta, x, lam)
    # The push is sqrt(2h) xi.
    pushes = jnp.sqrt(2 * times).reshape(-1, *(1,) * units.ndim) * units[None]
    return values | {
        "resolvent": resolvent,
        "gradient there": jax.grad(value)(resolvent),
        "mean": jax.vmap(flow)(times, jnp.broadcast_to(jnp.zeros_like(x), (times.size, *x.shape))),
        "pushed": jax.vmap(jax.vmap(flow, (None, 0)))(times, pushes),
        "stiffness": likelihood.stiffness(theta),
    }


@functools.cache
def case(name):
    """The matrix of an operator, data, x, the likelihood, and what it computes."""
    operator, shape = OPERATORS[name]
    matrix = dense(operator, shape)
    y = RNG.normal(size=matrix.shape[0])
    y *= np.any(matrix, axis=1)  # what is masked does not count
    seen = jax.eval_shape(operator.apply, jnp.zeros(shape)).shape
    likelihood = pipla.likelihoods.Gaussian(operator, y.reshape(seen), SIGMA)
    x = RNG.normal(size=shape)
    units = np.eye(x.size).reshape(x.size, *shape)
    found = calls(likelihood, None, *map(jnp.asarray, (x, TIMES, LAM, units)))
    return matrix, y, x, likelihood, jax.tree.map(np.asarray, found)


@operators
def test_the_value_and_its_gradient(name):
    matrix, y, x, _, found = case(name)
    residual = matrix @ x.ravel() - y
    assert float(found["value"]) == pytest.approx(residual @ residual / (2 * SIGMA**2))
    expected = matrix.T @ residual / SIGMA**2
    np.testing.assert_allclose(found["gradient"].ravel(), expected, atol=1e-10)


@operators
def test_the_flow_has_the_mean_and_covariance_of_the_diffusion(name):
    matrix, y, x, _, found = case(name)
    stiffness = matrix.T @ matrix / SIGMA**2
    size = len(stiffness)
    values, vectors = np.linalg.eigh(stiffness)
    safe = np.where(values > 1e-12, values, 1.0)
    # dX = -(AX - b) dt + sqrt(2) dW, from the block exponential (Van Loan 1978).
    block = np.block([[-stiffness, 2 * np.eye(size)], [np.zeros_like(stiffness), stiffness.T]])
    for time, flowed, pushed in zip(TIMES, found["mean"], found["pushed"], strict=True):
        decay = scipy.linalg.expm(-stiffness * time)
        gain = np.where(values > 1e-12, -np.expm1(-safe * time) / safe, time)
        mean = decay @ x.ravel() + vectors @ (gain * (vectors.T @ (matrix.T @ y / SIGMA**2)))
        np.testing.assert_allclose(flowed.ravel(), mean, atol=1e-9)
        # The push enters linearly: its matrix times itself is the covariance.
        spread = (pushed.reshape(size, size) - mean).T
        covariance = spread @ spread.T
        if time < 1:
            moved = scipy.linalg.expm(block * time)
            np.testing.assert_allclose(covariance, moved[:size, size:] @ decay.T, atol=1e-9)
        double = np.where(values > 1e-12, -np.expm1(-2 * safe * time) / safe, 2 * time)
        np.testing.assert_allclose(covariance, (vectors * double) @ vectors.T, atol=1e-8)


@operators
def test_the_resolvent_is_the_proximal_map(name):
    matrix, y, x, _, found = case(name)
    left = np.eye(matrix.shape[1]) + LAM * matrix.T @ matrix / SIGMA**2
    expected = np.linalg.solve(left, x.ravel() + LAM * matrix.T @ y / SIGMA**2)
    np.testing.assert_allclose(found["resolvent"].ravel(), expected, atol=1e-10)


@operators
def test_the_stiffness_is_the_largest_eigenvalue(name):
    matrix, _, _, _, found = case(name)
    largest = np.linalg.eigvalsh(matrix.T @ matrix / SIGMA**2)[-1]
    assert float(found["stiffness"]) == pytest.approx(largest)


@pytest.mark.parametrize("name", ["circular, odd", "dense image"])
def test_the_stiffness_is_that_of_power_iteration(name):
    _, _, x, likelihood, found = case(name)
    model = pipla.Model(likelihood)
    theta, x = jnp.zeros(()), jnp.zeros((1, *x.shape))
    measured = pipla.tuning.suggest(model, theta, x, theta_scale=1.0).curvature.largest
    assert float(found["stiffness"]) == pytest.approx(float(measured), rel=1e-3)


def test_learned_noise_has_its_maximiser_in_closed_form():
    likelihood = pipla.likelihoods.Gaussian(
        Identity(), RNG.normal(size=(3, 4)), None, theta="noise"
    )
    theta = {"noise": jnp.asarray(0.3), "strength": jnp.asarray(1.0)}
    cloud = jnp.asarray(RNG.normal(size=(6, 3, 4)))
    best = jax.jit(lambda *at: likelihood.closed_form(*at))(theta, cloud)

    @jax.jit
    @jax.grad
    def slope(theta):
        return jnp.mean(jax.vmap(lambda x: likelihood(theta, x))(cloud))

    assert float(slope(best)["noise"]) == pytest.approx(0.0, abs=1e-10)
    assert float(slope(theta)["noise"]) != pytest.approx(0.0, abs=1e-3)
    assert best["strength"] == theta["strength"]
    assert float(likelihood.std(best)) == pytest.approx(float(jnp.exp(best["noise"])))


SEEN = RNG.uniform(size=(30, 40)) < 0.5
MASKS = {
    "mask": (Mask(SEEN), lambda x: x),
    "weights": (Mask(0.5 * SEEN), lambda x: 0.5 * x),
    "row mask": (Mask(SEEN[:, :1]), lambda x: x),
    "masked blur": (
        Mask(SEEN) @ convolution(blur.box(3), SEEN.shape),
        convolution(blur.box(3), SEEN.shape).apply,
    ),
}


@pytest.mark.parametrize(("operator", "apply"), MASKS.values(), ids=MASKS.keys())
def test_learned_noise_counts_what_is_seen(operator, apply):
    # It was .690 for a noise of .997 where half of the entries were masked.
    x = jnp.asarray(RNG.normal(size=SEEN.shape))
    noise = RNG.normal(size=SEEN.shape)
    seen = np.broadcast_to(operator.seen(), SEEN.shape)
    y = np.where(seen, np.asarray(apply(x)) + noise, np.nan)
    likelihood = pipla.likelihoods.Gaussian(operator, y, None)
    best = jax.jit(lambda *at: likelihood.closed_form(*at))(jnp.zeros(()), x[None])
    expected = np.sqrt(np.mean(noise[seen] ** 2))
    assert float(jnp.exp(best)) == pytest.approx(expected, rel=1e-9)
    # The same by the gradient: closed form and value agree.
    slope = jax.jit(jax.grad(lambda *at: likelihood(*at)))(best, x)
    assert float(slope) == pytest.approx(0.0, abs=1e-8)


@eqx.filter_jit
def with_learned_noise(likelihood, theta, x, time):
    return (
        likelihood(theta, x),
        jax.grad(likelihood, argnums=1)(theta, x),
        likelihood.flow(theta, x, time, x),
        likelihood.resolvent(theta, x, time),
        likelihood.closed_form(theta, x[None]),
        likelihood.stiffness(theta),
    )


def test_values_under_the_mask_are_ignored():
    x = jnp.asarray(RNG.normal(size=SEEN.shape))
    y = RNG.normal(size=SEEN.shape)
    found = []
    for hidden in (0.0, 1e6, np.nan):
        likelihood = pipla.likelihoods.Gaussian(Mask(SEEN), np.where(SEEN, y, hidden), None)
        found.append(with_learned_noise(likelihood, jnp.asarray(0.1), x, jnp.asarray(0.3)))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_a_selection_is_a_mask_without_the_missing_entries():
    x = jnp.asarray(RNG.normal(size=SEEN.shape))
    y = RNG.normal(size=SEEN.shape)
    masked, selected = (
        with_learned_noise(
            pipla.likelihoods.Gaussian(*data, None), jnp.asarray(0.1), x, jnp.asarray(0.3)
        )
        for data in ((Mask(SEEN), y), (Select(SEEN), y[SEEN]))
    )
    for one, two in zip(masked, selected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


ROWS = np.array([0.3, 1.0, 2.0])
NOISES = {
    "identity": (Identity(), (3, 4), RNG.uniform(0.3, 2, (3, 4))),
    "identity, per row": (Identity(), (3, 4), ROWS[:, None]),
    "identity, per column": (Identity(), (4, 3), ROWS),
    "mask": (Mask(np.array([[1.0], [0.5], [0.0]])), (3, 4), RNG.uniform(0.3, 2, (3, 4))),
    "select": (Select([0, 3, 3], (2, 2)), (2, 2), ROWS),
    "dense": (Dense(RNG.normal(size=(3, 5))), (5,), ROWS),
    "dense image": (Dense(RNG.normal(size=(3, 6)), (2, 3)), (2, 3), ROWS),
    "sparse": (Sparse(scipy.sparse.csr_array(RNG.normal(size=(3, 5)))), (5,), ROWS),
    "masked blur": (
        Mask(np.ones((5, 6))) @ convolution(blur.box(3), (5, 6)),
        (5, 6),
        RNG.uniform(0.3, 2, (5, 6)),
    ),
}


@pytest.mark.parametrize("name", NOISES)
def test_each_observation_may_have_its_own_noise(name):
    operator, shape, noise = NOISES[name]
    matrix = dense(operator, shape)
    made = jax.eval_shape(operator.apply, jnp.zeros(shape)).shape
    y = RNG.normal(size=made) * np.any(matrix, axis=1).reshape(made)
    likelihood = pipla.likelihoods.Gaussian(operator, y, noise)
    precision = 1 / np.broadcast_to(noise, made).ravel() ** 2
    x = RNG.normal(size=shape)
    residual = matrix @ x.ravel() - y.ravel()
    time = np.array([50.0])
    found = calls(likelihood, None, *map(jnp.asarray, (x, time, LAM, np.zeros((1, *shape)))))
    assert float(found["value"]) == pytest.approx(np.sum(precision * residual**2) / 2)
    expected = matrix.T @ (precision * residual)
    np.testing.assert_allclose(found["gradient"].ravel(), expected, atol=1e-9)
    assert (likelihood.basis is None) == (name in ("masked blur", "sparse"))
    if likelihood.basis is None:
        values, vectors = np.linalg.eigh(matrix.T @ (precision[:, None] * matrix))
        assert values[-1] <= float(found["stiffness"]) * (1 + 1e-9) < 1.05 * values[-1]
        decay = np.asarray(mean_decay(jnp.asarray(5 * np.maximum(values, 0))))
        exact = -5 * vectors @ (decay * (vectors.T @ expected))
        # Polynomials leave 1 % of a standard deviation in the stiffest direction.
        error = np.linalg.norm(found["drift"].ravel() - exact)
        assert error < 0.011 * np.linalg.norm(expected) / values[-1]
        return
    # At the proximal point the gradient and the distance balance.
    balance = LAM * found["gradient there"] + found["resolvent"] - x
    np.testing.assert_allclose(balance, 0.0, atol=1e-9)
    hessian = (matrix.T * precision) @ matrix
    assert float(found["stiffness"]) == pytest.approx(np.linalg.eigvalsh(hessian)[-1])
    expected = scipy.linalg.expm(-50.0 * hessian)
    pulled = np.linalg.pinv(hessian) @ (np.eye(len(hessian)) - expected)
    pulled = pulled @ matrix.T @ (precision * y.ravel())
    np.testing.assert_allclose(found["mean"].ravel(), expected @ x.ravel() + pulled, atol=1e-8)


def test_float32_stays_float32():
    likelihood = pipla.likelihoods.Gaussian(
        convolution(blur.box(3), (5, 6)), np.ones((5, 6)), SIGMA
    )
    x = jnp.ones((5, 6), jnp.float32)
    time = jnp.asarray(0.1, jnp.float32)
    assert likelihood(None, x).dtype == jnp.float32
    assert likelihood.flow(None, x, time, x).dtype == jnp.float32
    assert likelihood.resolvent(None, x, time).dtype == jnp.float32


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: pipla.likelihoods.Gaussian(Identity, np.ones(3), 1.0), TypeError, "operator"),
        (lambda: pipla.likelihoods.Gaussian(Identity(), np.ones(3), -1.0), ValueError, "noise"),
        (
            lambda: pipla.likelihoods.Gaussian(Identity(), [1.0, np.nan], 1.0),
            ValueError,
            "observations",
        ),
        (
            lambda: pipla.likelihoods.Gaussian(Mask(np.zeros(3)), np.ones(3), 1.0),
            ValueError,
            "no data are seen",
        ),
        (
            lambda: pipla.likelihoods.Gaussian(
                Mask(np.zeros((5, 6))) @ convolution(blur.box(3), (5, 6)), np.ones((5, 6)), 1.0
            ),
            ValueError,
            "no data are seen",
        ),
        (
            lambda: pipla.likelihoods.Gaussian(Identity(), np.ones(3), np.ones(4)),
            ValueError,
            r"noise must be one number, or broadcast.*\(3,\)",
        ),
        (
            lambda: pipla.likelihoods.Gaussian(
                convolution(blur.box(3), (5, 6)), np.ones((5, 6)), np.ones((5, 1))
            ),
            ValueError,
            "noise must be one number for CircularConvolution.*Mask",
        ),
        (
            lambda: pipla.likelihoods.Gaussian(Mask(np.ones((1, 4))), np.ones((4, 1)), 1.0),
            ValueError,
            "observations have shape",
        ),
    ],
)
def test_bad_arguments_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_gaussian_takes_matrices_and_sparse_ones_and_learns_its_noise_beside_a_scale():
    """Linear regression as anyone writes it; before, an operator and a dict of parts."""
    scipy_sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 4))
    y = features @ np.array([1.0, 0.0, -2.0, 0.0]) + 0.5 * rng.normal(size=50)
    at = np.ones(4)
    by_operator = pipla.likelihoods.Gaussian(pipla.operators.Dense(features), y, 0.5)(0.0, at)
    for given in (features, scipy_sparse.csr_array(features), features.tolist()):
        found = pipla.likelihoods.Gaussian(given, y, 0.5)(jnp.zeros(()), jnp.asarray(at))
        np.testing.assert_allclose(found, by_operator)
    for wrong, words in ((features[0], "two axes"), (None, "pipla.operators"), ("X", "operator")):
        with pytest.raises((TypeError, ValueError), match=words):
            pipla.likelihoods.Gaussian(wrong, y)
    model = pipla.Model(pipla.likelihoods.Gaussian(features, y), pipla.prox.LaplaceScale())
    fit = pipla.fit(model, theta=0.0, x=np.zeros(4), num_particles=40, max_steps=1500)
    assert set(fit.theta) == {"noise", "prior"}
    residual = y - features @ np.linalg.lstsq(features, y)[0]
    assert np.exp(fit.theta["noise"]) == pytest.approx(np.sqrt(residual @ residual / 46), rel=0.03)
    assert set(fit.parameters) == {"noise: noise sd", "prior: scale"}
    whole = pipla.fit(
        model, theta={"noise": 0.3, "prior": 0.0}, x=np.zeros(4), num_particles=40, max_steps=300
    )
    assert float(whole.theta_trace.fine["noise"][0]) == pytest.approx(0.3)
    assert float(fit.theta_trace.fine["noise"][0]) == pytest.approx(0.5 * np.log(np.mean(y**2)))
