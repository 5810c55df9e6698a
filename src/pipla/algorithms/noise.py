"""Standard normals for theta and for the cloud: functions of the key and the particle's number."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from pipla.algorithms.generator import normals


def normals_like(key: Key[Array, ""], tree: PyTree) -> PyTree:
    """One standard normal for every number in `tree`."""
    leaves, structure = jax.tree.flatten(tree)
    # A single leaf uses the key itself: deriving another one costs as much as 16 normals.
    keys = [key] if len(leaves) == 1 else list(jax.random.split(key, len(leaves)))
    draws = [normals(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, draws)


def cloud_normals(key: Key[Array, ""], particles: PyTree, *, antithetic: bool) -> PyTree:
    r"""One standard normal for every number in the cloud.

    JAX's counter-based generator gives the numbers of particle i from (key, i) whatever the
    number of particles or devices. Antithetic: particles $2j$ and $2j + 1$ get $\xi_j$ and
    $-\xi_j$, so that the pair's mean, and with it theta, feels no noise to first order.
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
