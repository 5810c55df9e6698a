"""The Gaussian likelihood: gradient, flow, proximal map and noise against dense linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import pipla
from pipla.operators import Dense, Identity, Mask, blur, convolution

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
}
operators = pytest.mark.parametrize(("operator", "shape"), OPERATORS.values(), ids=OPERATORS.keys())


def dense(operator, shape):
    """The matrix of an operator, column by column."""
    size = int(np.prod(shape))
    units = jnp.asarray(np.eye(size)).reshape(size, *shape)
    return np.asarray(jax.vmap(operator.apply)(units)).reshape(size, -1).T


def case(operator, shape):
    matrix = dense(operator, shape)
    y = RNG.normal(size=matrix.shape[0])
    seen = jax.eval_shape(operator.apply, jnp.zeros(shape)).shape
    return matrix, y, pipla.GaussianLikelihood(operator, y.reshape(seen), SIGMA)


@operators
def test_the_value_and_its_gradient(operator, shape):
    matrix, y, likelihood = case(operator, shape)
    x = RNG.normal(size=shape)
    residual = matrix @ x.ravel() - y
    value, slope = jax.value_and_grad(lambda x: likelihood(None, x))(jnp.asarray(x))
    assert float(value) == pytest.approx(residual @ residual / (2 * SIGMA**2))
    np.testing.assert_allclose(slope.ravel(), matrix.T @ residual / SIGMA**2, atol=1e-10)


@operators
@pytest.mark.parametrize("time", [1e-6, 0.3, 50.0])
def test_the_flow_has_the_mean_and_covariance_of_the_diffusion(operator, shape, time):
    matrix, y, likelihood = case(operator, shape)
    stiffness = matrix.T @ matrix / SIGMA**2
    size = len(stiffness)
    x = RNG.normal(size=shape)
    # dX = -(AX - b) dt + sqrt(2) dW, from the block exponential (Van Loan 1978).
    block = np.block([[-stiffness, 2 * np.eye(size)], [np.zeros_like(stiffness), stiffness.T]])
    moved = scipy.linalg.expm(block * time) if time < 1 else None
    decay = scipy.linalg.expm(-stiffness * time)
    values, vectors = np.linalg.eigh(stiffness)
    safe = np.where(values > 1e-12, values, 1.0)
    gain = np.where(values > 1e-12, -np.expm1(-safe * time) / safe, time)
    mean = decay @ x.ravel() + vectors @ (gain * (vectors.T @ (matrix.T @ y / SIGMA**2)))
    flowed = likelihood.flow(None, jnp.asarray(x), jnp.asarray(time), jnp.zeros(shape))
    np.testing.assert_allclose(flowed.ravel(), mean, atol=1e-9)
    # The push sqrt(2h) xi enters linearly: its matrix times itself is the covariance.
    units = jnp.asarray(np.eye(size)).reshape(size, *shape) * np.sqrt(2 * time)
    at_rest = jax.vmap(lambda u: likelihood.flow(None, jnp.asarray(x), jnp.asarray(time), u))(units)
    spread = (np.asarray(at_rest).reshape(size, size) - mean).T
    covariance = spread @ spread.T
    if moved is not None:
        np.testing.assert_allclose(covariance, moved[:size, size:] @ decay.T, atol=1e-9)
    double = np.where(values > 1e-12, -np.expm1(-2 * safe * time) / safe, 2 * time)
    np.testing.assert_allclose(covariance, (vectors * double) @ vectors.T, atol=1e-8)


@operators
def test_the_resolvent_is_the_proximal_map(operator, shape):
    matrix, y, likelihood = case(operator, shape)
    x, lam = RNG.normal(size=shape), 0.4
    left = np.eye(matrix.shape[1]) + lam * matrix.T @ matrix / SIGMA**2
    expected = np.linalg.solve(left, x.ravel() + lam * matrix.T @ y / SIGMA**2)
    found = likelihood.resolvent(None, jnp.asarray(x), jnp.asarray(lam))
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-10)


@operators
def test_the_stiffness_is_that_of_power_iteration(operator, shape):
    _, _, likelihood = case(operator, shape)
    model = pipla.Model(likelihood)
    theta, x = jnp.zeros(()), jnp.zeros((1, *shape))
    measured = pipla.tuning.suggest(model, theta, x, theta_scale=1.0).curvature.largest
    assert float(likelihood.stiffness(None)) == pytest.approx(float(measured), rel=1e-3)


def test_learned_noise_has_its_maximiser_in_closed_form():
    likelihood = pipla.GaussianLikelihood(Identity(), RNG.normal(size=(3, 4)), None, theta="noise")
    theta = {"noise": jnp.asarray(0.3), "strength": jnp.asarray(1.0)}
    cloud = jnp.asarray(RNG.normal(size=(6, 3, 4)))
    best = likelihood.closed_form(theta, cloud)

    def mean(theta):
        return jnp.mean(jax.vmap(lambda x: likelihood(theta, x))(cloud))

    slope = jax.grad(mean)(best)
    assert float(slope["noise"]) == pytest.approx(0.0, abs=1e-10)
    assert float(jax.grad(mean)(theta)["noise"]) != pytest.approx(0.0, abs=1e-3)
    assert best["strength"] == theta["strength"]
    assert float(likelihood.std(best)) == pytest.approx(float(jnp.exp(best["noise"])))


def test_float32_stays_float32():
    likelihood = pipla.GaussianLikelihood(convolution(blur.box(3), (5, 6)), np.ones((5, 6)), SIGMA)
    x = jnp.ones((5, 6), jnp.float32)
    time = jnp.asarray(0.1, jnp.float32)
    assert likelihood(None, x).dtype == jnp.float32
    assert likelihood.flow(None, x, time, x).dtype == jnp.float32
    assert likelihood.resolvent(None, x, time).dtype == jnp.float32


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: pipla.GaussianLikelihood(np.eye(3), np.ones(3), 1.0), TypeError, "operator"),
        (lambda: pipla.GaussianLikelihood(Identity(), np.ones(3), -1.0), ValueError, "noise"),
        (
            lambda: pipla.GaussianLikelihood(Identity(), [1.0, np.nan], 1.0),
            ValueError,
            "observations",
        ),
        (
            lambda: pipla.GaussianLikelihood(Mask(np.ones((1, 4))), np.ones((4, 1)), 1.0),
            ValueError,
            "observations have shape",
        ),
    ],
)
def test_bad_arguments_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()
