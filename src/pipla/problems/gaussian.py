"""The Gaussian hierarchy: every answer is known in closed form."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pipla import _checks
from pipla.models.model import Model
from pipla.problems.base import MOST, Problem, checked_noise
from pipla.prox import GaussianLocation


def gaussian_hierarchy(
    unknown: str = "location", dimension: int = 20, noise: float = 1.0, seed: int = 0
) -> Problem:
    r"""$x_i \sim N(\theta, 1)$ or $x_i \sim N(0, e^{2\theta})$, and $y_i \sim N(x_i, s^2)$.

    The maximiser of the marginal likelihood is $\bar y$ for the location, which is given as a
    (quadratic) term with a joint prox, and $\tfrac12 \log(\overline{y^2} - s^2)$ for the scale,
    which is part of the smooth potential.
    """
    _checks.choice("unknown", unknown, ("location", "scale"))
    dimension = _checks.integer("dimension", dimension, least=1, most=MOST)
    noise = checked_noise(noise)
    seed = _checks.integer("seed", seed, least=0)
    rng = np.random.default_rng(seed)
    truth = 1.0 if unknown == "location" else 0.5
    prior = rng.normal(size=dimension)
    x = truth + prior if unknown == "location" else np.exp(truth) * prior
    y = x + noise * rng.normal(size=dimension)
    if unknown == "location":
        model = Model(_misfit, GaussianLocation(1.0), data=(jnp.asarray(y), jnp.asarray(noise)))
        maximiser = float(y.mean())
    else:
        excess = float(np.mean(y**2) - noise**2)
        if excess <= 0:
            raise ValueError("seed: the maximiser of these data is at -inf; choose another seed.")
        model = Model(_scale_potential, data=(jnp.asarray(y), jnp.asarray(noise)))
        maximiser = 0.5 * float(np.log(excess))
    return Problem(f"Gaussian {unknown}", model, jnp.zeros(()), dimension, truth, maximiser)


Data = tuple[Float[Array, " d"], Float[Array, ""]]


def _misfit(theta: Array, x: Array, data: Data) -> Array:
    y, noise = data
    return jnp.sum((x - y) ** 2) / (2 * noise**2)


def _scale_potential(theta: Array, x: Array, data: Data) -> Array:
    return _misfit(theta, x, data) + x.size * theta + jnp.exp(-2 * theta) * jnp.sum(x**2) / 2
