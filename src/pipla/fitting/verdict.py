"""When a fit is done: what its trace and its particles say of the errors that are left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from pipla._intervals import LEVEL, tails_of
from pipla.algorithms.wrappers.paired import extrapolated
from pipla.diagnostics import monte_carlo_error, rhat, still_moving
from pipla.fitting.information import covariance_of, information, unmeasured
from pipla.fitting.observer import Observer
from pipla.models.model import Model

#: The part of the run that is left out.
BURN_IN = 1 / 3
#: The tolerance where none is given, in standard errors of theta.
TOLERANCE = 0.1
#: The order of the bias in the step: measured between 1 (Poisson sequences) and 1.7 (lasso,
#: nuclear norm, total variation). A wrong order leaves less than half of what is removed.
ORDER = 1.5
#: Near a constraint it is 1: half of the step halves the bias of a half-width (1.95 times).
ORDER_AT_WALLS = 1.0
#: The part of the tolerance that Monte-Carlo error may take.
SHARE = 0.6
#: The largest bias that extrapolation may remove, in tolerances: beyond, the step is too long.
LARGEST_BIAS = 5.0
#: Errors of x: of a posterior mean in sds, of a posterior sd relative to it.
MEAN_ERROR = 0.03
SD_ERROR = 0.014
#: The largest split R-hat among the elements of x that are watched.
LARGEST_RHAT = 1.05
#: The most that extrapolation may change a posterior mean (in sds) and a posterior sd (relative):
#: less than the accuracy that is wanted (.1 and 5 %). Where the likelihood is flat in a tail, an
#: sd changed by 7 % was 24 % off. Half of these limits costs more steps than it gains accuracy.
MEAN_BIAS, SD_BIAS = 0.08, 0.04
BIASED = ("a posterior mean by {0:.2g} sds", "a posterior sd by {0:.1%}")
#: The fewest looks from which errors of x are estimated.
FEWEST_LOOKS = 12
#: Where theta has no standard error, its tolerance is this part of its longest move.
FALLBACK = 0.02


class Estimate(NamedTuple):
    """What is known after some steps; theta is flattened."""

    burn_in: int
    order: float  # of the bias in the step
    theta: Float[np.ndarray, " k"]
    bias: Float[np.ndarray, " k"]  # of the fine run, removed by extrapolation
    mcse: Float[np.ndarray, " k"]
    covariance: Float[np.ndarray, "k k"]  # of the maximiser
    tolerance: Float[np.ndarray, " k"]
    x_errors: tuple[float, float, float]  # worst mean error, worst sd error, worst R-hat
    open_points: tuple[str, ...]  # what speaks against stopping
    settled: bool = True  # nothing of it is about theta
    hopeless: bool = False  # theta has no standard error, and more steps will not help
    drift: Float[np.ndarray, " k"] | float = 0.0  # between two halves, of what still moves
    x_bias: str = ""  # what of x the step changes too much
    #: Where the standard error is infinite because this run cannot measure it.
    unknown: Bool[np.ndarray, " k"] | None = None

    @property
    def stderr(self) -> Float[np.ndarray, " k"]:
        """The standard error of the maximiser."""
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def error(self) -> Float[np.ndarray, " k"]:
        """The Monte-Carlo error: noise about a moving mean does not say where it will end."""
        return np.maximum(self.mcse, self.drift)

    @property
    def mixed(self) -> bool:
        """Whether the particles agree about x."""
        return self.x_errors[2] <= LARGEST_RHAT

    @property
    def step_too_long(self) -> bool:
        """Whether the bias of the step is too large to be extrapolated away."""
        return bool(np.any(np.abs(self.bias) - 2 * self.mcse > LARGEST_BIAS * self.tolerance))


def order_of(model: Model) -> float:
    """The order of the bias in the step."""
    return ORDER if model.nonsmooth.finite else ORDER_AT_WALLS


class XAnswer(NamedTuple):
    """Means, sds and quantiles of x, flattened."""

    mean: Float[np.ndarray, " d"]
    sd: Float[np.ndarray, " d"]
    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]


def answer_for_x(
    observer: Observer, burn_in: int, order: float, mixed: bool, level: float = LEVEL
) -> XAnswer:
    """Mean, sd and the quantiles at both ends of an interval; no quantiles before x has mixed.

    They are those of the smaller step. Where its mean or sd differs from those of the longer step
    by more than noise, the bias is removed and the quantiles move along; to extrapolate everywhere
    would add more noise than it removes bias.
    """
    moments = observer.moments(burn_in)
    mean, sd = moments.mean[1], np.sqrt(moments.squares[1] / moments.number)
    samples = observer.samples(burn_in)[:, 1]
    low, high = np.quantile(samples.reshape(-1, samples.shape[-1]), tails_of(level), axis=0)
    if not mixed:
        low, high = np.full_like(low, np.nan), np.full_like(high, np.nan)
    if len(observer.particle_means(burn_in)) < FEWEST_LOOKS:
        return XAnswer(mean, sd, low, high)
    watched = observer.watched
    shift, stretch = np.zeros_like(mean), np.ones_like(sd)
    shifts, stretches = _x_biases(observer, burn_in, order)
    shift[watched] = shifts * sd[watched]
    stretch[watched] = 1 + np.clip(stretches, -0.3, 0.3)
    moved = mean + shift
    return XAnswer(
        moved, sd * stretch, moved + (low - mean) * stretch, moved + (high - mean) * stretch
    )


def _x_biases(
    observer: Observer, burn_in: int, order: float
) -> tuple[Float[np.ndarray, " w"], Float[np.ndarray, " w"]]:
    """What extrapolation adds to posterior means, in sds, and to sds, relative to them."""
    moments, watched = observer.moments(burn_in), observer.watched
    mean = moments.mean[1][watched]
    sd = np.sqrt(moments.squares[1] / moments.number)[watched]
    scale = np.where(sd > 0, sd, 1.0)
    first, second = np.moveaxis(observer.particle_means(burn_in), 0, 2)
    shift = _significant(first[1] - first[0]) / scale  # of the means over particles, at every look
    # The relative difference of sds, linearised: the difference of squares about the mean.
    squares = second - 2 * mean * first
    stretch = _significant((squares[1] - squares[0]) / (2 * scale**2))
    weight = 1 / (2**order - 1)
    return weight * np.where(sd > 0, shift, 0), weight * np.where(sd > 0, stretch, 0)


def _significant(series: Float[np.ndarray, "t w"]) -> Float[np.ndarray, " w"]:
    """The mean of a series, shrunk by what of its square may be noise (James and Stein)."""
    mean, error = series.mean(axis=0), 2 * monte_carlo_error(series)
    square = np.where(mean**2 > 0, mean**2, 1.0)
    return mean * np.maximum(1 - error**2 / square, 0.0)


def judge(
    coarse: Float[np.ndarray, "t k"],
    fine: Float[np.ndarray, "t k"],
    observer: Observer,
    names: list[str],
    longest: Float[np.ndarray, " k"],
    tolerance: Float[np.ndarray, " k"] | None,
    since: int,
    order: float,
    units: Float[np.ndarray, " k"] | float = np.inf,
) -> Estimate:
    """The estimate after these steps, of which those before `since` had another step size.

    The bias is of this order in the step; a change of theta by its units makes another prior.
    """
    burn_in = since + int(BURN_IN * (len(fine) - since))
    both = extrapolated((coarse[burn_in:], fine[burn_in:]), order)
    theta, mcse = both.mean(axis=0), monte_carlo_error(both)
    bias = fine[burn_in:].mean(axis=0) - theta
    scores = observer.scores_after(burn_in)
    size = len(theta)
    covariance, unknown = np.full((size, size), np.inf), np.ones(size, bool)
    lengths = np.where(np.isfinite(longest), longest, np.maximum(np.abs(theta), 1))
    if scores:
        observed = information(scores)
        covariance = covariance_of(observed.matrix, units)
        unknown = unmeasured(observed, np.where(np.isfinite(units), units, lengths))
    stderr = np.sqrt(np.diagonal(covariance))
    wanted = tolerance
    if wanted is None:
        wanted = np.where(np.isfinite(stderr), TOLERANCE * stderr, FALLBACK * lengths)
    flat = [f"{name} has no standard error" for name in np.asarray(names)[~np.isfinite(stderr)]]
    points: list[str] = []
    middle = max(len(both) // 2, 1)
    drift = np.abs(both[-middle:].mean(axis=0) - both[:middle].mean(axis=0))
    moving = np.zeros(size, bool)
    for k, name in enumerate(names):
        if still_moving(fine[burn_in:, k]) and drift[k] > wanted[k]:
            moving[k] = True
            points.append(f"{name} is still moving, by {drift[k]:.2g} in {middle} steps")
        elif not mcse[k] <= SHARE * wanted[k]:
            points.append(
                f"the Monte-Carlo error of {name}, {mcse[k]:.2g}, is above {SHARE * wanted[k]:.2g}"
            )
    settled = not points and not flat
    wanders = np.any(~np.isfinite(stderr) & (np.ptp(fine[burn_in:], axis=0) > units))
    x_errors = _x_errors(observer, burn_in)
    limits = (MEAN_ERROR, SD_ERROR, LARGEST_RHAT)
    what = ("error of a posterior mean, in sds,", "relative error of a posterior sd", "R-hat of x")
    for value, limit, words in zip(x_errors, limits, what, strict=True):
        if not value <= limit:
            points.append(f"the largest {words} is {value:.3g}, above {limit:g}")
    x_bias = ""
    if x_errors[2] <= LARGEST_RHAT:
        found = _x_biases(observer, burn_in, order)
        for values, limit, words in zip(found, (MEAN_BIAS, SD_BIAS), BIASED, strict=True):
            if (worst := float(np.max(np.abs(values)))) > limit:
                x_bias = words.format(worst)
        if x_bias:
            points.append(f"the bias of the step is too large for x: it changes {x_bias}")
    return Estimate(
        burn_in,
        order,
        theta,
        bias,
        mcse,
        covariance,
        wanted,
        x_errors,
        (*flat, *points),
        settled,
        bool(wanders) or (bool(flat) and not points),
        np.where(moving, drift, 0.0),
        x_bias,
        unknown,
    )


def _x_errors(observer: Observer, burn_in: int) -> tuple[float, float, float]:
    """Worst errors over the watched elements that vary."""
    series = observer.particle_means(burn_in)
    if len(series) < FEWEST_LOOKS:
        return float("inf"), float("inf"), float("inf")
    first, second = series[:, 0, 1], series[:, 1, 1]  # mean and mean square of the fine run
    mean = first.mean(axis=0)
    variance = second.mean(axis=0) - mean**2
    varies = variance > 1e-12 * np.maximum(mean**2, 1e-300)
    if not np.any(varies):  # particles that do not move know nothing
        return float("inf"), float("inf"), float("inf")
    sd = np.sqrt(variance[varies])
    mean_error = monte_carlo_error(first[:, varies]) / sd
    # d(variance) = d(square) - 2 mean d(mean), and half of its relative error is that of the sd.
    spread = second - 2 * mean * first
    sd_error = monte_carlo_error(spread[:, varies]) / (2 * sd**2)
    # Ranks of so many draws would take longer than the steps: 13 s against .6 s for 500 elements.
    draws = observer.samples(burn_in)[:, 1][:, :, observer.watched][..., varies]
    found = rhat(draws, "split")
    worst = float(np.nanmax(found)) if np.any(np.isfinite(found)) else float("inf")
    return float(mean_error.max()), float(sd_error.max()), worst
