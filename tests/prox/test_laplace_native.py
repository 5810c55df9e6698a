"""The CPU kernel in the prox of `LaplaceLocation` against the JAX form of the same steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipla import prox
from pipla.prox._roots.clipped import clipped_root

pytest.importorskip("numba")
precisions = pytest.mark.parametrize("dtype", [np.float32, np.float64])
solve = jax.jit(clipped_root, static_argnums=0)


def cloud(seed, shape, dtype, spread=3.0):
    """Differences, half of them rounded: ties, zeros, and terms at a kink."""
    z = spread * np.random.default_rng(seed).laplace(size=shape)
    return jnp.asarray(np.where(np.arange(shape[-1]) % 2, z, np.round(z)), dtype)


@precisions
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 7, 50, 300]), st.integers(0, 2**32), st.floats(-5, 4), st.floats(-2, 3)
)
def test_both_forms_find_the_root(dtype, d, seed, ratio, spread):
    z, ratio = cloud(seed, (d,), dtype, 10**spread), dtype(10**ratio)
    ours, theirs = (np.float64(solve(fast, z, ratio)) for fast in (True, False))
    z, ratio = np.asarray(z, np.float64), np.float64(ratio)
    excess = ours - ratio * np.clip(z - ours, -1, 1).sum()
    steepness = 1 + ratio * np.sum(np.abs(z - ours) < 1 + 1e-3)
    close = 8 * np.finfo(dtype).eps * (1 + np.abs(ours))
    assert abs(excess) <= close * steepness
    np.testing.assert_allclose(ours, theirs, atol=close)


@precisions
def test_under_vmap_also_twice_and_with_unbatched_parts(dtype):
    z = cloud(1, (4, 3, 20), dtype)
    ratios = jnp.asarray([0.1, 1.0, 3.0, 0.0], dtype)

    def many(fast):
        inner = jax.vmap(lambda z, ratio: clipped_root(fast, z, ratio), (0, None))
        return jax.jit(jax.vmap(inner))(z, ratios)

    roots = many(True)
    assert roots.shape == (4, 3)
    assert roots.dtype == dtype
    np.testing.assert_allclose(roots, many(False), rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(roots[3], 0)
    assert roots[2, 1] == solve(True, z[2, 1], ratios[2])


def test_half_precision_and_an_empty_x_have_a_root_too():
    z = jnp.asarray([0.5, 9.0], jnp.bfloat16)
    assert solve(True, z, jnp.ones((), jnp.bfloat16)) == jnp.bfloat16(0.75)
    assert solve(True, jnp.zeros(0), jnp.ones(())) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_it_ends_whatever_it_is_given(bad):
    z = cloud(2, (9,), np.float64)
    solve(True, z.at[3].set(bad), jnp.asarray(1.0)).block_until_ready()
    solve(True, z, jnp.asarray(bad)).block_until_ready()
    _, x = prox.LaplaceLocation().prox(0.0, z.at[3].set(bad), 0.1, 0.1)
    assert not np.isfinite(x[3])  # so that a run notices


def test_its_derivatives_are_those_of_the_root():
    z, ratio, h = cloud(3, (12,), np.float64) + 0.013, jnp.asarray(0.7), 1e-6
    for fast in (True, False):
        slope = jax.grad(clipped_root, (1, 2))(fast, z, ratio)
        forward = jax.jacfwd(clipped_root, 1)(fast, z, ratio)
        np.testing.assert_allclose(slope[0], forward, rtol=1e-12)
        for i in range(12):
            step = h * np.eye(12)[i]
            numeric = (solve(True, z + step, ratio) - solve(True, z - step, ratio)) / (2 * h)
            assert float(slope[0][i]) == pytest.approx(float(numeric), abs=1e-8)
        numeric = (solve(True, z, ratio + h) - solve(True, z, ratio - h)) / (2 * h)
        assert float(slope[1]) == pytest.approx(float(numeric), abs=1e-8)
        assert float(slope[1]) != 0
