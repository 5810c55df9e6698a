"""How far a restored picture is from the truth: MSE, PSNR, SSIM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def mse(picture: Any, truth: Any) -> float:
    """Mean squared error over all pixels (and channels)."""
    picture, truth = _pair(picture, truth)
    return float(np.mean((picture - truth) ** 2))


def psnr(picture: Any, truth: Any, peak: float = 255) -> float:
    r"""Peak signal-to-noise ratio in dB: $10 \log_{10}(\mathrm{peak}^2 / \mathrm{MSE})$.

    Nothing is clipped or rounded first; equal pictures have `inf`.

    >>> psnr(np.full((2, 2), 25.5), np.zeros((2, 2)))
    20.0
    """
    error = mse(picture, truth)
    return math.inf if error == 0 else 10 * math.log10(_positive(peak) ** 2 / error)


def ssim(picture: Any, truth: Any, peak: float = 255) -> float:
    r"""Structural similarity, 1 for equal pictures: scikit-image's defaults.

    A uniform window of 7×7 pixels, sample covariances, $K_1 = .01$, $K_2 = .03$, averaged over all
    pixels whose window lies inside, and over channels. (Wang et al. 2004 have a Gaussian window of
    11×11; their numbers are not comparable with these.)
    """
    from skimage.metrics import structural_similarity

    picture, truth = _pair(picture, truth)
    if picture.ndim not in (2, 3) or min(picture.shape[:2]) < 7:
        raise ValueError(
            f"picture has shape {picture.shape}; SSIM needs (rows, columns) or (rows, columns, "
            "channels) with at least 7 rows and columns."
        )
    channel = 2 if picture.ndim == 3 else None
    return float(
        structural_similarity(truth, picture, data_range=_positive(peak), channel_axis=channel)
    )


def _pair(picture: Any, truth: Any) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.asarray(picture, np.float64), np.asarray(truth, np.float64)
    if one.shape != other.shape or one.size == 0:
        raise ValueError(
            f"picture and truth must have the same shape; got {one.shape} and {other.shape}."
        )
    return one, other


def _positive(peak: float) -> float:
    if not (math.isfinite(peak) and peak > 0):
        raise ValueError(f"peak must be positive, the white of the pictures; got {peak}.")
    return float(peak)
