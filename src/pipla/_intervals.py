"""Intervals of a new observation, from draws of its mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla import _checks


def tails_of(level: Any) -> tuple[float, float]:
    """The two tails of an interval of this probability."""
    level = _checks.level(level)
    return (1 - level) / 2, (1 + level) / 2


def mixture_quantile(means: np.ndarray, sd: float, tail: float) -> np.ndarray:
    """The quantile of an equal mixture of normals, for each column of means, by bisection."""
    from scipy.special import ndtr

    reach = 40 * sd
    low, high = means.min(axis=0) - reach, means.max(axis=0) + reach
    for _ in range(50):
        middle = 0.5 * (low + high)
        above = ndtr((middle - means) / sd).mean(axis=0) > tail
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)
