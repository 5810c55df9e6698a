r"""Two predictions of a label, weighed by leaving observations out.

An average over the posterior weighs every way to separate the classes that the prior allows. Where
the classes keep a distance that labels alone do not tell (their features differ by more than is
needed), the average is too cautious, at any scale of the prior, and the mode is not. So, where a
plane separates the classes, the probability is $\omega \bar p + (1 - \omega) \hat p$: $\bar p$ is
the average over the posterior, $\hat p$ that of the mode under a normal prior with the learned
variance, and $\omega$ maximises $\sum_i \log(\omega \bar p_{-i} + (1 - \omega) \hat p_{-i})$
(stacking: Yao, Vehtari, Simpson and Gelman 2018). Nothing is fitted again:
$\bar p_{-i} = 1 / E[1 / p_i]$ over the posterior, and $\hat p_{-i}$ is one step of Newton away from
the mode. Where no plane separates the classes, the labels determine the scale of the prior, and the
average stands alone: an estimated $\omega$ would add noise and nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.special import expit, logsumexp

from pipla.regression._design import Design
from pipla.regression._state import Columns

#: Newton's steps cost rows times size squared each; beyond this there is no second prediction.
MOST_WORK, LARGEST = 4e9, 1000
#: A normal prior with this multiple of the learned variance counts as flat.
FLAT = 1000.0
#: Linear predictors (draws times rows) that are in memory at a time.
_CHUNK = 4_000_000


class Labels(NamedTuple):
    """Labels to predict.

    Attributes:
        columns: standardised features.
        y, weights: labels 0 and 1, and the weights of the observations.
        base: the log-odds that the intercept is centred at.
        level_variance: of the normal prior of the intercept; 0 for none.
    """

    columns: Columns
    y: np.ndarray
    weights: np.ndarray
    base: float
    level_variance: float


class Mode(NamedTuple):
    """The second prediction, for the user's features; `share` is the weight of the average."""

    coefficients: np.ndarray
    level: float
    share: float


def stacked(
    labels: Labels, design: Design, variance: float, draws: np.ndarray, levels: np.ndarray
) -> Mode | None:
    """The mode and the weights of both predictions.

    None if no plane separates the classes, or if that is too much work.

    Arguments:
        labels: the data.
        design: how coefficients return to the user's features.
        variance: of the normal prior of the mode.
        draws, levels: coefficients (draws, features) and intercepts of the posterior.
    """
    rows, size = len(labels.y), design.size
    rank = min(rows, size)
    if not 0 < rank <= LARGEST or rows * rank**2 > MOST_WORK or not variance > 0:
        return None
    x = _matrix(labels.columns, rows)
    coordinates, back = reduced(x)
    if not separable(labels, coordinates, variance):
        return None
    b, level, left_out = ridge_mode(labels, coordinates, variance)
    b = back @ b
    average = average_left_out(labels, x, draws, levels)
    share = best_share(average, left_out, labels.weights)
    moved = float(design.level(b, np.array(level)))
    return Mode(design.coefficients(b), moved + labels.base, share)


def _matrix(columns: Columns, rows: int) -> Any:
    if columns.dense.size:
        return columns.dense.T
    shape = (rows, len(columns.starts) - 1)
    return scipy.sparse.csc_array((columns.values, columns.rows, columns.starts), shape).tocsr()


def reduced(x: Any) -> tuple[np.ndarray, Any]:
    """At most as many coordinates as rows, and the matrix that returns to the coefficients.

    The mode under a normal prior depends on the features only through XX'.
    """
    if x.shape[1] <= x.shape[0]:
        dense = x if isinstance(x, np.ndarray) else x.toarray()
        return dense, scipy.sparse.eye_array(x.shape[1])
    gram = x @ x.T
    values, vectors = np.linalg.eigh(gram if isinstance(gram, np.ndarray) else gram.toarray())
    used = values > 1e-12 * values[-1]
    root = np.sqrt(values[used])
    return vectors[:, used] * root, x.T @ (vectors[:, used] / root)


def separable(labels: Labels, x: np.ndarray, variance: float) -> bool:
    """Whether the mode under a nearly flat prior is right about every label."""
    if x.shape[1] == len(x):  # of full rank: a plane goes through any labels
        return True
    b, level, _ = ridge_mode(labels, x, FLAT * variance)
    return bool(np.all((2 * labels.y - 1) * (labels.base + x @ b + level) > 0))


def ridge_mode(
    labels: Labels, x: np.ndarray, variance: float
) -> tuple[np.ndarray, float, np.ndarray]:
    """Mode and intercept, and the probability of each label once it is left out.

    Leaving out moves the mode by about a step of Newton: the predictor by $r h / (1 - c h)$ with
    the residual r, its leverage h and its curvature c.
    """
    penalty = np.full(x.shape[1], 1 / variance)
    if labels.level_variance > 0:
        x = np.column_stack([x, np.ones(len(x))])
        penalty = np.append(penalty, 1 / labels.level_variance)
    y, weights = labels.y, labels.weights

    def value(b: np.ndarray) -> float:
        z = labels.base + x @ b
        return float(weights @ (np.logaddexp(0, z) - y * z) + 0.5 * penalty @ b**2)

    b, now = np.zeros(x.shape[1]), value(np.zeros(x.shape[1]))
    for _ in range(100):
        p = expit(labels.base + x @ b)
        curvature = p * (1 - p)
        gradient = x.T @ (weights * (p - y)) + penalty * b
        hessian = (x.T * (weights * curvature)) @ x + np.diag(penalty)
        step = scipy.linalg.solve(hessian, gradient, assume_a="pos")
        slope = float(gradient @ step)
        if slope < 1e-12 * (1 + now):  # twice what is left to gain
            break
        length = 1.0
        while value(b - length * step) > now - 1e-4 * length * slope and length > 1e-10:
            length *= 0.5
        b = b - length * step
        now = value(b)
    leverage = np.sum(scipy.linalg.solve(hessian, x.T, assume_a="pos").T * x, axis=1)
    count = np.minimum(weights, 1)  # one of several equal observations is left out
    moved = labels.base + x @ b
    moved = moved + count * (p - y) * leverage / np.maximum(1 - count * curvature * leverage, 1e-3)
    left_out = expit(np.where(y > 0, moved, -moved))
    level = float(b[-1]) if labels.level_variance > 0 else 0.0
    return b[: len(b) - (labels.level_variance > 0)], level, left_out


def average_left_out(labels: Labels, x: Any, draws: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The average probability of each label, once it is left out: importance sampling."""
    count = np.minimum(labels.weights, 1)[:, None]
    sign = np.where(labels.y > 0, 1.0, -1.0)[:, None]
    flat = draws.astype(np.float64).T
    step = max(_CHUNK // len(draws), 1)
    found = []
    for start in range(0, len(sign), step):
        part = slice(start, start + step)
        z = sign[part] * (labels.base + x[part] @ flat + levels)
        log_p = -np.logaddexp(0, -z)
        above = logsumexp((1 - count[part]) * log_p, axis=1)
        found.append(np.exp(above - logsumexp(-count[part] * log_p, axis=1)))
    return np.concatenate(found)


def best_share(average: np.ndarray, mode: np.ndarray, weights: np.ndarray) -> float:
    """The weight of the first of two predictions that maximises the score; it is concave."""

    def slope(share: float) -> float:
        mixed = share * average + (1 - share) * mode
        return float(weights @ ((average - mode) / np.maximum(mixed, 1e-300)))

    low, high = 0.0, 1.0
    if slope(high) >= 0:
        return 1.0
    if slope(low) <= 0:
        return 0.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return 0.5 * (low + high)
