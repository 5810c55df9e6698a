"""Every term of the table against every contract."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prox_table import CONVEX, JOINT, ROWS, THOROUGH, draw

rows = pytest.mark.parametrize("row", ROWS, ids=repr)
thorough_rows = pytest.mark.parametrize("row", THOROUGH, ids=repr)
few_rows = pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.name in ("laplace_location", "laplace_scale", "tv_image", "l1")],
    ids=repr,
)
joint_rows = pytest.mark.parametrize("row", JOINT, ids=repr)
quiet = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


# The term is an argument like any other: other numbers in it compile nothing anew. All contracts
# share `solve`, because compiling is what takes the time; that it equals `prox` is a contract too.
solve_of = jax.jit(lambda term, *at: term.solve(*at, term.warm_start(*at[:2])))
gradient_of = jax.jit(lambda term, *at: term.envelope_gradient(*at))
value_of = jax.jit(lambda term, *at: term.value(*at))


slopes_of = jax.jit(
    lambda term, *at: jax.value_and_grad(lambda *at: term.envelope(*at), argnums=(0, 1, 3))(*at)
)


def prox_of(term, *at):
    return solve_of(term, *at)[:2]


def middle(row):
    return row.sizes[min(1, len(row.sizes) - 1)]


def objective(row, point, at):
    """The objective of the prox, in NumPy float64."""
    (u0, u), (theta, x, lam_theta, lam_x) = point, at
    value = float(value_of(row.term, jnp.asarray(u0), jnp.asarray(u)))
    if lam_theta > 0:
        value += (float(u0) - theta) ** 2 / (2 * lam_theta)
    return value + np.sum((np.asarray(u) - x) ** 2) / (2 * lam_x)


def numbers(at, dtype=jnp.float64):
    return tuple(jnp.asarray(part, dtype) for part in at)


@rows
def test_objective_is_the_brute_force_minimum(row):
    for seed in range(12):
        at = draw(row, seed)
        reached = objective(row, prox_of(row.term, *numbers(at)), at)
        best = row.minimum(*at)
        assert reached == pytest.approx(best, rel=row.accuracy, abs=row.accuracy), (seed, at)


@rows
def test_no_point_nearby_is_better(row):
    rng = np.random.default_rng(0)
    for seed in range(4):
        at = draw(row, seed, d=middle(row))
        u0, u = prox_of(row.term, *numbers(at))
        reached = objective(row, (u0, u), at)
        for size in 10.0 ** np.arange(-6, 0):
            other = np.asarray(u) + size * rng.normal(size=u.shape)
            other0 = float(u0) + size * rng.normal() * row.joint
            slack = 1e-9 * max(1.0, abs(reached))
            assert objective(row, (other0, other), at) >= reached - slack or (
                # A stationary point need not be global: only small steps count against it.
                not row.convex and size > 1e-4
            )


@pytest.mark.parametrize("row", CONVEX, ids=repr)
def test_firmly_nonexpansive(row):
    size = middle(row)
    template = row.draw(np.random.default_rng(0), size)
    entries = st.floats(-20, 20, allow_subnormal=False)
    points = st.lists(entries, min_size=template.size, max_size=template.size)
    lam = st.floats(1e-3, 1e2)

    @quiet
    @given(entries, entries, points, points, lam, lam)
    def check(theta1, theta2, x1, x2, lam_theta, lam_x):
        x1, x2 = (np.reshape(x, template.shape) for x in (x1, x2))
        p1 = prox_of(row.term, *numbers((theta1, x1, lam_theta, lam_x)))
        p2 = prox_of(row.term, *numbers((theta2, x2, lam_theta, lam_x)))
        weights = (1 / lam_theta if row.joint else 0.0, 1 / lam_x)
        moved = [np.asarray(a - b) for a, b in zip(p1, p2, strict=True)]
        start = [np.asarray(theta1 - theta2), x1 - x2]
        square = sum(w * np.sum(m**2) for w, m in zip(weights, moved, strict=True))
        inner = sum(w * np.sum(m * s) for w, m, s in zip(weights, moved, start, strict=True))
        scale = sum(w * np.sum(s**2) for w, s in zip(weights, start, strict=True))
        assert square <= inner + (1e3 * row.accuracy) * scale + 1e-12 / lam_x

    check()


@rows
def test_theta_is_bit_identical_without_its_smoothing(row):
    for seed in range(6):
        theta, x, _, lam_x = draw(row, seed)
        at = (theta, x, 0.0, lam_x)
        u0, u = prox_of(row.term, *numbers(at))
        assert float(u0) == theta
        assert np.all(np.isfinite(u))
        if not row.joint:
            np.testing.assert_array_equal(u, prox_of(row.term, *numbers((0.3, x, 0.7, lam_x)))[1])
        assert objective(row, (u0, u), at) == pytest.approx(row.minimum(*at), rel=1e-7, abs=1e-7)


@joint_rows
def test_small_smoothing_of_theta_tends_to_none(row):
    theta, x, _, lam_x = draw(row, 3)
    still = prox_of(row.term, *numbers((theta, x, 0.0, lam_x)))
    nearly = prox_of(row.term, *numbers((theta, x, 1e-13, lam_x)))
    for a, b in zip(still, nearly, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@thorough_rows
def test_float32_agrees_with_float64_and_stays_float32(row):
    for seed in range(8):
        at = numbers(numbers(draw(row, seed, middle(row)), jnp.float32))
        double = prox_of(row.term, *at)
        single = prox_of(row.term, *numbers(at, jnp.float32))
        assert all(part.dtype == jnp.float32 for part in single)
        assert value_of(row.term, *single).dtype == jnp.float32
        # Near a tie of two stationary points, rounding chooses: compare what was minimised.
        at64 = tuple(np.asarray(part) for part in at)
        best = objective(row, double, at64)
        lifted = tuple(np.asarray(part, np.float64) for part in single)
        if np.isfinite(objective(row, lifted, at64)):
            slack = 1e-4 * max(1.0, abs(best), at[1].size)
            assert objective(row, lifted, at64) == pytest.approx(best, abs=slack), (seed, at)


@thorough_rows
def test_extreme_smoothings_stay_finite_in_float32(row):
    for seed in range(6):
        theta, x, _, _ = draw(row, seed, middle(row))
        for lam_theta in (1e-30, 1e-6, 1.0, 1e3, 1e5 / x.size):
            for lam_x in (1e-30, 1e-6, 1.0, 1e4):
                point = prox_of(row.term, *numbers((theta, x, lam_theta, lam_x), jnp.float32))
                for part in point:
                    assert np.all(np.isfinite(part)), (theta, x, lam_theta, lam_x)


@thorough_rows
def test_jitted_solve_equals_eager_prox(row):
    at = numbers(draw(row, 1, d=middle(row)))
    eager = row.term.prox(*at)
    for jitted in (prox_of(row.term, *at), jax.jit(row.term.prox)(*at)):
        for a, b in zip(jitted, eager, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@thorough_rows
def test_vmap_over_particles_equals_a_loop(row):
    size = middle(row)
    theta, _, lam_theta, lam_x = numbers(draw(row, 5, size))
    cloud = np.stack([row.draw(np.random.default_rng(seed), size) for seed in range(7)])

    def solve(x):
        return prox_of(row.term, theta, x, lam_theta, lam_x)

    batched = jax.vmap(solve)(jnp.asarray(cloud))
    for i in range(7):
        for many, one in zip(batched, solve(jnp.asarray(cloud[i])), strict=True):
            np.testing.assert_allclose(many[i], one, atol=1e-10)


@few_rows
def test_vmap_over_hyperparameters_equals_a_loop(row):
    theta, x, lam_theta, lam_x = numbers(draw(row, 5, middle(row)))
    factors = jnp.array([0.5, 1.0, 1.7])

    def varied(factor):
        term = jax.tree.map(lambda leaf: leaf * factor, row.term)
        return prox_of(term, theta, x, lam_theta * factor, lam_x / factor)

    batched = jax.vmap(varied)(factors)
    for i, factor in enumerate(factors):
        for many, one in zip(batched, varied(factor), strict=True):
            np.testing.assert_allclose(many[i], one, atol=1e-9)


@thorough_rows
def test_gradient_of_the_envelope_is_the_displacement_and_the_finite_difference(row):
    size = middle(row)
    theta, x, _, _ = draw(row, 11, size)
    x = x + 0.01 * np.random.default_rng(0).normal(size=x.shape)
    at = (theta, x, min(0.01 / x.size, row.limit(theta - 0.01, x)), 0.03)
    _, automatic = slopes_of(row.term, *numbers(at))
    u0, u = prox_of(row.term, *numbers(at))
    np.testing.assert_allclose(automatic[0], (theta - u0) / at[2], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(automatic[1], (x - u) / at[3], rtol=1e-9, atol=1e-9)

    step = 1e-5

    def slope(argument, index=()):
        ends = []
        for sign in (1, -1):
            moved = [np.array(part, np.float64) for part in at]
            moved[argument][index] += sign * step
            ends.append(row.minimum(float(moved[0]), moved[1], float(moved[2]), float(moved[3])))
        return (ends[0] - ends[1]) / (2 * step)

    close = {"rel": 1e-3, "abs": 1e-3}
    assert float(automatic[0]) == pytest.approx(slope(0), **close)
    assert float(automatic[2]) == pytest.approx(slope(3), **close)
    for flat in range(min(3, x.size)):
        index = np.unravel_index(flat, x.shape)
        assert float(automatic[1][index]) == pytest.approx(slope(1, index), **close)


@thorough_rows
def test_envelope_gradient_without_smoothing_of_theta_is_zero(row):
    theta, x, _, lam_x = draw(row, 2, middle(row))
    envelope, automatic = slopes_of(row.term, *numbers((theta, x, 0.0, lam_x)))
    assert np.isfinite(envelope)
    assert automatic[0] == 0
    assert np.all(np.isfinite(automatic[1]))


@few_rows
@pytest.mark.parametrize("frozen", [False, True])
def test_envelope_gradient_is_the_gradient_of_the_envelope(row, frozen):
    theta, x, lam_theta, lam_x = draw(row, 2, middle(row))
    at = numbers((theta, x, 0.0 if frozen else lam_theta, lam_x))
    for stated, automatic in zip(
        gradient_of(row.term, *at), slopes_of(row.term, *at)[1][:2], strict=True
    ):
        np.testing.assert_allclose(stated, automatic, rtol=1e-9, atol=1e-9)


@thorough_rows
def test_value_has_a_finite_subgradient_in_x(row):
    theta, x = prox_of(row.term, *numbers(draw(row, 4, middle(row))))
    slopes = jax.jit(jax.grad(lambda *at: row.term.value(*at), argnums=(0, 1)))
    for point in (x, jnp.zeros_like(x)):
        assert all(np.all(np.isfinite(slope)) for slope in slopes(theta, point))


@rows
def test_the_gap_is_honest_and_a_warm_start_has_the_same_structure(row):
    at = draw(row, 8, middle(row))
    start = row.term.warm_start(*numbers(at)[:2])
    solution = solve_of(row.term, *numbers(at))
    same = jax.tree.map(
        lambda a, b: a.shape == b.shape and a.dtype == b.dtype, start, solution.warm
    )
    assert all(jax.tree.leaves(same))
    best = row.minimum(*at)
    assert solution.gap.shape == ()
    assert float(solution.gap) >= 0
    assert objective(row, solution[:2], at) - best <= float(solution.gap) + 1e-8 * max(1, abs(best))


@joint_rows
def test_theta_must_be_a_scalar_of_the_dtype_of_x(row):
    x = jnp.asarray(draw(row, 0)[1])
    with pytest.raises(ValueError, match="scalar theta"):
        row.term.prox(jnp.zeros(2), x, 0.1, 0.1)
    with pytest.raises(TypeError, match=r"float32.*float64"):
        row.term.prox(jnp.zeros((), jnp.float32), x, 0.1, 0.1)


@pytest.mark.parametrize("row", [row for row in ROWS if row.name != "zero"], ids=repr)
def test_x_must_be_one_floating_array(row):
    with pytest.raises(TypeError, match=r"address(es)? a part of"):
        row.term.prox(jnp.zeros(()), {"w": jnp.zeros((2, 2))}, 0.1, 0.1)
    with pytest.raises(TypeError, match="floating-point x"):
        row.term.prox(jnp.zeros(()), jnp.zeros((2, 2), jnp.int32), 0.1, 0.1)


@rows
def test_no_smoothing_of_theta_is_a_smoothing_of_zero(row):
    theta, x, _, lam_x = draw(row, 3, middle(row))
    at = numbers((theta, x, lam_x))
    fixed = solve_of(row.term, at[0], at[1], None, at[2])
    zero = solve_of(row.term, at[0], at[1], jnp.zeros(()), at[2])
    assert float(fixed.theta) == theta
    np.testing.assert_allclose(fixed.x, zero.x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fixed.gap, zero.gap, rtol=1e-6, atol=1e-12)
