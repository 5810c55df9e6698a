"""The distance between a restored image and the ground truth: MSE, PSNR, SSIM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipla import _checks
from pipla._extras import extra


def mse(image: Any, truth: Any) -> float:
    """Mean squared error over all pixels and channels."""
    image, truth = _pair(image, truth)
    return float(np.mean((image - truth) ** 2))


def psnr(image: Any, truth: Any, peak: float = 255) -> float:
    r"""Peak signal-to-noise ratio in dB: $10 \log_{10}(\mathrm{peak}^2 / \mathrm{MSE})$.

    Nothing is clipped or rounded first. Equal images have a PSNR of `inf`.

    Arguments:
        image, truth: arrays of the same shape.
        peak: the value of white.

    >>> print(f"{psnr(np.full((2, 2), 25.5), np.zeros((2, 2))):.1f}")
    20.0
    """
    error, white = mse(image, truth), _positive(peak)
    return math.inf if error == 0 else 20 * math.log10(white) - 10 * math.log10(error)


def ssim(image: Any, truth: Any, peak: float = 255) -> float:
    r"""Structural similarity with scikit-image's defaults; equal images have an SSIM of 1.

    A uniform window of 7×7 pixels, sample covariances, $K_1 = .01$, $K_2 = .03$, averaged over all
    pixels whose window lies inside the image, and over channels. (Wang et al. 2004 use a Gaussian
    window of 11×11; their values are not comparable with these.)

    Arguments:
        image, truth: arrays of shape (rows, columns) or (rows, columns, channels).
        peak: the value of white.
    """
    with extra("imaging", "SSIM"):
        from skimage.metrics import structural_similarity

    white = _positive(peak)
    image, truth = _pair(image, truth)
    if image.ndim not in (2, 3) or min(image.shape[:2]) < 7:
        raise ValueError(
            f"image has shape {image.shape}; SSIM needs (rows, columns) or (rows, columns, "
            "channels) with at least 7 rows and columns."
        )
    channel = 2 if image.ndim == 3 else None
    return float(
        structural_similarity(truth / white, image / white, data_range=1, channel_axis=channel)
    )


def _pair(image: Any, truth: Any) -> tuple[np.ndarray, np.ndarray]:
    one = _checks.on_host("image", image).astype(np.float64)
    other = _checks.on_host("truth", truth).astype(np.float64)
    if one.shape != other.shape or one.size == 0:
        raise ValueError(
            f"image and truth must have the same shape; got {one.shape} and {other.shape}."
        )
    return one, other


def _positive(peak: float) -> float:
    white = _checks.real("peak", peak)
    _checks.positive("peak", white)
    return white
