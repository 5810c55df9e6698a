"""Intervals: their level, their tails, and those of a new observation from draws of its mean."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from pipla import _checks

#: The probability of an interval where none is given.
LEVEL = 0.9


def percent(level: float) -> str:
    """A level in words.

    >>> percent(0.9)
    '90 %'
    """
    return f"{100 * level:g} %"


def normal_width(level: Any) -> float:
    """Half of the width of a normal interval, in standard deviations."""
    return statistics.NormalDist().inv_cdf(tails_of(level)[1])


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


def chosen_draws(count: int, wanted: Any, rng: Any) -> np.ndarray:
    """The places of `wanted` of `count` draws: all, some that are evenly spaced, or some twice.

    Arguments:
        count: how many there are.
        wanted: how many are asked for; `None` for all.
        rng: a `RandomState`, or a generator, of NumPy.
    """
    if wanted is None:
        return np.arange(count)
    wanted = _checks.integer("num_draws", wanted, least=1)
    if wanted <= count:
        return np.linspace(0, count - 1, wanted).round().astype(int)
    return np.concatenate([np.arange(count), rng.choice(count, wanted - count)])
