"""Whether the two halves of an operator belong together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipla import _checks

#: The largest relative error of an adjoint. Rounding a million float32 numbers leaves about 1e-4.
TOLERANCE = 1e-3


def check_adjoint(operator: Any, x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> None:
    r"""Raise an error unless $\langle Hx, y\rangle = \langle x, H^\top y\rangle$.

    It is tried on two random x, and on $y = Hx$ and a random $y$. The first has no cancellation,
    which shows a wrong factor; the others show a wrong place, sign or order.
    """
    rng = np.random.default_rng(0)
    dtype = jnp.result_type(float)
    x = jnp.asarray(rng.standard_normal((2, *x_shape)), dtype)
    image = jax.vmap(operator.apply)(x)
    y = jnp.stack([image[0], jnp.asarray(rng.standard_normal(y_shape), image.dtype)])
    back = jax.vmap(operator.adjoint)(y)
    if not (_checks.is_concrete(image) and _checks.is_concrete(back)):
        return
    xs, images, ys, backs = (
        np.asarray(array, np.float64).reshape(2, -1) for array in (x, image, y, back)
    )
    if not (np.isfinite(images).all() and np.isfinite(backs).all()):
        raise ValueError("operator: apply or adjoint returns values that are not finite.")
    sizes = np.linalg.norm(images, axis=1)
    if not sizes.all():
        return  # nothing is seen: the likelihood says so
    forward, backward = images @ ys.T, xs @ backs.T
    # The size of a product of independent vectors is that of one vector.
    units = np.outer(sizes, np.linalg.norm(ys, axis=1) / np.sqrt(ys.shape[1]))
    units[0, 0] = forward[0, 0]
    errors = np.abs(forward - backward) / units
    if np.any(errors > TOLERANCE):
        # The first has a ratio that means something.
        place = (0, 0) if errors[0, 0] > TOLERANCE else np.unravel_index(np.argmax(errors), (2, 2))
        raise ValueError(
            "operator: adjoint is not the transpose of apply. For random x and y, <apply(x), y> "
            f"is {forward[place]:.4g} and <x, adjoint(y)> is {backward[place]:.4g}, a ratio of "
            f"{backward[place] / forward[place]:.4g}; it must be 1. apply must be linear (without "
            "an offset), and adjoint its transpose: jax.linear_transpose(apply, x) makes it, where "
            "apply is written in JAX."
        )
