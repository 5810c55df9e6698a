r"""The marginal likelihood of a logistic lasso as a function of theta: an exact Gibbs sampler.

With $x_j$ Laplace of scale $e^{2\theta}$ and theta uniform on an interval, the posterior density of
theta *is* the marginal likelihood, normalised there. A sweep draws in turn, each given the rest:

- the Polya-Gamma variables of the rows (Polson, Scott and Windle 2013; Devroye's method), which
  make the likelihood Gaussian, and the variances of the coefficients, as in
  `lab/answers/gibbs.py`; then x;
- a factor of x (Metropolis), theta given x, and a common factor of x and $e^{2\theta}$
  (Metropolis; only the likelihood notices it): three times, because these mix theta.

The density of theta is averaged over its conditionals, $p(\theta \mid x) \propto
e^{-2d\theta - e^{-2\theta}|x|_1}$, and so is a smooth curve without a choice of bandwidth.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from scipy.special import gammainc, gammaln

#: Where Devroye's method changes from one series to the other.
CUT = 0.64
#: Sweeps that are left out.
WARM_UP = 300


@numba.njit
def _coefficient(n: int, x: float) -> float:
    half = n + 0.5
    if x > CUT:
        return np.pi * half * np.exp(-half * half * np.pi**2 * x / 2)
    return (2 / np.pi / x) ** 1.5 * np.pi * half * np.exp(-2 * half * half / x)


@numba.njit
def _normal_below(x: float) -> float:
    return 0.5 * math.erfc(-x / np.sqrt(2.0))


@numba.njit
def _inverse_gaussian_below_cut(z: float) -> float:
    """Inverse Gaussian with mean 1/z and shape 1, given that it is below the cut."""
    if z < 1 / CUT:
        while True:
            first, second = np.random.exponential(), np.random.exponential()
            if first * first > 2 * second / CUT:
                continue
            x = CUT / (1 + CUT * first) ** 2
            if np.random.random() <= np.exp(-z * z * x / 2):
                return x
    mean = 1 / z
    while True:
        y = np.random.normal() ** 2
        x = mean + 0.5 * mean * mean * y - 0.5 * mean * np.sqrt(4 * mean * y + (mean * y) ** 2)
        if np.random.random() > mean / (mean + x):
            x = mean * mean / x
        if x < CUT:
            return x


@numba.njit
def polya_gamma(tilt: float) -> float:
    """A draw of PG(1, tilt)."""
    z = abs(tilt) / 2
    rate = np.pi**2 / 8 + z * z / 2
    above = np.pi / (2 * rate) * np.exp(-rate * CUT)
    root = np.sqrt(1 / CUT)
    lower = _normal_below(root * (CUT * z - 1))
    upper = np.exp(2 * z + np.log(max(_normal_below(-root * (CUT * z + 1)), 1e-300)))
    below = 2 * np.exp(-z) * (lower + upper)
    while True:
        if np.random.random() < above / (above + below):
            x = CUT + np.random.exponential() / rate
        else:
            x = _inverse_gaussian_below_cut(z)
        total, n = _coefficient(0, x), 0
        y = np.random.random() * total
        while True:  # an alternating series: its sums are bounds by turns
            n += 1
            if n % 2:
                total -= _coefficient(n, x)
                if y <= total:
                    return x / 4
            else:
                total += _coefficient(n, x)
                if y > total:
                    break


@numba.njit
def draws_of(tilt: float, count: int) -> np.ndarray:
    """Many draws of PG(1, tilt), for a check of their moments."""
    return np.array([polya_gamma(tilt) for _ in range(count)])


@numba.njit
def _log_likelihood(z: np.ndarray, signs: np.ndarray) -> float:
    total = 0.0
    for i in range(len(z)):
        margin = 2 * signs[i] * z[i]
        total -= max(-margin, 0.0) + np.log1p(np.exp(-abs(margin)))
    return total


@numba.njit
def _coefficients(
    features: np.ndarray, signs: np.ndarray, x: np.ndarray, z: np.ndarray, strength: float
) -> np.ndarray:
    """X given theta, by its auxiliary variables."""
    size, columns = len(x), np.ascontiguousarray(features.T)
    weights = np.array([polya_gamma(each) for each in z])
    precision = (columns * weights) @ features
    for j in range(size):  # inverse variances: inverse Gaussian (Michael, Schucany and Haas)
        mean = strength / max(abs(x[j]), 1e-12)
        half = mean * np.random.normal() ** 2 / (2 * strength**2)
        root = mean / (1 + half + np.sqrt(half * (half + 2)))
        larger = np.random.random() * (mean + root) > mean
        precision[j, j] += mean * (mean / root) if larger else root
    lower = np.linalg.cholesky(precision)
    new = columns @ signs
    for i in range(size):
        new[i] = (new[i] - lower[i, :i] @ new[:i]) / lower[i, i]
    new += np.random.normal(0.0, 1.0, size)
    upper = np.ascontiguousarray(lower.T)
    for i in range(size - 1, -1, -1):
        new[i] = (new[i] - upper[i, i + 1 :] @ new[i + 1 :]) / upper[i, i]
    return new


@numba.njit
def _chain(
    features: np.ndarray, signs: np.ndarray, sweeps: int, low: float, high: float, seed: int
) -> np.ndarray:
    """|x|_1 after each sweep; `signs` are 1/2 and -1/2."""
    np.random.seed(seed)
    size = features.shape[1]
    theta, x = 0.5 * (low + high), 0.1 * np.random.normal(0.0, 1.0, size)
    z, norms = features @ x, np.empty(sweeps)
    for sweep in range(-WARM_UP, sweeps):
        x = _coefficients(features, signs, x, z, np.exp(-2 * theta))
        z, norm = features @ x, np.sum(np.abs(x))
        value = _log_likelihood(z, signs)
        for _ in range(3):
            move = 0.25 * np.random.normal()
            new = _log_likelihood(z * np.exp(move), signs)
            prior = size * move - np.exp(-2 * theta) * norm * (np.exp(move) - 1)
            if np.log(np.random.random()) < new - value + prior:
                x, z, norm, value = x * np.exp(move), z * np.exp(move), norm * np.exp(move), new
            for _ in range(100):  # by rejection; of 100 outside of the interval, none is taken
                proposal = -0.5 * np.log(np.random.gamma(size, 1.0) / norm)
                if low < proposal < high:
                    theta = proposal
                    break
            move = 0.7 * np.random.normal()
            if low < theta + move / 2 < high:
                new = _log_likelihood(z * np.exp(move), signs)
                if np.log(np.random.random()) < new - value:
                    x, z, norm, value = x * np.exp(move), z * np.exp(move), norm * np.exp(move), new
                    theta += move / 2
        if sweep >= 0:
            norms[sweep] = norm
    return norms


def log_marginal_likelihood(
    features: np.ndarray, labels: np.ndarray, grid: np.ndarray, sweeps: int, seed: int
) -> np.ndarray:
    """At each theta of a grid, up to a constant; theta is between its first and its last."""
    size, low, high = features.shape[1], float(grid[0]), float(grid[-1])
    norms = _chain(np.ascontiguousarray(features), labels - 0.5, sweeps, low, high, seed)
    inside = gammainc(size, np.exp(-2 * low) * norms) - gammainc(size, np.exp(-2 * high) * norms)
    logs = np.log(2.0) - gammaln(size) - np.log(inside)
    each = logs[:, None] + size * (np.log(norms)[:, None] - 2 * grid)
    each -= np.exp(-2 * grid) * norms[:, None]
    most = each.max(axis=0)
    return most + np.log(np.exp(each - most).mean(axis=0))
