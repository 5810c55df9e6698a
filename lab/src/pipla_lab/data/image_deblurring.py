"""Deblurring with a learned strength of total variation, by two protocols."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from pipla.models.images import PROX_ITERATIONS, tv_model
from pipla.models.model import Model
from pipla.operators import CircularConvolution, Operator, WindowMean, blur
from pipla_lab import checks
from pipla_lab.data.images import find_image

#: `"bsnr30"`: the mean over 9×9 pixels, circular, and noise whose variance is a thousandth of that
#: of the blurred image (30 dB). `"paper"`: the mean over 11×11 pixels, renormalised at the edges,
#: and noise .47, as in the authors' code (E10).
Protocol = Literal["bsnr30", "paper"]
PAPER_NOISE = 0.47


class Deblurring(NamedTuple):
    r"""A blurred image and its model.

    Attributes:
        name: the name in tables and figures.
        model: the posterior of the image; theta is the logarithm of the strength $t = e^\theta$.
        truth, observed: the images, 0 to 255.
        operator, noise: the blur, and the standard deviation of the noise.
        theta: where theta starts.
    """

    name: str
    model: Model
    truth: np.ndarray
    observed: np.ndarray
    operator: Operator
    noise: float
    theta: float

    def particles(self, key: Key[Array, ""], num_particles: int) -> Array:
        """Particles to start from: the observed image; `key` is not used."""
        num_particles = checks.integer("num_particles", num_particles, least=1)
        shape = (num_particles, *self.truth.shape)
        return jnp.broadcast_to(jnp.asarray(self.observed, jnp.result_type(float)), shape)

    @property
    def stiffness(self) -> float:
        r"""$L = |H|^2/\sigma^2$, which limits the steps of explicit schemes."""
        stiffness = self.model.smooth.stiffness(None)
        assert stiffness is not None  # both blurs have an eigenbasis
        return float(stiffness)


def deblurring(
    image: str = "camera",
    *,
    protocol: Protocol = "bsnr30",
    crop: int | None = None,
    seed: int = 0,
    iterations: int = PROX_ITERATIONS,
) -> Deblurring:
    """Blur an image and add noise.

    Arguments:
        image: the name of an image: `"camera"`, `"boat"` or `"guitar"`; see `find_image`.
        protocol: which blur and noise.
        crop: the size of the square that is cut from the middle before blurring.
        seed: the seed of the noise.
        iterations: the number of dual iterations of total variation in each prox.

    Example:
        >>> from pipla_lab.data import deblurring
        >>> problem = deblurring("camera", crop=32)
        >>> problem.observed.shape, round(problem.noise, 2)
        ((32, 32), 0.33)
    """
    checks.choice("protocol", protocol, get_args(Protocol))
    seed = checks.integer("seed", seed, least=0)
    iterations = checks.integer("iterations", iterations, least=1)
    truth = find_image(image)
    if crop is not None:
        truth = _middle(truth, checks.integer("crop", crop, least=16))
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
    return Deblurring(f"{image} {protocol}", model, truth, observed, operator, noise, theta)


def _middle(image: np.ndarray, size: int) -> np.ndarray:
    """The middle of an image, at most `size` rows and columns."""
    parts = []
    for length in image.shape:
        first = max((length - size) // 2, 0)
        parts.append(slice(first, first + size))
    return image[tuple(parts)]
