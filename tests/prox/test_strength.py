"""Learned strengths: the first root from theta, no overflow, and the numbers of erratum E4."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prox_brute import anisotropic_prox, total_variation
from scipy import special

from pipla import prox
from pipla.prox.base import Iterative, Solution

solve = jax.jit(lambda term, *at: term.prox(*at))
value_of = jax.jit(lambda term, *at: term.value(*at))


def equation(u0, theta, amplitudes, lam_theta, lam_x, rate, degrees):
    """lam_theta times the derivative of the reduced objective, at an array of u0."""
    with np.errstate(over="ignore", invalid="ignore"):
        w = np.exp(rate * u0)
        rest = np.sum(np.maximum(amplitudes[:, None] - lam_x * w, 0), axis=0)
        product = np.where(rest > 0, w * rest, 0.0)
    return u0 - theta + rate * lam_theta * (product - degrees)


def assert_first_root(u0, theta, amplitudes, lam_theta, lam_x, rate, degrees):
    args = (theta, amplitudes, lam_theta, lam_x, rate, degrees)
    ends = equation(np.array([theta, u0]), *args)
    scale = abs(rate) * lam_theta * (degrees + np.exp(rate * u0) * np.sum(amplitudes)) + abs(
        u0 - theta
    )
    assert abs(ends[1]) <= 1e-7 * scale
    between = theta + (u0 - theta) * np.concatenate(
        [np.linspace(0, 1, 4001)[:-1], 1 - np.logspace(-1, -6, 200)]
    )
    # Nowhere between theta and the root has the derivative changed sign.
    assert np.all(np.sign(ends[0]) * equation(between, *args) >= -1e-9 * scale)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(-1.5, 1.5),
    st.floats(-3, 1),
    st.floats(-3, 1),
    st.sampled_from(["scale", "plain", "normalised"]),
)
def test_returns_the_first_root_met_from_theta(seed, theta, log_lt, log_lx, kind):
    # 2 d lam_theta from 0.002 to 20: from a single root, through double roots, to collapse.
    rng = np.random.default_rng(seed)
    x = rng.laplace(size=20)
    if rng.random() < 0.3:
        x = np.round(x)
    rate, normalised = {"scale": (-2.0, True), "plain": (1.0, False), "normalised": (1.0, True)}[
        kind
    ]
    lam_theta, lam_x = 10**log_lt / 20, 10**log_lx
    term = prox.Strength(prox.L1(), rate=rate, normalised=normalised)
    u0, u = solve(term, theta, jnp.asarray(x), lam_theta, lam_x)
    assert_first_root(
        float(u0), theta, np.abs(x), lam_theta, lam_x, rate, 20.0 if normalised else 0.0
    )
    expected = np.sign(x) * np.maximum(np.abs(x) - lam_x * np.exp(rate * float(u0)), 0)
    np.testing.assert_allclose(u, expected, atol=1e-12)


def test_survives_a_double_root():
    # Raise lam_x until the root next to theta merges with its neighbour and vanishes: on both
    # sides of the jump, and within 1e-9 of it, the answer is still the first root.
    x, theta, lam_theta, rate = np.random.default_rng(0).laplace(size=50), 0.0, 0.08, -2.0

    def find(lam_x):
        return float(solve(prox.LaplaceScale(), theta, jnp.asarray(x), lam_theta, lam_x)[0])

    lams = np.linspace(0.1, 1.0, 200)
    path = np.array([find(lam) for lam in lams])
    for lam, root in zip(lams, path, strict=True):
        assert_first_root(root, theta, np.abs(x), lam_theta, lam, rate, 50.0)
    jump = int(np.argmax(np.abs(np.diff(path))))
    assert abs(path[jump + 1] - path[jump]) > 0.2
    low, high = lams[jump], lams[jump + 1]
    near, far = path[jump], path[jump + 1]
    while high - low > 1e-9:
        middle = (low + high) / 2
        if abs(find(middle) - near) < abs(find(middle) - far):
            low, near = middle, find(middle)
        else:
            high, far = middle, find(middle)
    for lam in (low - 1e-6, low, high, high + 1e-6):
        assert_first_root(find(lam), theta, np.abs(x), lam_theta, lam, rate, 50.0)


def test_prefers_its_own_basin_to_a_deeper_collapsed_one():
    x, theta, lam_theta, lam_x = np.random.default_rng(1).laplace(size=50), 0.0, 0.08, 0.15
    term = prox.LaplaceScale()

    def objective(u0, u):
        quadratic = (u0 - theta) ** 2 / (2 * lam_theta) + np.sum((u - x) ** 2) / (2 * lam_x)
        return float(term.value(jnp.asarray(u0), jnp.asarray(u))) + quadratic

    u0, u = solve(term, theta, jnp.asarray(x), lam_theta, lam_x)
    collapsed = objective(theta - 2 * 50 * lam_theta, np.zeros(50))
    assert collapsed < objective(float(u0), np.asarray(u))
    assert abs(float(u0)) < 0.4 < 2 * 50 * lam_theta


def test_erratum_4_the_published_sign_is_wrong():
    theta, lam, values = 0.2, 0.1, np.array([2.5, 1.2, 0.5])
    x = jnp.diag(values)
    exact, _ = solve(prox.NuclearStrength(), theta, x, lam, lam)
    total = np.sum(np.maximum(values - lam * np.exp(theta), 0))
    one_step = theta - special.lambertw(lam * np.exp(theta) * total).real
    published, _ = solve(prox.NuclearStrength(approximation="published"), theta, x, lam, lam)
    assert float(exact) == pytest.approx(-0.142, abs=5e-4)
    assert one_step == pytest.approx(-0.135, abs=5e-4)
    assert float(published) == pytest.approx(0.535, abs=5e-4)


@pytest.mark.parametrize("product", [1.0, 1e2, 1e5])
@pytest.mark.parametrize("theta", [-20.0, -1.0, 0.0, 30.0])
@pytest.mark.parametrize("lam_x", [1e-6, 1.0, 1e5])
def test_laplace_scale_never_overflows_in_float32(product, theta, lam_x):
    x = np.random.default_rng(0).laplace(size=200).astype(np.float32)
    x[::7] = 0
    at = (theta, jnp.asarray(x), product / 200, lam_x)
    for approximation in (None, "published"):
        u0, u = solve(prox.LaplaceScale(approximation=approximation), *at)
        assert u0.dtype == u.dtype == jnp.float32
        assert np.isfinite(u0)
        assert np.all(np.isfinite(u))
    single, _ = solve(prox.LaplaceScale(), *at)
    double, _ = solve(prox.LaplaceScale(), theta, jnp.asarray(x, jnp.float64), product / 200, lam_x)
    assert float(single) == pytest.approx(float(double), rel=1e-4, abs=1e-4)


def test_a_weight_is_a_shift_of_theta():
    x = jnp.asarray(np.random.default_rng(0).laplace(size=12))
    heavy = solve(prox.Strength(prox.L1(3.0), rate=-2.0), 0.3, x, 0.01, 0.1)
    shift = np.log(3.0) / -2.0
    plain = solve(prox.Strength(prox.L1(), rate=-2.0), 0.3 + shift, x, 0.01, 0.1)
    assert float(heavy[0]) == pytest.approx(float(plain[0]) - shift, abs=1e-12)
    np.testing.assert_allclose(heavy[1], plain[1], atol=1e-12)


def test_a_normalised_nuclear_strength_is_that_of_the_singular_values():
    values = np.array([2.0, 1.0, 0.2])
    nuclear = solve(prox.NuclearStrength(normalised=True), 0.3, jnp.diag(values), 0.02, 0.1)
    plain = solve(prox.Strength(prox.L1(), degrees=9), 0.3, jnp.asarray(values), 0.02, 0.1)
    assert float(nuclear[0]) == pytest.approx(float(plain[0]), abs=1e-12)
    np.testing.assert_allclose(np.diag(nuclear[1]), plain[1], atol=1e-12)


def test_degrees_replace_the_number_of_elements():
    x = jnp.asarray(np.random.default_rng(0).laplace(size=12))
    term = prox.Strength(prox.L1(), degrees=7)
    assert float(term.value(0.4, x)) == pytest.approx(np.exp(0.4) * np.sum(np.abs(x)) - 7 * 0.4)
    u0, _ = solve(term, 0.4, x, 0.02, 0.1)
    assert_first_root(float(u0), 0.4, np.abs(np.asarray(x)), 0.02, 0.1, 1.0, 7.0)


class CountingL1(Iterative):
    """The l1 norm pretending to be iterative; its warm start counts the solves."""

    uses_theta = False
    weight: float = eqx.field(static=True, default=1.0)

    def value(self, theta, x):
        return jnp.sum(jnp.abs(x))

    def warm_start(self, theta, x):
        return jnp.zeros((), jnp.int32)

    def solve(self, theta, x, lam_theta, lam_x, warm):
        u = jnp.sign(x) * jnp.maximum(jnp.abs(x) - lam_x, 0)
        return Solution(theta, u, warm + 1, jnp.asarray(0.25))


@pytest.mark.parametrize("rate", [-2.0, 1.0])
def test_alternation_with_an_iterative_penalty_finds_the_same_point(rate):
    x = jnp.asarray(np.random.default_rng(3).laplace(size=40))
    start = jax.jit(lambda term, *at: term.solve(*at))
    slow = prox.Strength(CountingL1(), rate=rate, tolerance=1e-12)
    fast = prox.Strength(prox.L1(), rate=rate)
    for lam_theta in (0.0, 1e-3, 5e-3):
        solution = start(slow, 0.2, x, lam_theta, 0.1, jnp.zeros((), jnp.int32))
        expected = solve(fast, 0.2, x, lam_theta, 0.1)
        assert float(solution.theta) == pytest.approx(float(expected[0]), abs=1e-9)
        np.testing.assert_allclose(solution.x, expected[1], atol=1e-9)
        if lam_theta == 0:
            assert int(solution.warm) == 1, "one inner solve is enough when theta does not move"
        else:
            assert 1 < int(solution.warm) <= 20
        # The penalty's gap is of R + |u - x|²/(2 lam w): times w it is one of w R + ...
        assert float(solution.gap) == pytest.approx(0.25 * np.exp(rate * float(solution.theta)))


@pytest.mark.parametrize("lam_theta", [0.0, 1e-4, 3e-3, 3e-2])
def test_total_variation_strength_is_the_first_root(lam_theta):
    x, theta, lam_x = np.random.default_rng(0).normal(size=(4, 5)).cumsum(axis=1), 0.5, 0.2
    term = prox.TVStrength(tolerance=1e-11, max_iterations=5000)
    u0, u = solve(term, theta, jnp.asarray(x), lam_theta, lam_x)
    reference = anisotropic_prox(x, lam_x * np.exp(float(u0)))
    np.testing.assert_allclose(u, reference, atol=1e-5)

    def derivative(at):
        rest = total_variation(anisotropic_prox(x, lam_x * np.exp(at)))
        return at - theta + lam_theta * (np.exp(at) * rest - x.size)

    assert abs(derivative(float(u0))) <= 1e-6
    between = theta + (float(u0) - theta) * np.linspace(0, 0.98, 8)
    assert all(np.sign(derivative(theta)) * derivative(at) >= 0 for at in between)
    assert (float(u0) == theta) == (lam_theta == 0)


def test_total_variation_strength_value_is_of_the_same_kind_as_its_prox():
    x = np.random.default_rng(0).normal(size=(3, 4))
    for isotropic in (False, True):
        term = prox.TVStrength(isotropic=isotropic)
        expected = np.exp(0.3) * total_variation(x, None, isotropic) - 12 * 0.3
        assert float(value_of(term, 0.3, jnp.asarray(x))) == pytest.approx(expected)
        alone = prox.TotalVariation(np.exp(0.3), isotropic=isotropic)
        np.testing.assert_allclose(
            solve(term, 0.3, jnp.asarray(x), 0.0, 0.5)[1],
            solve(alone, None, jnp.asarray(x), 0.0, 0.5)[1],
            atol=1e-12,
        )


def test_a_weight_that_overflows_leaves_no_nan_where_the_penalty_vanishes():
    zeros = jnp.zeros((3, 3), jnp.float32)
    theta = jnp.float32(100.0)  # e^100 is infinite
    assert float(value_of(prox.NuclearStrength(), theta, zeros)) == 0
    derivative = jax.grad(prox.TVStrength().value)(theta, zeros)
    np.testing.assert_allclose(derivative, -9.0)
    small = jnp.asarray(np.random.default_rng(0).laplace(size=300) * 0.1, jnp.float32)
    envelope = prox.LaplaceScale().envelope(jnp.float32(-1), small, 1.0, 0.1)
    assert np.isfinite(envelope)


@pytest.mark.parametrize("native", [True, False])
def test_total_variation_strength_that_leaps_flattens_the_image(native):
    # One step multiplies the strength by thousands: the dual of the weak one is no start.
    x = 0.5 + 0.01 * np.random.default_rng(0).normal(size=(32, 32))
    term = prox.TVStrength(native=native)
    for dtype in (jnp.float32, jnp.float64):
        image = jnp.asarray(x, dtype)
        theta, u = solve(term, dtype(0), image, 0.1, 0.1)
        assert 10 < float(theta) <= 0.1 * x.size
        np.testing.assert_allclose(u, x.mean(), atol=1e-3)
        theta, u = solve(term, dtype(0), jnp.zeros_like(image), 0.1, 0.1)
        np.testing.assert_allclose(theta, 0.1 * x.size, rtol=1e-5)
        assert not np.any(u)


def test_a_strength_without_normaliser_says_how_to_get_a_closed_form():
    with pytest.raises(TypeError, match="normalised=True"):
        prox.NuclearStrength().closed_form(jnp.zeros(()), jnp.ones((2, 3, 3)))
