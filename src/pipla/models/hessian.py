r"""The Hessian of $g_1$ as a product, block by block, and power iteration on it.

No matrix is formed. Blocks are those of x and of each leaf of theta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla import _trees
from pipla.models.model import Model

#: Maps a direction in theta and one in x to the Hessian's product with them.
Product = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]


def hessian(model: Model, theta: PyTree, x: PyTree) -> Product:
    """The Hessian of g1 at one particle."""

    def gradient(theta: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        return jax.grad(model.smooth_value, argnums=(0, 1))(theta, x)

    return jax.linearize(gradient, theta, x)[1]


def x_block(product: Product, theta: PyTree, root: PyTree) -> Callable[[PyTree], PyTree]:
    r"""$M^{1/2} \nabla^2_{xx} g_1\, M^{1/2}$, where `root` is $M^{1/2}$ (one number per leaf)."""
    zero = _trees.zeros_like(theta)

    def times(direction: PyTree) -> PyTree:
        return _trees.multiply(root, product(zero, _trees.multiply(root, direction))[1])

    return times


def theta_block(
    product: Product, theta: PyTree, x: PyTree, number: int
) -> Callable[[Array], Array]:
    """The block of leaf `number` of theta."""
    zero = _trees.zeros_like(x)
    leaves, structure = jax.tree.flatten(theta)

    def times(direction: Array) -> Array:
        padded = [direction if i == number else jnp.zeros_like(t) for i, t in enumerate(leaves)]
        image = product(jax.tree.unflatten(structure, padded), zero)[0]
        return jax.tree.leaves(image)[number]

    return times


def power_step(times: Callable[[PyTree], PyTree], direction: PyTree) -> tuple[PyTree, Array]:
    """One power iteration: the direction of the image of a unit vector, and its length.

    The direction stays as it is where the image is 0.
    """
    image = times(direction)
    length = _trees.safe_norm(image)
    divisor = jnp.where(length > 0, length, 1.0)
    return (
        jax.tree.map(lambda new, old: jnp.where(length > 0, new / divisor, old), image, direction),
        length,
    )


def dominant_eigenvalue(
    times: Callable[[PyTree], PyTree], start: PyTree, iterations: int = 60
) -> Array:
    """The eigenvalue of largest modulus of a symmetric operator, by power iteration."""
    length = _trees.safe_norm(start)
    direction = jax.tree.map(lambda leaf: leaf / jnp.where(length > 0, length, 1.0), start)

    def body(_: Any, direction: PyTree) -> PyTree:
        return power_step(times, direction)[0]

    direction = jax.lax.fori_loop(0, iterations, body, direction)
    image = times(direction)
    # Not the Rayleigh quotient itself: where both ends of the spectrum have the same modulus, the
    # direction is a mixture, whose quotient lies anywhere in between and whose length does not.
    sign = jnp.where(_trees.dot(direction, image) < 0, -1.0, 1.0)
    return sign * _trees.safe_norm(image)
