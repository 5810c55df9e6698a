"""The scalar equations, against SciPy and against themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from pipla import prox
from pipla.prox._roots.newton import clipped_root, increasing_root
from pipla.prox._roots.strength import strength_root

dtypes = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])

HARD = {
    "cubic": (lambda u: (u**3 - 2, 3 * u**2), 2 ** (1 / 3)),
    # Newton from 3 flies away to ±10^4: only the bracket saves it.
    "arctangent": (lambda u: (jnp.arctan(9 * (u - 0.3)), 9 / (1 + 81 * (u - 0.3) ** 2)), 0.3),
    # Newton cycles between two points forever without the safeguard.
    "cycle": (
        lambda u: (jnp.sign(u - 1) * jnp.sqrt(jnp.abs(u - 1)), 0.5 / jnp.sqrt(jnp.abs(u - 1))),
        1.0,
    ),
    # A derivative that is 0 wherever it does not jump: pure bisection.
    "step": (lambda u: (jnp.where(u < 0.7, -1.0, 1.0), jnp.zeros_like(u)), 0.7),
    "kinked": (
        lambda u: (u + 50 * jnp.clip(u - 2, -0.01, 0.01), jnp.where(abs(u - 2) < 0.01, 51.0, 1.0)),
        0.5,
    ),
}


@dtypes
@pytest.mark.parametrize("name", HARD)
def test_finds_the_root_of_hard_functions(name, dtype):
    function, root = HARD[name]

    def cast(u):
        return tuple(jnp.asarray(part, dtype) for part in function(u))

    bounds = (jnp.asarray(b, dtype) for b in (-10, 10, 3))
    found = increasing_root(cast, *bounds)
    assert found.dtype == dtype
    assert float(found) == pytest.approx(root, rel=8 * float(jnp.finfo(dtype).eps), abs=1e-12)


def test_stays_within_the_bracket_when_the_root_is_outside():
    for start in (0.0, 5.0):
        found = increasing_root(lambda u: (u - 9, jnp.ones_like(u)), 0.0, 5.0, start)
        assert float(found) == pytest.approx(5.0, rel=1e-14)


@pytest.mark.parametrize(("name", "enough"), [("cubic", 9), ("kinked", 4), ("arctangent", 12)])
def test_few_evaluations_where_newton_is_of_use(name, enough):
    function, root = HARD[name]
    found = increasing_root(function, -10.0, 10.0, 3.0, max_iterations=enough)
    assert float(found) == pytest.approx(root, rel=1e-13)


def test_batched_equals_one_by_one():
    targets = jnp.linspace(0.1, 30.0, 11)

    def solve(target):
        return increasing_root(lambda u: (u**3 - target, 3 * u**2), 0.0, 10.0, 4.0)

    batched = jax.vmap(solve)(targets)
    np.testing.assert_allclose(batched, [solve(t) for t in targets], rtol=1e-14)
    np.testing.assert_allclose(batched, targets ** (1 / 3), rtol=1e-14)


@settings(max_examples=300, deadline=None)
@given(
    st.floats(-80, 80),
    st.one_of(st.just(0.0), st.floats(-12, 5).map(lambda e: 10**e), st.floats(-5, 0)),
    st.sampled_from([0.3, 1.0, 2.0]),
)
def test_strength_root_solves_its_equation(log_level, offset, rate):
    root = float(_strength_root(log_level, offset, rate))
    distance = root + offset
    assert distance >= 0

    def equation(log_y):  # y = δ + c
        return log_y + rate * (np.exp(log_y) - offset) - log_level

    if distance > 1e-9 * max(1.0, abs(offset)):
        assert abs(equation(np.log(distance))) <= 1e-13 * (
            1 + abs(log_level) + rate * abs(offset)
        ) + (
            # δ + c is only known to the spacing of floats at c.
            4e-16 * (abs(offset) + abs(root)) * (1 / distance + rate)
        )
    else:
        log_y = optimize.brentq(equation, -1e6, 20)
        assert np.exp(log_y) <= 2e-9 * max(1.0, abs(offset))


_strength_root = jax.jit(strength_root)


@settings(max_examples=300, deadline=None)
@given(st.floats(-60, 60), st.floats(-6, 5), st.sampled_from([0.5, 1.0, 2.0]))
def test_strength_root_keeps_its_digits_in_float32(log_level, exponent, rate):
    at = tuple(np.float32(part) for part in (log_level, 10**exponent, rate))
    single = float(_strength_root(*at))
    double = float(_strength_root(*(np.float64(part) for part in at)))
    # One part in 10^6 of the natural unit 1/k, not of the offset 10^5.
    scale = min(1 / rate * (1 + abs(float(at[0]))) + abs(double), 2 * at[1] + 1 / rate)
    assert abs(single - double) <= 2e-6 * max(scale, abs(double))


def test_strength_root_is_lambert_without_offset():
    arguments = np.logspace(-12, 30, 85)
    found = jax.vmap(lambda z: strength_root(jnp.log(z), jnp.zeros_like(z), jnp.ones_like(z)))(
        jnp.asarray(arguments)
    )
    np.testing.assert_allclose(found, special.lambertw(arguments).real, rtol=4e-15)


@dtypes
def test_strength_root_of_nothing_is_minus_the_offset(dtype):
    for offset in (0.0, 0.3, 1e5):
        root = strength_root(*(jnp.asarray(v, dtype) for v in (-jnp.inf, offset, 2.0)))
        assert float(root) == pytest.approx(-offset)
        assert root.dtype == dtype


# The root in the prox of `LaplaceLocation`. #

_clipped_root = jax.jit(clipped_root)


def differences(seed, shape, dtype, scale=3.0):
    """Half of them rounded: ties, zeros, and terms at a kink."""
    z = scale * np.random.default_rng(seed).laplace(size=shape)
    return jnp.asarray(np.where(np.arange(shape[-1]) % 2, z, np.round(z)), dtype)


@dtypes
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 7, 50, 300]), st.integers(0, 2**32), st.floats(-5, 4), st.floats(-2, 3)
)
def test_clipped_root_solves_its_equation(dtype, d, seed, ratio, scale):
    z, ratio = differences(seed, (d,), dtype, 10**scale), dtype(10**ratio)
    root = np.float64(_clipped_root(z, ratio))
    z, ratio = np.asarray(z, np.float64), np.float64(ratio)
    excess = root - ratio * np.clip(z - root, -1, 1).sum()
    steepness = 1 + ratio * np.sum(np.abs(z - root) < 1 + 1e-3)
    assert abs(excess) <= 8 * jnp.finfo(dtype).eps * (1 + np.abs(root)) * steepness


@dtypes
def test_clipped_root_under_vmap_also_twice_and_with_unbatched_parts(dtype):
    z = differences(1, (4, 3, 20), dtype)
    ratios = jnp.asarray([0.1, 1.0, 3.0, 0.0], dtype)
    roots = jax.jit(jax.vmap(jax.vmap(clipped_root, (0, None))))(z, ratios)
    assert roots.shape == (4, 3)
    assert roots.dtype == dtype
    np.testing.assert_array_equal(roots[3], 0)
    np.testing.assert_allclose(roots[2, 1], _clipped_root(z[2, 1], ratios[2]), rtol=2e-6)


def test_clipped_root_in_half_precision_and_of_an_empty_x():
    z = jnp.asarray([0.5, 9.0], jnp.bfloat16)
    assert _clipped_root(z, jnp.ones((), jnp.bfloat16)) == jnp.bfloat16(0.75)
    assert _clipped_root(jnp.zeros(0), jnp.ones(())) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_clipped_root_ends_whatever_it_is_given(bad):
    z = differences(2, (9,), np.float64)
    _clipped_root(z.at[3].set(bad), jnp.asarray(1.0)).block_until_ready()
    _clipped_root(z, jnp.asarray(bad)).block_until_ready()
    _, x = prox.LaplaceLocation().prox(0.0, z.at[3].set(bad), 0.1, 0.1)
    assert not np.isfinite(x[3])  # so that a run notices


def test_clipped_root_has_the_derivatives_of_its_equation():
    z, ratio, h = differences(3, (12,), np.float64) + 0.013, jnp.asarray(0.7), 1e-6
    gradient = jax.grad(clipped_root, (0, 1))(z, ratio)
    forward = jax.jacfwd(clipped_root)(z, ratio)
    np.testing.assert_allclose(gradient[0], forward, rtol=1e-12)
    for i in range(12):
        step = h * np.eye(12)[i]
        numeric = (_clipped_root(z + step, ratio) - _clipped_root(z - step, ratio)) / (2 * h)
        assert float(gradient[0][i]) == pytest.approx(float(numeric), abs=1e-8)
    numeric = (_clipped_root(z, ratio + h) - _clipped_root(z, ratio - h)) / (2 * h)
    assert float(gradient[1]) == pytest.approx(float(numeric), abs=1e-8)
    assert float(gradient[1]) != 0
