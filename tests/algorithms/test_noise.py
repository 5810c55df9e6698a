"""The normals of a cloud: white, and functions of the key and the particle's number alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pipla.algorithms._normals import LOOP_FROM, particle_normals

KEY = jax.random.key(7)
LARGE = 2**14
SHAPES = {"small": (3, 5), "in a loop": (LOOP_FROM,), "large": (3, LARGE - 5)}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


@shapes
def test_a_particle_has_the_same_numbers_in_any_cloud(shape):
    few = particle_normals(KEY, jnp.zeros((2, *shape)), antithetic=False)
    many = particle_normals(KEY, jnp.zeros((5, *shape)), antithetic=False)
    np.testing.assert_array_equal(few, many[:2])
    assert few.shape == (2, *shape)


@shapes
def test_pairs_are_opposite(shape):
    cloud = particle_normals(KEY, jnp.zeros((4, *shape)), antithetic=True)
    np.testing.assert_array_equal(cloud[0::2], -cloud[1::2])


def test_large_clouds_are_normal_and_all_different():
    # False alarms: 1e-4 for the distribution; equal numbers come by chance once in 1e6 runs.
    cloud = np.asarray(particle_normals(KEY, jnp.zeros((2, 4, LARGE)), antithetic=False))
    assert scipy.stats.kstest(cloud.ravel(), "norm").pvalue > 1e-4
    assert len(np.unique(cloud)) == cloud.size


def test_lanes_of_a_vmap_have_the_numbers_of_their_keys():
    keys = jax.random.split(KEY, 3)
    like = jnp.zeros((2, 2, LARGE), jnp.float32)
    lanes = jax.vmap(lambda key: particle_normals(key, like, antithetic=False))(keys)
    alone = particle_normals(keys[1], like, antithetic=False)
    np.testing.assert_array_equal(lanes[1], alone)
    assert alone.dtype == jnp.float32
