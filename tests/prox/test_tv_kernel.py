"""The CPU kernel of total variation against the JAX form of the same algorithm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipla import prox
from pipla.prox import total_variation
from pipla.prox._kernels import tv

pytestmark = pytest.mark.slow

pytest.importorskip("numba")
solve = jax.jit(lambda term, x, lam, warm: term.solve(None, x, 0.0, lam, warm))
kinds = pytest.mark.parametrize("isotropic", [False, True])
value_and_gradient = jax.jit(lambda term, x: jax.value_and_grad(lambda x: term.value(None, x))(x))
precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def pair(**options):
    return [prox.TotalVariation(0.7, native=native, **options) for native in (True, False)]


def image(seed, shape, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=shape).cumsum(axis=0), dtype)


def dual(term, x, seed):
    """A dual that may be a warm start: in the unit ball, 0 where there is no difference."""
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, x.shape) / np.sqrt(x.ndim) for _ in term.warm_start(None, x)]
    axes = range(x.ndim) if term.axes is None else term.axes
    for axis, array in zip(axes, arrays, strict=True):
        np.moveaxis(array, axis, 0)[-1] = 0
    return tuple(jnp.asarray(array, x.dtype) for array in arrays)


def agree(first, second, dtype):
    close = 2e-5 if dtype == np.float32 else 1e-11
    assert first.x.dtype == first.gap.dtype == dtype
    np.testing.assert_allclose(first.x, second.x, atol=close)
    for a, b in zip(first.warm, second.warm, strict=True):
        np.testing.assert_allclose(a, b, atol=5 * close)
    np.testing.assert_allclose(first.gap, second.gap, rtol=20 * close, atol=close)


CASES = [
    ((40,), None),
    ((1,), None),
    ((13, 21), None),
    ((1, 30), None),
    ((30, 1), None),
    ((17, 9), (0,)),
    ((17, 9), (-1,)),
    ((12, 10, 3), (1, 0)),
    ((3, 1, 12, 1, 10), (2, 4)),
    ((6, 7, 8), None),
    ((2, 4, 3, 5, 2), (3, 1, 2)),
    ((6, 7, 8), (1,)),
]


def compare(shape, axes, isotropic, dtype, max_iterations):
    x = image(0, shape, dtype)
    options = {"axes": axes, "max_iterations": max_iterations, "tolerance": 1e-12}
    terms = pair(isotropic=isotropic, **options)
    warm = dual(terms[0], x, 1)
    agree(*(solve(term, x, dtype(0.6), warm) for term in terms), dtype)


@kinds
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_kernel_equals_the_jax_form(shape, axes, isotropic):
    compare(shape, axes, isotropic, np.float64, 15)


@kinds
@pytest.mark.parametrize(("shape", "axes"), [CASES[2], CASES[7], CASES[9]], ids=str)
def test_one_chunk_in_float32(shape, axes, isotropic):
    # With a single chunk only a window of the extrapolated dual is kept.
    compare(shape, axes, isotropic, np.float32, 5)


@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_the_kernel_is_used_where_there_are_neighbours(shape, axes):
    axes = tuple(axis % len(shape) for axis in (range(len(shape)) if axes is None else axes))
    used = tv.native_solver(shape, np.float32, axes, False, 5) is not None
    assert used == (max(shape[axis] for axis in axes) > 1)


def test_axes_with_others_in_between_are_left_to_jax():
    assert tv.native_solver((4, 5, 6), np.float32, (0, 2), False, 5) is None
    assert tv.native_solver((4, 5, 0), np.float32, (0, 1), False, 5) is None
    assert tv.native_solver((2, 2, 2, 2), np.float32, (0, 1, 2, 3), False, 5) is None
    assert tv.native_solver((4, 5), jnp.bfloat16, (0, 1), False, 5) is None
    term, other = pair(axes=(0, 2), max_iterations=10)
    x = image(1, (4, 5, 6))
    agree(*(solve(t, x, 0.3, t.warm_start(None, x)) for t in (term, other)), np.float64)


@kinds
def test_both_stop_and_restart_at_the_same_places(isotropic):
    x = image(2, (24, 20))
    terms = pair(isotropic=isotropic, max_iterations=3000, tolerance=1e-6)
    first, second = (solve(term, x, 5.0, term.warm_start(None, x)) for term in terms)
    agree(first, second, np.float64)
    terms = pair(isotropic=isotropic, max_iterations=3000, tolerance=1e-2)
    again = [solve(term, x, 5.0, first.warm) for term in terms]  # nothing is left to do
    agree(*again, np.float64)
    few = solve(pair(isotropic=isotropic, max_iterations=1)[0], x, 5.0, first.warm)
    for a, b in zip(again[0].warm, few.warm, strict=True):
        np.testing.assert_array_equal(a, b)


@kinds
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
def test_both_have_the_same_value_and_gradient(shape, axes, isotropic):
    x = image(5, shape)
    ours, theirs = (value_and_gradient(t, x) for t in pair(isotropic=isotropic, axes=axes))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-12)


def test_values_of_many_particles_at_once():
    x = image(6, (2, 3, 8, 9))
    ours, theirs = (jax.vmap(jax.vmap(lambda x, t=t: t.value(None, x)))(x) for t in pair())
    assert ours.shape == (2, 3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_warm_start_given_by_its_owner_is_not_overwritten():
    term, _ = pair(max_iterations=5)
    x = image(7, (12, 10))
    warm = tuple(0.1 * jnp.ones_like(x) for _ in range(2))
    term.solve(None, x, 0.0, 0.3, warm)
    jax.vmap(lambda x: term.solve(None, x, 0.0, 0.3, warm))(jnp.stack([x, x]))
    for part in warm:
        np.testing.assert_array_equal(part, 0.1)


@kinds
@precisions
def test_constants_and_ties_stay(isotropic, dtype):
    term, other = pair(isotropic=isotropic)
    flat = jnp.full((9, 11), 3.7, dtype)
    solution = solve(term, flat, dtype(0.5), term.warm_start(None, flat))
    np.testing.assert_array_equal(solution.x, flat)
    assert float(solution.gap) == 0
    steps = jnp.asarray(np.repeat(np.repeat([[0.0, 1], [2, 1]], 5, 0), 6, 1), dtype)
    warm = term.warm_start(None, steps)
    agree(*(solve(t, steps, dtype(0.1), warm) for t in (term, other)), dtype)


def test_no_weight_no_change_and_what_is_not_finite_stays_so():
    term, other = pair(max_iterations=10)
    x = image(3, (6, 5))
    warm = term.warm_start(None, x)
    np.testing.assert_array_equal(solve(term, x, 0.0, warm).x, x)
    agree(*(solve(t, x, 1e-30, warm) for t in (term, other)), np.float64)
    for bad in (np.nan, np.inf):
        broken = solve(term, x.at[2, 2].set(bad), 0.5, warm)
        assert not np.all(np.isfinite(broken.x))


@precisions
def test_under_vmap_also_twice_and_with_unbatched_parts(dtype):
    term, other = pair(max_iterations=10)
    x = image(4, (2, 3, 8, 7), dtype)
    lam = jnp.asarray([0.2, 1.0], dtype)
    warm = dual(term, x[0, 0], 5)

    def many(t):
        inner = jax.vmap(lambda x, lam: t.solve(None, x, 0.0, lam, warm), (0, None))
        return jax.jit(jax.vmap(inner))(x, lam)

    first, second = many(term), many(other)
    assert first.gap.shape == (2, 3)
    agree(first, second, dtype)
    one = solve(term, x[1, 2], lam[1], warm)
    np.testing.assert_array_equal(first.x[1, 2], one.x)
    np.testing.assert_array_equal(first.gap[1, 2], one.gap)


def test_in_a_loop_and_in_the_learned_strength():
    x = image(6, (10, 9))

    def walk(term):
        def step(state, _):
            point = term.solve(None, state[0], 0.0, 0.1, state[1])
            return (point.x, point.warm), point.gap

        return jax.jit(lambda x: jax.lax.scan(step, (x, term.warm_start(None, x)), None, 6))(x)

    (u, _), gaps = walk(pair()[0])
    (v, _), others = walk(pair()[1])
    np.testing.assert_allclose(u, v, atol=1e-11)
    np.testing.assert_allclose(gaps, others, rtol=1e-8)
    joint = jax.jit(lambda term, *at: term.prox(*at))
    points = [
        joint(prox.TVStrength(native=native), jnp.asarray(0.1), x, 1e-3, 0.2)
        for native in (True, False)
    ]
    np.testing.assert_allclose(points[0][0], points[1][0], rtol=1e-10)
    np.testing.assert_allclose(points[0][1], points[1][1], atol=1e-10)


def test_forward_derivatives_are_those_of_the_jax_form():
    x = image(7, (5, 6))

    @jax.jit
    def derivative(term):
        return jax.jvp(lambda lam: term.prox(None, x, 0.0, lam)[1], (0.3,), (1.0,))[1]

    derivatives = [derivative(term) for term in pair(max_iterations=20)]
    np.testing.assert_allclose(*derivatives, atol=1e-10)


def test_the_two_forms_evaluate_the_gap_equally_often():
    from pipla.prox._kernels import tv_sweep

    assert tv_sweep.CHUNK == total_variation._CHUNK
