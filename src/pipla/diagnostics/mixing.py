"""Whether chains, or particles, agree with each other about what they sample."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

#: Fewer draws of each chain than this are not judged: R-hat is NaN. Halves need a variance.
FEWEST_DRAWS = 4
#: A series is constant if its variance is at most this share of its mean square: rounding.
CONSTANT = 1e-12


def rhat(
    draws: Float[np.ndarray, "time chains *shape"], method: Literal["rank", "split"] = "rank"
) -> Float[np.ndarray, "*shape"]:
    r"""The potential scale reduction $\hat R$ of split chains: 1 if they agree.

    Each chain is cut into two halves, so that a drift counts as a disagreement. With n draws in
    each half, $W$ the mean of their variances and $B/n$ the variance of their means,

    $$ \hat R = \sqrt{\frac{n - 1}{n} + \frac{B/n}{W}}. $$

    Arguments:
        draws: axes are time, chains (or particles), and any others.
        method: `"split"` takes the draws as they are (Gelman et al. 2013). `"rank"` is the larger
            of two: that of their normal scores, and that of the normal scores of their distances
            from the median (Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021), which also sees
            chains that differ in spread, or have no variance. Both as in ArviZ.

    Returns:
        One number for each series: NaN for fewer than 4 draws of each chain, and 1 for a constant.
    """
    half = len(draws) // 2
    if 2 * half < FEWEST_DRAWS:
        return np.full(draws.shape[2:], np.nan)
    # The middle draw of an odd number is in neither half.
    halves = np.concatenate([draws[:half], draws[-half:]], axis=1).astype(np.float64)
    if method == "split":
        found = _scale_reduction(halves)
    else:
        spread = np.abs(halves - np.median(halves, axis=(0, 1)))
        found = np.maximum(*(_scale_reduction(_normal_scores(each)) for each in (halves, spread)))
    constant = halves.var(axis=(0, 1)) <= CONSTANT * np.mean(halves**2, axis=(0, 1))
    return np.where(constant, 1.0, found)


def _scale_reduction(halves: NDArray[np.float64]) -> NDArray[np.float64]:
    draws = len(halves)
    within = halves.var(axis=0, ddof=1).mean(axis=0)
    between = halves.mean(axis=0).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that stand still
        return np.sqrt((draws - 1) / draws + between / within)


def _normal_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""$\Phi^{-1}((r - 3/8) / (S + 1/4))$ of the ranks r among all S draws of a series (Blom)."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    count = values.shape[0] * values.shape[1]
    ranks = rankdata(values.reshape(count, -1), axis=0)
    return ndtri((ranks - 0.375) / (count + 0.25)).reshape(values.shape)


def chance_of_differences(draws: Float[np.ndarray, "time chains"]) -> float:
    """The probability that chains differ as much by chance: the F test of one-way ANOVA.

    It is for few draws, where R-hat says little. Draws count as independent, so that it is too
    small for chains that move slowly.
    """
    from scipy.special import fdtrc

    times, count = draws.shape
    if times < 2 or count < 2:
        return 1.0
    within = np.mean(np.var(draws, axis=0, ddof=1))
    between = times * np.var(np.mean(draws, axis=0), ddof=1)
    ratio = between / within if within > 0 else np.inf
    return float(fdtrc(count - 1, count * (times - 1), ratio))
