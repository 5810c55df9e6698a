"""Total variation of learned strength: signals and images, blurred or with missing pixels."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from pipla.models.likelihoods import Gaussian
from pipla.models.model import Model
from pipla.operators import CircularConvolution, Identity, Mask, Operator, blur
from pipla.prox import TVStrength
from pipla_lab.zoo.base import Case, Kind, number, zeros

_kind = Kind()
PROBLEMS = _kind.problems


def _signal(seed: int) -> np.ndarray:
    """A piecewise constant signal with 60 samples in noise .5."""
    rng = np.random.default_rng(seed)
    levels = np.repeat(rng.normal(0.0, 2.0, 6), 10)
    return levels + 0.5 * rng.standard_normal(60)


def _cartoon() -> np.ndarray:
    """A rectangle and a bar on a flat background, 8×8."""
    x = np.zeros((8, 8))
    x[1:5, 2:6] = 3.0
    x[6, :] = -2.0
    return x


def _image(rng: np.random.Generator) -> np.ndarray:
    """The cartoon with some texture."""
    return _cartoon() + 0.1 * rng.standard_normal((8, 8))


def _known_noise(about: str, operator: Operator, y: np.ndarray, noise: float, data: dict) -> Case:
    # Total variation does not see constants: one degree less than elements (E7).
    return Case(
        about=about,
        model=Model(Gaussian(operator, y, noise), TVStrength(degrees=y.size - 1)),
        theta=number(0.0),
        x=zeros(*y.shape),
        data={"y": y, "noise": np.asarray(noise), **data},
    )


def _learned_noise(about: str, operator: Operator, y: np.ndarray, data: dict) -> Case:
    term = TVStrength(degrees=y.size - 1).on(theta="strength")
    return Case(
        about=about,
        model=Model(Gaussian(operator, y, None, theta="noise"), term),
        theta={"strength": number(0.0), "noise": number(0.0)},
        x=zeros(*y.shape),
        data={"y": y, **data},
    )


@_kind.named("tv-signal")
def tv_signal() -> Case:
    r"""The potential of x is $e^\theta\,\mathrm{TV}(x) - 59\,\theta$, $y \sim N(x, .5^2)$."""
    about = "Denoising of a signal by total variation of learned strength."
    return _known_noise(about, Identity(), _signal(50), 0.5, {})


@_kind.named("tv-signal-learned-noise")
def tv_signal_learned_noise() -> Case:
    r"""As `tv-signal`, with the noise learned, too."""
    about = "Denoising of a signal by total variation; the strength and the noise are learned."
    return _learned_noise(about, Identity(), _signal(51), {})


@_kind.named("tv-image")
def tv_image() -> Case:
    r"""The potential of x is $e^\theta\,\mathrm{TV}(x) - 63\,\theta$, $y \sim N(x, 1)$, 8×8."""
    rng = np.random.default_rng(52)
    y = _image(rng) + rng.standard_normal((8, 8))
    about = "Denoising of an 8×8 image by anisotropic total variation of learned strength."
    return _known_noise(about, Identity(), y, 1.0, {})


@_kind.named("tv-image-no-noise")
def tv_image_no_noise() -> Case:
    r"""A cartoon without noise, and a noise to be learned: $\theta_n \to -\infty$."""
    about = "A noise-free image with a learned noise: the likelihood rises as it goes to 0."
    return _learned_noise(about, Identity(), _cartoon(), {})


@_kind.named("tv-blur")
def tv_blur() -> Case:
    r"""As `tv-image`, after a circular 3×3 box blur, with noise .2."""
    rng = np.random.default_rng(53)
    kernel = blur.box(3)
    y = np.asarray(_circular(_image(rng)) + 0.2 * rng.standard_normal((8, 8)))
    about = "Deblurring of an 8×8 image by total variation of learned strength."
    return _known_noise(about, CircularConvolution(kernel, (8, 8)), y, 0.2, {"kernel": kernel})


@_kind.named("tv-blur-learned-noise")
def tv_blur_learned_noise() -> Case:
    r"""As `tv-blur`, with the noise learned, too."""
    about = "Deblurring of an 8×8 image; the strength and the noise are learned."
    data = tv_blur().data
    operator = CircularConvolution(data["kernel"], (8, 8))
    return _learned_noise(about, operator, data["y"], {"kernel": data["kernel"]})


@_kind.named("tv-mask")
def tv_mask() -> Case:
    r"""As `tv-image`, with 40 of the 64 pixels seen, in noise .5."""
    rng = np.random.default_rng(54)
    seen = (rng.permutation(64).reshape(8, 8) < 40).astype(float)
    y = seen * (_image(rng) + 0.5 * rng.standard_normal((8, 8)))
    about = "Inpainting of an 8×8 image by total variation of learned strength."
    return _known_noise(about, Mask(jnp.asarray(seen)), y, 0.5, {"seen": seen})


def _circular(x: np.ndarray) -> np.ndarray:
    """The mean over 3×3 pixels, wrapping around."""
    shifts = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    return sum(np.roll(x, shift, (0, 1)) for shift in shifts) / np.asarray(9.0)
