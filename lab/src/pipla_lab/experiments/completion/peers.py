"""SoftImpute with a validated path, in NumPy."""

from __future__ import annotations

import numpy as np

from pipla_lab.experiments.completion.matrices import Observed

#: Of the observations, held out to choose the penalty.
HELD_OUT = 0.15
#: Relative change at which an iteration is called converged.
TOLERANCE = 1e-4


def soft_impute(
    observed: Observed, penalty: float, start: np.ndarray, iterations: int = 300
) -> np.ndarray:
    """Minimise half the squared misfit plus `penalty` times the nuclear norm.

    Mazumder, Hastie and Tibshirani (2010): fill in the present matrix, threshold the singular
    values, repeat. The decomposition is that of the smaller Gram matrix, in float64.
    """
    x = start
    for _ in range(iterations):
        filled = x.copy()
        filled[observed.rows, observed.columns] = observed.values
        new = _thresholded(filled, penalty)
        change = np.linalg.norm(new - x)
        size, x = max(float(np.linalg.norm(x)), 1.0), new
        if change < TOLERANCE * size:
            break
    return x


def soft_impute_cv(
    observed: Observed, seed: int, penalties: int = 30, iterations: int = 60
) -> np.ndarray:
    """SoftImpute with the penalty of the smallest error at held-out entries, from a warm path."""
    hidden = np.random.default_rng(seed).random(len(observed.values)) < HELD_OUT
    shown, test = observed.some(~hidden), observed.some(hidden)
    zero = np.zeros(observed.shape)
    first = zero.copy()
    first[shown.rows, shown.columns] = shown.values
    largest = float(np.linalg.norm(first, 2))
    x, best, chosen, path = zero, np.inf, largest, largest * np.geomspace(0.9, 1e-4, penalties)
    for penalty in path:
        x = soft_impute(shown, penalty, x, iterations)
        error = float(np.mean((x[test.rows, test.columns] - test.values) ** 2))
        if error < best:
            best, chosen = error, float(penalty)
        elif error > 1.2 * best:  # the path has passed its minimum
            break
    return soft_impute(observed, chosen, x)


def centred_soft_impute_cv(observed: Observed, seed: int, **options: int) -> np.ndarray:
    """SoftImpute-CV of what the biased mean leaves over, and that mean added again."""
    mean, a, b = observed.biased_mean()
    base = mean + a[:, None] + b[None]
    left = observed._replace(values=observed.values - base[observed.rows, observed.columns])
    return base + soft_impute_cv(left, seed, **options)


def _thresholded(matrix: np.ndarray, penalty: float) -> np.ndarray:
    if matrix.shape[0] > matrix.shape[1]:
        return _thresholded(matrix.T, penalty).T
    squares, vectors = np.linalg.eigh(matrix @ matrix.T)
    size = np.sqrt(np.maximum(squares, 0.0))
    kept = size > penalty
    vectors, size = vectors[:, kept], size[kept]
    return (vectors * (1 - penalty / size)) @ (vectors.T @ matrix)
