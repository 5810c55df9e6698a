"""Restorations to compare with: Wiener filters and Richardson-Lucy.

Images may have any scale. Functions that take a `kernel` (of odd size, centred, summing to 1) wrap
around at the edges, as scikit-image's do; `reflecting` makes them reflect. An *oracle* chooses its
one parameter by the truth: an upper bound that is not attainable in practice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pipla.imaging.metrics import mse
from pipla_lab import checks

Operator = Callable[[np.ndarray], np.ndarray]


def unsupervised_wiener(y: np.ndarray, kernel: np.ndarray, seed: int = 0) -> np.ndarray:
    """The posterior mean under a Gaussian prior on the Laplacian, with learned precisions.

    scikit-image's Gibbs sampler (Orieux, Giovannelli and Rodet 2010) with its default settings.
    It starts at precisions of 1, so it works better for images in 0 to 255 than in 0 to 1.
    """
    from skimage.restoration import unsupervised_wiener as restore

    restored, _ = restore(np.asarray(y, np.float64), kernel, clip=False, rng=seed)
    return restored


def oracle_wiener(y: np.ndarray, kernel: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The Wiener filter with a prior on the Laplacian, regularised for the least error."""
    from scipy.optimize import minimize_scalar
    from skimage.restoration import wiener

    def restore(exponent: float) -> np.ndarray:
        return wiener(np.asarray(y, np.float64), kernel, 10.0**exponent, clip=False)

    best = minimize_scalar(
        lambda exponent: mse(restore(exponent), truth),
        bounds=(-8, 2),
        method="bounded",
        options={"xatol": 0.01},
    )
    return restore(best.x)


def richardson_lucy(
    y: np.ndarray, apply: Operator, adjoint: Operator, iterations: int = 30
) -> np.ndarray:
    r"""$x \leftarrow x \cdot H^\top(y / Hx) / H^\top 1$ from a constant, for any blur $H$.

    scikit-image's version assumes zeros beyond the edge, which darkens the margins of images that
    extend beyond it. Negative values of y count as 0.
    """
    *_, last = _richardson_lucy(y, apply, adjoint, iterations)
    return last


def oracle_richardson_lucy(
    y: np.ndarray, apply: Operator, adjoint: Operator, truth: np.ndarray, most: int = 500
) -> np.ndarray:
    """Richardson-Lucy, stopped at the smallest error within `most` iterations.

    The error falls, then rises: the search ends after 20 iterations without improvement.
    """
    best, error, since = np.asarray(y, np.float64), np.inf, 0
    for x in _richardson_lucy(y, apply, adjoint, most):
        now = mse(x, truth)
        if now < error:
            best, error, since = x, now, 0
        else:
            since += 1
            if since == 20:
                break
    return best


def reflecting(
    restore: Callable[..., np.ndarray], y: np.ndarray, **images: np.ndarray
) -> np.ndarray:
    """Turn circular into reflecting boundaries, by mirroring the image along both axes.

    For a symmetric kernel this is exact: the periodic extension of the mirrored image is the
    reflection of the image. `images`, such as `truth`, are mirrored too and passed on.
    """
    mirrored = {name: _mirror(image) for name, image in images.items()}
    restored = restore(_mirror(y), **mirrored)
    return restored[: y.shape[0], : y.shape[1]]


def _mirror(image: np.ndarray) -> np.ndarray:
    return np.pad(image, [(0, length) for length in image.shape], mode="symmetric")


def _richardson_lucy(
    y: np.ndarray, apply: Operator, adjoint: Operator, iterations: int
) -> Iterator[np.ndarray]:
    checks.integer("iterations", iterations, least=1)
    data = np.maximum(np.asarray(y, np.float64), 0)
    x = np.full(data.shape, data.mean())
    norm = adjoint(np.ones_like(data))
    tiny = 1e-12 * data.mean()
    for _ in range(iterations):
        x = x * adjoint(data / np.maximum(apply(x), tiny)) / norm
        yield x
