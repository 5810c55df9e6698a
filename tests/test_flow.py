"""RPL, SK-ROCK, SAPG and closed-form theta against an exact maximiser; the MAP against scipy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
from scipy.special import log_ndtr

import pipla
from pipla.algorithms.skrock import _coefficients
from pipla.operators import Identity, Mask, blur, convolution
from pipla.prox import L1, NonNegative, TVStrength, UniformBox
from pipla.prox.strength import Strength

pytestmark = pytest.mark.slow

SIGMA, STRENGTH, SIZE = 1.0, 0.8, 400


def log_marginal(t, y):
    r"""$\log \int N(y; x, \sigma^2)\,\frac t2 e^{-t|x|}\,dx$, by two normal tails."""
    up = t * y + log_ndtr(-(y / SIGMA + t * SIGMA))
    down = -t * y + log_ndtr(y / SIGMA - t * SIGMA)
    return np.log(t / 2) + t**2 * SIGMA**2 / 2 + np.logaddexp(up, down)


@functools.cache
def denoising():
    """Laplace latents of unknown strength behind Gaussian noise: the maximiser is exact."""
    rng = np.random.default_rng(3)
    y = rng.laplace(0, 1 / STRENGTH, SIZE) + SIGMA * rng.standard_normal(SIZE)
    best = scipy.optimize.minimize_scalar(
        lambda theta: -log_marginal(np.exp(theta), y).sum(), bracket=(-2, 1), tol=1e-10
    )
    model = pipla.Model(pipla.likelihoods.Gaussian(Identity(), y, SIGMA), Strength(L1()))
    return model, jnp.asarray(y), best.x


def learn(algorithm, steps, particles=20, seed=0, burn_in=None):
    model, y, _ = denoising()
    return pipla.run(
        model,
        algorithm,
        theta=jnp.zeros(()),
        particles=jnp.tile(y, (particles, 1)),
        num_steps=steps,
        burn_in=burn_in,
        key=jax.random.key(seed),
        check=False,
    )


# The bias of each at these settings is bounded by `bias`; the Monte-Carlo error by 5 sigma.
ALGORITHMS = {
    "RPL": (lambda: pipla.RPL(0.03), 3000, 0.02),
    "RPL gradient": (
        lambda: pipla.RPL(0.03, theta_update="gradient", theta_scale=2 / SIZE),
        3000,
        0.02,
    ),
    "RPL independent": (lambda: pipla.RPL(0.03, antithetic=False), 3000, 0.02),
    "exponential PIPGLA": (lambda: pipla.RPL(0.01, reflected=False), 4000, 0.03),
    "MYIPLA closed form": (
        lambda: pipla.MYIPLA(0.02, 0.02, theta_update="closed-form"),
        6000,
        0.05,
    ),
    "PIPGLA closed form": (
        lambda: pipla.PIPGLA(0.02, theta_update="closed-form", antithetic=True),
        6000,
        0.05,
    ),
    "SKROCK": (
        lambda: pipla.SKROCK(0.2, 0.02, num_stages=5, theta_scale=5 / SIZE),
        2000,
        0.05,
    ),
    "SKROCK closed form": (
        lambda: pipla.SKROCK(0.2, 0.02, num_stages=5, theta_update="closed-form"),
        2000,
        0.05,
    ),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_strength_is_that_of_the_exact_maximiser(name):
    make, steps, bias = ALGORITHMS[name]
    result = learn(make(), steps)
    *_, best = denoising()
    assert abs(result.theta - best) < bias + 5 * result.theta_mcse, (result, best)


def test_sapg_finds_it_with_one_chain():
    result = learn(pipla.SAPG(0.02, 0.02, gain=1.0), 20_000, particles=1)
    *_, best = denoising()
    assert abs(result.theta - best) < 0.05 + 5 * result.theta_mcse, (result, best)


def test_the_bias_of_rpl_falls_with_its_step():
    *_, best = denoising()
    errors = []
    for step in (0.4, 0.1):
        result = learn(pipla.RPL(step, first=1.0), 4000, particles=50)
        assert result.theta_mcse < 0.002
        errors.append(abs(result.theta - best))
    # Of first order, four times smaller; Monte-Carlo errors of .002 leave some room.
    assert errors[1] < 0.45 * errors[0], errors


def test_closed_form_theta_minimises_the_mean_potential():
    model, y, _ = denoising()
    cloud = y[None] + jax.random.normal(jax.random.key(1), (5, SIZE))
    best = model.closed_form(jnp.asarray(3.0), cloud)
    slope = jax.grad(lambda t: jnp.mean(jax.vmap(lambda x: model.potential(t, x))(cloud)))(best)
    assert float(slope) == pytest.approx(0.0, abs=1e-9)


def test_the_closed_form_addresses_parts_scales_and_shifts():
    cloud = {"w": jnp.asarray(np.random.default_rng(2).normal(size=(4, 6))), "v": jnp.ones((4, 2))}
    term = Strength(L1()).translate(jnp.full(6, 0.5))
    both = (2.0 * term).on(theta="a", x="w") + Strength(L1(3.0), rate=-2.0).on(theta="b", x="v")
    theta = {"a": jnp.asarray(9.0), "b": jnp.asarray(9.0)}
    best = both.closed_form(theta, cloud)
    slope = jax.grad(lambda t: jnp.mean(jax.vmap(lambda x: both.value(t, x))(cloud)))(best)
    assert max(map(abs, map(float, jax.tree.leaves(slope)))) < 1e-9
    unit = both.time_unit(best, jax.tree.map(lambda leaf: leaf[0], cloud))
    assert float(unit["w"]) == pytest.approx(float(jnp.exp(-2 * best["a"])) / 4)
    assert float(unit["v"]) == pytest.approx(float(jnp.exp(4 * best["b"])) / 9)


def test_rpl_does_not_depend_on_the_units_of_the_image():
    """Pixels in other units are the same run, and the strength scales."""
    y = np.kron(np.eye(3), np.ones((3, 3))) + 0.1 * np.random.default_rng(0).normal(size=(9, 9))
    small = pipla.imaging.restore(y, Identity(), noise=0.1, num_steps=30, maximise=False)
    large = pipla.imaging.restore(1000 * y, Identity(), noise=100.0, num_steps=30, maximise=False)
    np.testing.assert_allclose(large.mean, 1000 * small.mean, rtol=1e-6)
    assert large.strength == pytest.approx(small.strength / 1000, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "algorithm", "error", "words"),
    [
        (
            lambda: denoising()[0],
            lambda: pipla.RPL(theta_update="prox"),
            ValueError,
            "theta_update",
        ),
        (
            lambda: pipla.Model(denoising()[0].smooth, UniformBox()),
            pipla.RPL,
            TypeError,
            "UniformBox has no closed-form theta",
        ),
        (
            lambda: pipla.Model(lambda t, x, d: jnp.sum((x - t) ** 2), Strength(L1())),
            lambda: pipla.MYIPLA(0.1, 0.1, theta_update="closed-form"),
            TypeError,
            "smooth part",
        ),
        (
            lambda: denoising()[0],
            lambda: pipla.SKROCK(0.1, 0.1, theta_update="prox"),
            ValueError,
            "theta_update",
        ),
    ],
)
def test_what_cannot_work_says_so(model, algorithm, error, words):
    model = model()
    shape = model.smooth.observations.shape if hasattr(model.smooth, "observations") else (SIZE,)
    with pytest.raises(error, match=words):
        pipla.run(
            model,
            algorithm(),
            theta=jnp.zeros(()),
            particles=jnp.ones((2, *shape)),
            num_steps=2,
            key=jax.random.key(0),
            check=False,
        )


def test_an_optimiser_and_a_closed_form_exclude_each_other():
    with pytest.raises(ValueError, match="theta_optimizer"):
        pipla.MYPGD(0.1, 0.1, theta_update="closed-form", theta_optimizer=optax.sgd(0.1))


@pytest.mark.parametrize("stages", [2, 5, 10])
def test_skrock_is_stable_up_to_the_step_it_promises(stages):
    """Without noise, on $x' = -Lx$, a step multiplies by a polynomial of modulus at most 1."""
    mu, nu, _ = _coefficients(stages)
    reach = (stages - 0.5) ** 2 * (2 - 4 / 3 * 0.05) - 1.5

    def factor(z):
        before, now = 1.0, 1 - mu[0] * z
        for m, n in zip(mu[1:], nu[1:], strict=True):
            before, now = now, -m * z * now + n * now + (1 - n) * before
        return now

    inside = np.abs([factor(z) for z in np.linspace(1e-3, reach, 2000)])
    assert inside.max() < 1
    # The polynomial is T(w0 - w1 z)/T(w0), and leaves [-1, 1] where its argument does.
    start = 1 + 0.05 / stages**2
    edge = stages * (1 + start) / (2 * nu[0])
    assert edge > reach
    assert abs(factor(1.02 * edge)) > 1
    # Consistency: 1 - z + O(z²).
    assert factor(1e-6) == pytest.approx(1 - 1e-6, abs=1e-11)


