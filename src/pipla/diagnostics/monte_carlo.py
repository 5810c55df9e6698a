"""How much an average over a correlated series may be off."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def monte_carlo_error(trace: ArrayLike) -> NDArray[np.floating]:
    r"""The standard error of the mean of a correlated series (leading axis: time).

    With $\rho_k$ the autocorrelation of n values of variance $s^2$, and the correlation time
    $\tau = 1 + 2\sum_{k \le m} \rho_k$ over the first window m that is three times as long (Sokal
    1997), the error of the mean is

    $$ s \sqrt{\frac{\tau'/n}{1 - \tau'/n}}, \qquad
       \tau' = \tau \Bigl(1 + \frac{2m + 1}{n}\Bigr), $$

    with $\tau \ge 1$ and the denominator at least 1/2. The two corrections make up for deviations
    being taken from the mean of the series itself: on autoregressive series of ten correlation
    times and more it is right within 25 %, and rather too large. NaN for fewer than 4 values:
    nothing can be said.
    """
    values = np.asarray(trace, dtype=np.float64)
    n = len(values)
    if n < 4:
        return np.full(values.shape[1:], np.nan)
    variance, correlation = _variance_and_correlation(values)
    times = 2 * np.cumsum(correlation, axis=0) - 1
    lags = np.arange(n).reshape(-1, *(1,) * variance.ndim)
    window = np.argmax((lags >= 3 * times) | (lags == n - 1), axis=0)
    # The largest time on the way: sums that oscillate are not cut at their smallest.
    longest = np.take_along_axis(np.maximum.accumulate(times, axis=0), window[None], axis=0)[0]
    share = np.maximum(longest, 1.0) * (1 + (2 * window + 1) / n) / n
    return np.sqrt(variance * share / np.maximum(1 - share, 0.5))


def autocorrelation(trace: ArrayLike) -> NDArray[np.floating]:
    """The autocorrelation of a series (leading axis: time) at the lags 0, 1, …; 0 of a constant."""
    return _variance_and_correlation(np.asarray(trace, dtype=np.float64))[1]


def _variance_and_correlation(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n = len(values)
    spectrum = np.fft.rfft(values - values.mean(axis=0), 2 * n, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=0)[:n] / n
    variance = covariance[0]
    return variance, covariance / np.where(variance > 0, variance, 1.0)
