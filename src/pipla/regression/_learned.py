r"""Sampling the coefficients under a prior whose shape is learned.

The prior is $\pi_0 \delta_0 + \sum_k \pi_k N(0, v_k)$ on a geometric grid of variances. Several
chains sweep over the coefficients in threads (`_linear`, `_kernels`). First the weights, and the
noise of a linear regression, are learned by stochastic EM (the maximum of the marginal likelihood,
with a little in favour of 0), in blocks after which the chains share what they learned and the
grid is extended where the data ask for it. Then the chains sample the coefficients together with
theta, under a prior of theta that weighs little, until predictions are known well enough
(`_precision`). Held at its maximum, theta would give intervals that are too short where the shape
is uncertain (dense effects, for example).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from pipla.diagnostics import rhat
from pipla.regression._factors import Factors, references, relative
from pipla.regression._mixture import learn
from pipla.regression._precision import (
    FIRST,
    another_round,
    monte_carlo_error,
)
from pipla.regression._state import Prior, Tally

#: Independent chains: one per thread of a small machine, and two can be compared.
CHAINS = 2
#: Sweeps of the blocks in which theta is learned, and the rate in each.
LEARNING = ((30, 0.3), (30, 0.3), (40, 0.2), (60, 0.1), (120, 0.05))
#: The ratio of neighbouring variances of the grid.
RATIO = 4.0
#: The largest variance that the grid is extended to, for features of variance 1.
LARGEST = 4.0**8
#: Draws are kept as float32 numbers, at most this many.
MOST_NUMBERS = 60_000_000
MOST_DRAWS, FEWEST_DRAWS = 600, 100

#: Called after each block with the sweeps made and the sweeps there will be; True stops.
Progress = Callable[[int, int], Any]


class Chain(Protocol):
    """One chain: coefficients of shape (size,), and the noise if there is one."""

    size: int
    levels: int  # the number of intercepts
    noise: np.ndarray
    work: float  # numbers in the features that a sweep goes through
    factors: Factors  # columns that are the levels of a category
    correlated: bool = False  # whether features are strongly correlated
    backwards: bool = False  # from the last coefficient to the first

    def attend(self, inclusion: np.ndarray) -> None:
        """Prefer coefficients that have probably an effect, given what was learned so far."""

    def predicted(self, tally: Tally, sweeps: int) -> np.ndarray:
        """What determines predictions for (some of) the observations, after so many sweeps."""

    def square(self, d: np.ndarray, m: np.ndarray) -> float:
        """The square of a difference d of such predictions near m, as in `_precision`."""

    def sweep(self, prior: Prior, rates: np.ndarray, thin: int, tally: Tally) -> None:
        """As many sweeps as there are rates; `tally` and, while learning, `prior` are updated."""


class Posterior(NamedTuple):
    """What was learned and drawn, for standardised features.

    Attributes:
        variances, weights: the prior that maximises the marginal likelihood; the first variance
            is 0.
        noise: sigma there; NaN where there is none.
        mean: the posterior mean of each coefficient.
        slab: the posterior probability that it is not 0.
        draws, levels: of coefficients and intercepts, one row per draw, chain after chain.
        trace: the learned noise and weight of 0 after each sweep of the first chain.
        rhat: the largest potential scale reduction over what was monitored: the largest
            coefficients, and the squared residuals of a linear regression.
        worst: the coefficient that it is of; -1 for the residuals.
        error: the Monte-Carlo error of predictions, as `_precision` defines it.
        theta_rhat: the largest potential scale reduction of the logarithms of theta.
        theta: draws of (sigma, the weight of 0, the standard deviation of the others).
        acceptance: the part of proposals that were accepted; 1 for exact conditionals.
        sweeps, seconds: of each chain, and of the whole.
        factors: columns that are the levels of a category; effects are relative to the first.
    """

    variances: np.ndarray
    weights: np.ndarray
    noise: float
    mean: np.ndarray
    slab: np.ndarray
    draws: np.ndarray
    levels: np.ndarray
    trace: np.ndarray
    rhat: float
    worst: int
    error: float
    theta_rhat: float
    theta: np.ndarray
    acceptance: float
    sweeps: int
    seconds: float
    factors: tuple[tuple[int, ...], ...]

    @property
    def prior_sd(self) -> float:
        """The standard deviation of the learned prior."""
        return float(np.sqrt(self.weights @ self.variances))


def sample(
    chains: list[Chain],
    smallest: float,
    degrees: float,
    start: Prior | None = None,
    progress: Progress = lambda done, total: None,
    equal: Sequence[np.ndarray] = (),
) -> Posterior:
    """Learn the prior and sample the posterior.

    Arguments:
        chains: at their starting points.
        smallest: the smallest variance of the grid.
        degrees: the degrees of freedom of the residuals; 0 where there is no noise.
        start: an earlier prior to start from.
        progress: called after each block.
        equal: groups of coefficients whose features are equal. The posterior does not change if
            they change places, which is a step that the chains themselves would hardly ever make.
    """
    began = time.perf_counter()
    done, total = 0, sum(count for count, _ in LEARNING) + FIRST
    for place, chain in enumerate(chains):
        chain.backwards = place % 2 == 1
    prior = grid(smallest) if start is None else start
    trace: list[np.ndarray] = []
    with ThreadPoolExecutor(len(chains)) as pool:
        for count, rate in LEARNING:
            tallies = _block(pool, chains, _copies(prior, chains), np.full(count, rate), 1, 0)
            prior = _pooled(chains, prior, tallies, rate, trace)
            done += count
            if progress(done, total):
                break
        noise = float(chains[0].noise[0])
        priors = _copies(prior, chains)  # each chain draws its own weights from here
        sweeps = FIRST
        while True:
            found = _round(pool, chains, priors, sweeps, bool(degrees), equal)
            done += sweeps
            seen = (found.error, found.rhat, bool(degrees))
            more = another_round(sweeps, *seen, chains[0].work, chains[0].correlated)
            total = done + 2 * sweeps * more
            if progress(done, total) or total == done:
                break
            sweeps *= 2
    return Posterior(
        variances=prior.variances,
        weights=prior.weights,
        noise=float(np.sqrt(noise)) if degrees else float("nan"),
        mean=found.mean,
        slab=found.slab,
        draws=found.draws,
        levels=found.levels,
        trace=np.concatenate(trace),
        rhat=found.rhat,
        worst=found.worst,
        error=found.error,
        theta_rhat=found.theta_rhat,
        theta=found.theta,
        acceptance=found.acceptance,
        sweeps=done,
        seconds=time.perf_counter() - began,
        factors=found.factors,
    )


class Round(NamedTuple):
    """What the chains drew in a round; see `Posterior`."""

    mean: np.ndarray
    slab: np.ndarray
    draws: np.ndarray
    levels: np.ndarray
    theta: np.ndarray
    rhat: float
    worst: int
    error: float
    theta_rhat: float
    acceptance: float
    factors: tuple[tuple[int, ...], ...]


def _relative(
    factors: Factors, kept: np.ndarray, mean: np.ndarray, slab: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[tuple[int, ...], ...]]:
    """Draws, means, probabilities of not being 0 and intercepts relative to reference levels.

    Also the columns of each factor, the reference first. The last axis of `kept`, `mean` and `slab`
    are coefficients, output after output; that of `levels` are outputs.
    """
    if not len(factors.members):
        return kept, mean, slab, levels, ()
    outputs = levels.shape[-1]
    shape = (outputs, -1)
    places = references(factors, slab.reshape(shape))
    moved, gained = relative(factors, places, kept.reshape(*kept.shape[:-1], *shape))
    kept = moved.reshape(kept.shape)
    mean = relative(factors, places, mean.reshape(shape))[0].ravel()
    members = (np.arange(outputs)[:, None] * moved.shape[-1] + factors.members).ravel()
    slab = slab.copy()
    slab[members] = np.mean(kept[..., members] != 0, axis=(0, 1))
    columns = [
        (
            int(factors.members[place]),
            *np.delete(factors.members[part], place - part.start).tolist(),
        )
        for part, place in zip(factors.groups(), places, strict=True)
    ]
    return kept, mean, slab, levels + gained, tuple(columns)


def _round(
    pool: ThreadPoolExecutor,
    chains: list[Chain],
    priors: list[Prior],
    sweeps: int,
    linear: bool,
    equal: Sequence[np.ndarray],
) -> Round:
    """So many sweeps of every chain, in two halves, that draw theta, too."""
    size = chains[0].size
    draws = int(np.clip(MOST_NUMBERS // max(size, 1), FEWEST_DRAWS, MOST_DRAWS)) // len(chains)
    thin = -(-sweeps // draws)
    half = sweeps // 2
    halves = [
        _block(pool, chains, priors, np.full(half, -1.0), thin, half // thin) for _ in range(2)
    ]
    parts = np.stack(
        [
            [chain.predicted(tally, half) for tally in tallies]
            for chain, *tallies in zip(chains, *halves, strict=True)
        ]
    )
    scores = np.stack([[tally.scores for tally in tallies] for tallies in halves], axis=1)
    scores = scores.reshape(len(chains), -1, 2)
    kept = np.concatenate([np.stack([tally.draws for tally in tallies]) for tallies in halves], 1)
    every = [tally for tallies in zip(*halves, strict=True) for tally in tallies]
    mean = np.mean([tally.mean for tally in every], axis=0) / half
    slab = np.mean([tally.slab for tally in every], axis=0) / half
    rng = np.random.default_rng(0)
    for group in equal:
        kept[..., group] = rng.permuted(kept[..., group], axis=-1)
        mean[group], slab[group] = mean[group].mean(), slab[group].mean()
    levels = np.stack(
        [np.concatenate([tally.levels.T for tally in both]) for both in zip(*halves, strict=True)]
    )
    kept, mean, slab, levels, factors = _relative(chains[0].factors, kept, mean, slab, levels)
    watched = {-1: scores[..., 0]} if linear else {}
    largest = np.argsort(-np.abs(mean))[:20]
    watched |= {int(j): kept[..., j].astype(np.float64) for j in largest}
    reductions = {j: float(rhat(series.T)) for j, series in watched.items()}
    worst = max(reductions, key=lambda j: reductions[j], default=-1)
    theta = np.concatenate([tally.theta for tally in every])
    theta[:, 0] = np.sqrt(theta[:, 0])
    effects = theta * [1, -1, 1] + [0, 1, 0]  # of zeros, the weight of the others
    logs = np.log(np.maximum(effects, 1e-300)).reshape(len(chains), -1, 3)
    proposals = 0.0 if linear else float(scores[..., 1].sum())
    return Round(
        mean=mean,
        slab=slab,
        draws=kept.reshape(kept.shape[0] * kept.shape[1], size),
        levels=levels.reshape(-1, levels.shape[-1]),
        factors=factors,
        theta=theta,
        rhat=reductions.get(worst, 1.0),
        worst=worst,
        error=monte_carlo_error(parts, chains[0].square),
        theta_rhat=float(np.max(rhat(np.swapaxes(logs, 0, 1)))),
        acceptance=float(scores[..., 0].sum()) / proposals if proposals else 1.0,
    )


def grid(smallest: float, largest: float = 4.0) -> Prior:
    """The prior before anything is learned: nine tenths at 0, the rest on a geometric grid."""
    count = max(int(np.ceil(np.log(largest / smallest) / np.log(RATIO))), 1)
    variances = np.concatenate([[0.0], largest * RATIO ** np.arange(-count, 1.0)])
    weights = np.full(len(variances), 0.1 / (len(variances) - 1))
    weights[0] = 0.9
    return Prior(variances, weights)


def _copies(prior: Prior, chains: list[Chain]) -> list[Prior]:
    return [prior._replace(weights=prior.weights.copy()) for _ in chains]


def _block(
    pool: ThreadPoolExecutor,
    chains: list[Chain],
    priors: list[Prior],
    rates: np.ndarray,
    thin: int,
    draws: int,
) -> list[Tally]:
    """A block of sweeps of every chain, each with a prior of its own, whose weights may change."""

    def one(chain: Chain, prior: Prior) -> Tally:
        tally = Tally.empty(chain.size, len(prior.variances), len(rates), draws, chain.levels)
        chain.sweep(prior, rates, thin, tally)
        return tally

    return list(pool.map(one, chains, priors))


def _pooled(
    chains: list[Chain], prior: Prior, tallies: list[Tally], rate: float, trace: list[np.ndarray]
) -> Prior:
    """The prior after a block: the averages of both chains; the grid longer where it must be."""
    size = max(chains[0].size, 1)
    counts = np.concatenate([tally.counts[len(tally.counts) // 2 :] for tally in tallies])
    favoured = Prior(prior.variances, prior.weights.copy())
    learn(favoured, counts.mean(0), size, 1.0)
    weights = favoured.weights
    zeros = tallies[0].counts[:, 0] / size
    trace.append(np.stack([tallies[0].scores[:, 0], zeros], axis=1))
    noise = np.mean([chain.noise[0] for chain in chains])
    found = np.mean([tally.slab for tally in tallies], axis=0) / len(tallies[0].counts)
    for chain in chains:
        chain.noise[0] = noise
        chain.attend(found)
    variances = prior.variances
    # More than a tenth of a coefficient at the end of the grid, and more than beside it.
    if weights[-1] * size > 0.1 and variances[-1] < LARGEST:
        variances = np.append(variances, variances[-1] * RATIO ** np.arange(1, 3))
        weights = np.append(weights, np.full(2, weights[-1] / 3))
        weights /= weights.sum()
    return Prior(variances, weights)
