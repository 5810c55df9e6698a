r"""Standard normals for theta and the particles: functions of the key and the particle's index.

They are those of `jax.random.normal`, bit for bit, in half the time on a CPU. JAX compiles the 20
rounds of Threefry, its default generator, as a loop that passes over memory in every turn. Here
they are written out, so that XLA makes one pass of them and of the transformation to normals,
which all cores share; and that pass is the body of a loop, which keeps XLA from repeating it for
every use of the numbers. Keys of other kinds are passed to JAX.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree, UInt32

#: Below this many normals, no loop.
LOOP_FROM = 2**8

#: Rotations of the rounds and the parity of the key schedule (Salmon et al. 2011, Threefry-2x32).
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def normals_like(key: Key[Array, ""], tree: PyTree) -> PyTree:
    """One standard normal for every number in `tree`."""
    leaves, structure = jax.tree.flatten(tree)
    # A single leaf uses the key itself: deriving another one costs as much as 16 normals.
    keys = [key] if len(leaves) == 1 else list(jax.random.split(key, len(leaves)))
    draws = [normals(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, draws)


def particle_normals(key: Key[Array, ""], particles: PyTree, *, antithetic: bool) -> PyTree:
    r"""One standard normal for every number in the particles.

    JAX's counter-based generator gives the numbers of particle i from (key, i) whatever the
    number of particles or devices. Antithetic: particles $2j$ and $2j + 1$ get $\xi_j$ and
    $-\xi_j$, so that the mean of the pair, which drives theta, has no noise to first order.
    """
    if not antithetic:
        return normals_like(key, particles)
    half = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0] // 2, *leaf.shape[1:]), leaf.dtype),
        particles,
    )
    return jax.tree.map(
        lambda xi, leaf: jnp.stack([xi, -xi], axis=1).reshape(leaf.shape),
        normals_like(key, half),
        particles,
    )


def normals(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any) -> Array:
    """Standard normals: `jax.random.normal`, faster."""
    size, dtype = math.prod(shape), jnp.dtype(dtype)
    if not _is_written_out(key, size, dtype):
        return jax.random.normal(key, shape, dtype)
    words = jax.random.key_data(key)

    def all_of_them(words: UInt32[Array, "2"]) -> Array:
        return _normals_of(words, size, dtype)

    def in_one_pass(words: UInt32[Array, "2"]) -> Array:
        # One turn, which XLA must not know: it would take the loop apart.
        turns = jax.lax.optimization_barrier(jnp.uint32(1))
        return jax.lax.fori_loop(
            jnp.uint32(0), turns, lambda _, draws: all_of_them(words), jnp.zeros(size, dtype)
        )

    if size < LOOP_FROM:
        return all_of_them(words).reshape(shape)
    draws = jax.lax.platform_dependent(words, cpu=in_one_pass, default=all_of_them)
    return draws.reshape(shape)


def _is_written_out(key: Key[Array, ""], size: int, dtype: np.dtype) -> bool:
    """Whether what is written here is what JAX would do."""
    config: Any = jax.config  # its type stubs lack its own options
    return (
        str(jax.random.key_impl(key)) == "threefry2x32"
        and bool(config.jax_threefry_partitionable)
        and dtype in (jnp.float32, jnp.float64)
        and size < 2**31
    )


def _normals_of(words: UInt32[Array, "2"], length: int, dtype: np.dtype) -> Array:
    """The first `length` normals of a key: each is a function of its index alone."""
    place = jax.lax.iota(jnp.uint32, length)
    high, low = _threefry(words, jnp.zeros_like(place), place)
    if dtype == jnp.float32:
        bits = high ^ low
    else:
        bits = (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    least = np.nextafter(dtype.type(-1), dtype.type(0))
    uniform = jnp.maximum(least, _unit(bits, dtype) * (dtype.type(1) - least) + least)
    return dtype.type(np.sqrt(2)) * jax.lax.erf_inv(uniform)


def _threefry(key: UInt32[Array, "2"], left: Array, right: Array) -> tuple[Array, Array]:
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY))
    left, right = left + schedule[0], right + schedule[1]
    for turn in range(5):
        for rotation in ROTATIONS[turn % 2]:
            left = left + right
            right = left ^ ((right << rotation) | (right >> (32 - rotation)))
        left = left + schedule[(turn + 1) % 3]
        right = right + schedule[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return left, right


def _unit(bits: Array, dtype: np.dtype) -> Array:
    """Uniform on [0, 1): the bits as the fraction of a float between 1 and 2, minus 1."""
    spare = bits.dtype.type(jnp.finfo(dtype).bits - jnp.finfo(dtype).nmant)
    one = np.asarray(1, dtype).view(bits.dtype)
    return jax.lax.bitcast_convert_type((bits >> spare) | one, dtype) - dtype.type(1)
