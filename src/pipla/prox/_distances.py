"""Distances from a point to its proximal point, by leaf of a pytree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

Scalar = Float[Array, ""]


def half_square(start: PyTree, end: PyTree, lam: PyTree) -> Scalar:
    """`|start - end|²/(2 lam)`, one smoothing per leaf, and 0 where the smoothing is 0."""

    def leaf(weight: Array, a: Array, b: Array) -> Scalar:
        # A zero smoothing pins its block (a = b): it adds nothing, and must not divide.
        weight = jnp.asarray(weight, jnp.result_type(b))
        free = weight > 0
        return jnp.sum(jnp.where(free, (a - b) ** 2, 0.0) / (2 * jnp.where(free, weight, 1.0)))

    total: Any = 0.0  # not an array: theta may be None, which has no leaves and no dtype
    for term in jax.tree.leaves(jax.tree.map(leaf, lam, start, end)):
        total = total + term
    return total


def displacement(start: PyTree, end: PyTree, lam: PyTree) -> PyTree:
    """`(start - end) / lam`, one smoothing per leaf, and 0 where the smoothing is 0."""

    def leaf(weight: Array, a: Array, b: Array) -> Array:
        weight = jnp.asarray(weight, jnp.result_type(b))
        free = weight > 0
        return jnp.where(free, a - b, 0.0) / jnp.where(free, weight, 1.0)

    return jax.tree.map(leaf, lam, start, end)
