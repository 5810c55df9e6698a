"""What the chains drew in a round: means, draws, and how well the chains agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipla.diagnostics import rhat
from pipla.regression._chain import Chain
from pipla.regression._factors import Factors, references, relative
from pipla.regression._precision import monte_carlo_error
from pipla.regression._state import Tally


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


def round_of(
    chains: Sequence[Chain],
    halves: Sequence[Sequence[Tally]],
    linear: bool,
    equal: Sequence[np.ndarray],
) -> Round:
    """What there is to say of a round.

    Arguments:
        chains: at its end.
        halves: the tallies of each chain, of both halves of the round or of the first alone.
        linear: whether this is a linear regression.
        equal: as for `sample`.
    """
    half = len(halves[0][0].theta)
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
        draws=kept.reshape(kept.shape[0] * kept.shape[1], chains[0].size),
        levels=levels.reshape(-1, levels.shape[-1]),
        factors=factors,
        theta=theta,
        rhat=reductions.get(worst, 1.0),
        worst=worst,
        error=monte_carlo_error(parts, chains[0].square),
        theta_rhat=float(np.max(rhat(np.swapaxes(logs, 0, 1)))),
        acceptance=float(scores[..., 0].sum()) / proposals if proposals else 1.0,
    )
