r"""Two predictions of a label, weighed by labels that neither of them has seen.

An average over the posterior weighs every way to separate the classes that the prior allows. Where
the classes keep a distance that labels alone do not tell (their features differ by more than is
needed), the average is too cautious, at any scale of the prior, and the mode is not. So, where a
plane separates the classes, the probability is $\omega \bar p + (1 - \omega) \hat p$: $\bar p$ is
the average over the posterior, $\hat p$ that of the mode under a normal prior with the learned
variance, and $\omega$ maximises $\sum_i \log(\omega \bar p_{-i} + (1 - \omega) \hat p_{-i})$
(stacking: Yao, Vehtari, Simpson and Gelman 2018). Both predict each fifth of the labels from the
other four: chains are run again, from 0 and without learning the prior first. Weights of the draws
that leave a label out (importance sampling) are no substitute. Near a separating plane hardly any
draw is as wrong about a label as those without it are, and the average looks far better than it is.
`benchmarks/regression/labels.py` has the losses of average and mixture on new labels. Where no
plane separates the classes, the labels determine the scale of the prior, and the average stands
alone: an estimated $\omega$ would add noise and nothing else.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.special import expit

from pipla.regression._chains import GlmChain
from pipla.regression._design import Design, dense_columns
from pipla.regression._learned import CHAINS
from pipla.regression._state import Columns, Prior, Tally

#: Newton's steps cost rows times size squared each; beyond this there is no second prediction.
MOST_WORK, LARGEST = 4e9, 1000
#: A normal prior with this multiple of the learned variance counts as flat.
FLAT = 1000.0
#: The parts that labels are left out in, and the sweeps without them: before draws are kept, after.
FOLDS, BURN_IN, KEPT = 5, 100, 100


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
    labels: Labels, design: Design, variance: float, prior: Prior, rate: float, visits: np.ndarray
) -> Mode | None:
    """The mode and the weights of both predictions.

    None if no plane separates the classes, or if that is too much work.

    Arguments:
        labels: the data.
        design: how coefficients return to the user's features.
        variance: of the normal prior of the mode.
        prior, rate: the prior of the average, and whether its weights are drawn (-1) or known (0).
        visits: how often sweeps update each coefficient.
    """
    rows, size = len(labels.y), design.size
    rank = min(rows, size)
    if not 0 < rank <= LARGEST or rows * rank**2 > MOST_WORK or not variance > 0:
        return None
    x = _matrix(labels.columns, rows)
    coordinates, back = reduced(x)
    if not separable(labels, coordinates, variance):
        return None
    b, level = ridge_mode(labels, coordinates, variance)
    b = back @ b
    average, mode = left_out(labels, x, variance, prior, rate, visits)
    share = best_share(average, mode, labels.weights)
    moved = float(design.level(b, np.array(level)))
    return Mode(design.coefficients(b), moved + labels.base, share)


def _matrix(columns: Columns, rows: int) -> Any:
    if columns.dense.size:
        return columns.dense.T
    shape = (rows, len(columns.starts) - 1)
    return scipy.sparse.csc_array((columns.values, columns.rows, columns.starts), shape).tocsr()


def _columns(x: Any) -> Columns:
    if isinstance(x, np.ndarray):
        return dense_columns(np.ascontiguousarray(x.T))
    csc = x.tocsc()
    rows, starts = csc.indices.astype(np.int32), csc.indptr.astype(np.int64)
    return Columns(np.zeros((0, 0)), csc.data, rows, starts)


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
    b, level = ridge_mode(labels, x, FLAT * variance)
    return bool(np.all((2 * labels.y - 1) * (labels.base + x @ b + level) > 0))


def ridge_mode(labels: Labels, x: np.ndarray, variance: float) -> tuple[np.ndarray, float]:
    """Mode and intercept, by Newton's method."""
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
    level = float(b[-1]) if labels.level_variance > 0 else 0.0
    return b[: len(b) - (labels.level_variance > 0)], level


def parts_of(y: np.ndarray) -> np.ndarray:
    """The part of each label; each has its share of both classes."""
    part = np.empty(len(y), int)
    order = np.lexsort((np.random.default_rng(0).random(len(y)), y))
    part[order] = np.arange(len(y)) % FOLDS
    return part


def left_out(
    labels: Labels, x: Any, variance: float, prior: Prior, rate: float, visits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities that average and mode give to each label, from other parts of the data."""
    part, found = parts_of(labels.y), np.empty((2, len(labels.y)))

    def one(fold: int) -> None:
        seen, new = part != fold, part == fold
        y, weights = labels.y[seen], labels.weights[seen]
        some = labels._replace(columns=_columns(x[seen]), y=y, weights=weights)
        base, intercept = np.full(len(y), labels.base), labels.level_variance > 0
        start, seed = np.zeros(x.shape[1]), np.random.SeedSequence(fold)
        chain = GlmChain(some.columns, y, weights, base, intercept, False, start, seed)
        chain.visits = visits
        own = Prior(prior.variances, prior.weights.copy())
        for sweeps in (BURN_IN, KEPT):
            tally = Tally.empty(chain.size, len(own.variances), sweeps, sweeps)
            chain.sweep(own, np.full(sweeps, rate), 1, tally)
        z = x[new] @ tally.draws.astype(np.float64).T + tally.levels[0]
        coordinates, back = reduced(x[seen])
        b, level = ridge_mode(some, coordinates, variance)
        sign = 2 * labels.y[new] - 1
        found[0, new] = expit(sign[:, None] * (labels.base + z)).mean(axis=1)
        found[1, new] = expit(sign * (labels.base + x[new] @ (back @ b) + level))

    with ThreadPoolExecutor(CHAINS) as pool:
        list(pool.map(one, range(FOLDS)))
    return found[0], found[1]


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
