"""Restorations to compare with: Wiener filters and Richardson-Lucy.

Pictures may have any scale. Those that take a `kernel` (odd in size, centred, summing to 1) wrap
around at the edges, as scikit-image's do; `reflecting` makes them reflect. An *oracle* sees the
truth, and chooses its one number by it: nobody can choose better, and nobody can choose so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pipla import _checks
from pipla.imaging.metrics import mse

Operator = Callable[[np.ndarray], np.ndarray]


def unsupervised_wiener(y: np.ndarray, kernel: np.ndarray, seed: int = 0) -> np.ndarray:
    """The posterior mean under a Gaussian prior on the Laplacian; noise and prior are learned.

    scikit-image's Gibbs sampler (Orieux, Giovannelli and Rodet 2010) with its default settings.
    It starts at precisions of 1, so that 0 to 255 suits it better than 0 to 1.
    """
    from skimage.restoration import unsupervised_wiener as restore

    restored, _ = restore(np.asarray(y, np.float64), kernel, clip=False, rng=seed)
    return restored


def oracle_wiener(y: np.ndarray, kernel: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The Wiener filter with a prior on the Laplacian, at the balance with the smallest error."""
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

    scikit-image has it for zeros beyond the edge only, which darkens the margins of pictures that
    go on there. What is negative in y counts as 0.
    """
    *_, last = _richardson_lucy(y, apply, adjoint, iterations)
    return last


def oracle_richardson_lucy(
    y: np.ndarray, apply: Operator, adjoint: Operator, truth: np.ndarray, most: int = 500
) -> np.ndarray:
    """The same, stopped where it is nearest to the truth; iterations beyond `most` are not tried.

    Its error falls, then rises: it stops for good when 20 iterations have brought nothing.
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
    restore: Callable[..., np.ndarray], y: np.ndarray, **pictures: np.ndarray
) -> np.ndarray:
    """Let a restoration that wraps around reflect instead, by mirroring the picture in both axes.

    For a symmetric kernel this is exact: what repeats after twice the length of a mirrored picture
    is its reflection. `pictures`, such as `truth`, are mirrored too and handed on.
    """
    mirrored = {name: _mirror(picture) for name, picture in pictures.items()}
    restored = restore(_mirror(y), **mirrored)
    return restored[: y.shape[0], : y.shape[1]]


def _mirror(picture: np.ndarray) -> np.ndarray:
    return np.pad(picture, [(0, length) for length in picture.shape], mode="symmetric")


def _richardson_lucy(
    y: np.ndarray, apply: Operator, adjoint: Operator, iterations: int
) -> Iterator[np.ndarray]:
    _checks.integer("iterations", iterations, least=1)
    data = np.maximum(np.asarray(y, np.float64), 0)
    x = np.full(data.shape, data.mean())
    norm = adjoint(np.ones_like(data))
    tiny = 1e-12 * data.mean()
    for _ in range(iterations):
        x = x * adjoint(data / np.maximum(apply(x), tiny)) / norm
        yield x
