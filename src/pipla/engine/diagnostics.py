"""How much a Monte-Carlo average may be off."""

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
    spectrum = np.fft.rfft(values - values.mean(axis=0), 2 * n, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=0)[:n] / n
    variance = covariance[0]
    times = 2 * np.cumsum(covariance / np.where(variance > 0, variance, 1.0), axis=0) - 1
    lags = np.arange(n).reshape(-1, *(1,) * variance.ndim)
    window = np.argmax((lags >= 3 * times) | (lags == n - 1), axis=0)
    # The largest time on the way: sums that oscillate are not cut at their smallest.
    longest = np.take_along_axis(np.maximum.accumulate(times, axis=0), window[None], axis=0)[0]
    share = np.maximum(longest, 1.0) * (1 + (2 * window + 1) / n) / n
    return np.sqrt(variance * share / np.maximum(1 - share, 0.5))


def still_moving(trace: ArrayLike, travelled: ArrayLike = 0.0) -> bool:
    r"""Whether a series has not settled: its two halves differ by more than chance explains.

    In a stationary series the difference of the halves has about twice the standard error of the
    mean; six standard errors are three standard deviations (one in 370 by chance). The error is
    that of $\sqrt n$ batches (Flegal and Jones 2010), at least 12, in which a drift does not pass
    for a long correlation: a steady one over $b$ batches shows as $\sqrt{3b} \ge 6$ errors. A
    series of fewer than 24 values is not judged.

    A difference of less than a hundredth of the distance `travelled` from the start does not count:
    it is real, but of no consequence.
    """
    values = np.asarray(trace, dtype=np.float64)
    middle = len(values) // 2
    if len(values) < 24:
        return False
    difference = np.abs(values[middle:].mean(axis=0) - values[:middle].mean(axis=0))
    # A little more than rounding, so that a frozen theta is never called moving.
    floor = 1e-6 * np.abs(values).mean(axis=0) + 0.01 * np.asarray(travelled)
    batches = max(12, int(np.sqrt(len(values))))
    kept = values[len(values) % batches :].reshape(batches, -1, *values.shape[1:])
    error = kept.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(batches)
    return bool(np.any(difference > np.maximum(5.9 * error, floor)))
