"""Deblurring with a learned strength of total variation: the paper's protocol and the usual."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from pipla import _checks
from pipla.models.images import PROX_ITERATIONS, tv_model
from pipla.models.model import Model
from pipla.operators import CircularConvolution, Operator, WindowMean, blur
from pipla.problems.images import find_picture

#: `"bsnr30"`: the mean over 9×9 pixels, wrapped around, and noise of a thousandth of the variance
#: of the blurred picture (30 dB). `"paper"`: over 11×11, scaled up at the edges, noise .47: what
#: the authors' code does (E10).
Protocol = Literal["bsnr30", "paper"]
PAPER_NOISE = 0.47


class Deblurring(NamedTuple):
    r"""A blurred picture, and what is known of it.

    Attributes:
        name: for tables and figures.
        model: its posterior: theta is the logarithm of the strength $t = e^\theta$.
        truth, observed: pictures, 0 to 255.
        operator, noise: the blur, and the standard deviation of the noise.
        theta: where theta starts.
        published: whether this is the paper's start (and its model, E5).
    """

    name: str
    model: Model
    truth: np.ndarray
    observed: np.ndarray
    operator: Operator
    noise: float
    theta: float
    published: bool = False

    def cloud(self, key: Key[Array, ""], num_particles: int) -> Array:
        """Particles to start from: the observed picture; N(50, 10²) in every pixel as published."""
        shape = (num_particles, *self.truth.shape)
        if self.published:
            return 50 + 10 * jax.random.normal(key, shape, jnp.result_type(float))
        return jnp.broadcast_to(jnp.asarray(self.observed, jnp.result_type(float)), shape)

    @property
    def stiffness(self) -> float:
        r"""$L = |H|^2/\sigma^2$, which limits the steps of explicit schemes."""
        likelihood = self.model.smooth
        return float(likelihood.stiffness(None))  # type: ignore[union-attr]


def deblurring(
    picture: str = "camera",
    *,
    protocol: Protocol = "bsnr30",
    crop: int | None = None,
    seed: int = 0,
    iterations: int = PROX_ITERATIONS,
) -> Deblurring:
    """Blur a picture and add noise.

    Arguments:
        picture: one that `find_picture` knows.
        protocol: which blur and noise.
        crop: take only so many rows and columns from the middle, before blurring.
        seed: of the noise.
        iterations: of the dual of total variation in each prox.

    Example:
        >>> import pipla
        >>> problem = pipla.problems.deblurring("camera", crop=32)
        >>> problem.observed.shape, round(problem.noise, 2)
        ((32, 32), 0.33)
    """
    _checks.choice("protocol", protocol, get_args(Protocol))
    truth = find_picture(picture)
    if crop is not None:
        truth = _middle(truth, _checks.integer("crop", crop, least=16))
    rows, columns = truth.shape
    operator: Operator = WindowMean(11, (rows, columns))
    if protocol == "bsnr30":
        operator = CircularConvolution(blur.box(9), truth.shape)
    blurred = np.asarray(operator.apply(jnp.asarray(truth, jnp.result_type(float))), np.float64)
    noise = PAPER_NOISE if protocol == "paper" else float(np.sqrt(blurred.var() / 1000))
    observed = blurred + noise * np.random.default_rng(seed).standard_normal(truth.shape)
    model = tv_model(operator, observed, noise, iterations=iterations)
    one = jnp.zeros((), jnp.result_type(float))
    variation = model.nonsmooth.value(one, jnp.asarray(observed, one.dtype))  # at strength 1
    theta = float(np.log(truth.size / variation))
    return Deblurring(f"{picture} {protocol}", model, truth, observed, operator, noise, theta)


def _middle(picture: np.ndarray, size: int) -> np.ndarray:
    """The middle of a picture: at most so many rows and columns."""
    parts = []
    for length in picture.shape:
        first = max((length - size) // 2, 0)
        parts.append(slice(first, first + size))
    return picture[tuple(parts)]