@pytest.mark.parametrize("kind", ["splitting", "forward-backward"])
def test_the_map_is_the_minimiser(kind):
    rng = np.random.default_rng(4)
    operator = convolution(blur.box(3), (5, 6))
    if kind == "forward-backward":
        operator = Mask(np.ones((5, 6))) @ operator
    y = rng.normal(size=(5, 6))
    term = TVStrength(tolerance=1e-12, max_iterations=2000)
    model = pipla.Model(pipla.likelihoods.Gaussian(operator, y, 0.3), term)
    theta = jnp.asarray(0.5)
    found = pipla.map_estimate(model, theta, jnp.asarray(y), num_steps=20_000, tolerance=1e-9)
    assert found.converged

    # Smooth |.| with sqrt(. + e²), whose minimum is within e per difference of the true one.
    def rough(x):
        return float(model.potential(theta, jnp.asarray(x.reshape(5, 6))))

    best = scipy.optimize.minimize(
        jax.jit(jax.value_and_grad(lambda v: _smoothed(model, theta, v.reshape(5, 6)))),
        y.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    assert float(found.potential) <= rough(best.x) + 1e-6
    assert float(found.potential) >= best.fun - 49 * 1e-5 * np.exp(0.5)


def _smoothed(model, theta, x):
    differences = (jnp.diff(x, axis=0), jnp.diff(x, axis=1))
    total = sum(jnp.sum(jnp.sqrt(d**2 + 1e-10)) for d in differences)
    return model.smooth_value(theta, x) + jnp.exp(theta) * total - 30 * theta


def test_rpl_keeps_to_a_constraint():
    """Any prox term: here positive x, with the truncated normal as the exact answer."""
    y = np.full(200, -0.5)
    model = pipla.Model(pipla.likelihoods.Gaussian(Identity(), y, 1.0), NonNegative())
    result = pipla.run(
        model,
        pipla.RPL(0.01, theta_update="frozen", first=1.0),
        theta=jnp.zeros(()),
        particles=jnp.ones((20, 200)),
        num_steps=3000,
        key=jax.random.key(0),
        save=pipla.Save(moments_every=1),
    )
    hazard = np.exp(-0.125) / np.sqrt(2 * np.pi) / np.exp(log_ndtr(-0.5))
    assert float(np.mean(result.x_mean)) == pytest.approx(-0.5 + hazard, abs=0.03)
    assert float(jnp.min(result.particles)) >= 0
