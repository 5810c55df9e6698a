"""How much a Monte-Carlo average may be off."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def monte_carlo_error(trace: ArrayLike) -> NDArray[np.floating]:
    r"""The standard error of the mean of a correlated series, by batch means.

    The series (leading axis: time) is cut into about $\sqrt n$ batches; their means are nearly
    independent once a batch is longer than the correlation time, so the spread of the batch means
    over $\sqrt{\text{batches}}$ estimates the error of the overall mean (Flegal and Jones 2010).
    NaN for fewer than 4 values: nothing can be said.
    """
    values = np.asarray(trace, dtype=np.float64)
    batches = int(np.sqrt(len(values)))
    if batches < 2:
        return np.full(values.shape[1:], np.nan)
    length = len(values) // batches
    # The oldest values are dropped when the batches do not fill the series.
    kept = values[len(values) - batches * length :]
    means = kept.reshape(batches, length, *values.shape[1:]).mean(axis=1)
    return means.std(axis=0, ddof=1) / np.sqrt(batches)


def still_moving(trace: ArrayLike) -> bool:
    r"""Whether a series has not settled: its two halves differ by more than chance explains.

    In a stationary series the difference of the halves has about twice the standard error of the
    mean; six standard errors are three standard deviations (one in 370 by chance). A steady drift
    shows as $\sqrt{3 \sqrt n}$ of them, so a series of fewer than 200 values is not judged.
    """
    values = np.asarray(trace, dtype=np.float64)
    middle = len(values) // 2
    if len(values) < 200:
        return False
    difference = np.abs(values[middle:].mean(axis=0) - values[:middle].mean(axis=0))
    # A little more than rounding, so that a frozen theta is never called moving.
    floor = 1e-6 * np.abs(values).mean(axis=0)
    return bool(np.any(difference > 6 * monte_carlo_error(values) + floor))
