"""Whether a series has settled."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def still_moving(trace: ArrayLike, ignore: ArrayLike = 0.0) -> bool:
    r"""Whether a series has not settled: its two halves differ by more than chance explains.

    In a stationary series the difference of the halves has about twice the standard error of the
    mean; six standard errors are three standard deviations (one in 370 by chance). The error is
    that of $\sqrt n$ batches (Flegal and Jones 2010), at least 12, in which a drift does not pass
    for a long correlation: a steady one over $b$ batches shows as $\sqrt{3b} \ge 6$ errors. A
    series of fewer than 24 values is not judged.

    Arguments:
        trace: the series; leading axis: time.
        ignore: a difference of the halves that is of no consequence, even if it is real.
    """
    values = np.asarray(trace, dtype=np.float64)
    middle = len(values) // 2
    if len(values) < 24:
        return False
    difference = np.abs(values[middle:].mean(axis=0) - values[:middle].mean(axis=0))
    # A little more than rounding, so that a frozen theta is never called moving.
    floor = 1e-6 * np.abs(values).mean(axis=0) + np.asarray(ignore)
    batches = max(12, int(np.sqrt(len(values))))
    kept = values[len(values) % batches :].reshape(batches, -1, *values.shape[1:])
    error = kept.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(batches)
    return bool(np.any(difference > np.maximum(5.9 * error, floor)))
