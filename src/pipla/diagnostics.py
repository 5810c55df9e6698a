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
