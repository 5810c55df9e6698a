"""The generator written out: JAX's own numbers, for every key, shape and dtype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipla.algorithms._normals import normals

SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (50, 50), (2**17 + 3,)]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.float16])
@pytest.mark.parametrize(
    ("shape", "compiled"),
    # One operation at a time they are the same operations: a short and an odd shape suffice.
    [(shape, True) for shape in SHAPES] + [((3, 5), False), ((7,), False)],
)
def test_the_numbers_are_those_of_jax(shape, dtype, compiled):
    draw = jax.jit(normals, static_argnums=(1, 2)) if compiled else normals
    with jax.enable_x64(True):
        for key in jax.random.split(jax.random.key(2**40 + 1), 3):
            ours, theirs = draw(key, shape, dtype), jax.random.normal(key, shape, dtype)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
def test_keys_of_another_kind_go_to_jax(kind):
    key = jax.random.key(3, impl=kind)
    np.testing.assert_array_equal(
        normals(key, (4, 5), jnp.float32), jax.random.normal(key, (4, 5), jnp.float32)
    )


def test_lanes_of_a_vmap_have_the_numbers_of_their_keys():
    keys = jax.random.split(jax.random.key(5), 4)
    lanes = jax.vmap(lambda key: normals(key, (6, 100), jnp.float32))(keys)
    np.testing.assert_array_equal(lanes[2], normals(keys[2], (6, 100), jnp.float32))
