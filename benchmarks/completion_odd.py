"""Completion of tables that the model does not describe: what comes out, and whether it is said.

    python benchmarks/completion_odd.py [kind ...]

Errors are relative to the spread of the missing entries, beside those of the means of the columns.
Intervals are of missing observations; their coverage is given for the table, and for the worst and
the best column.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from pipla.completion import complete

Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # without noise, with noise, where it is missing


def tall(rng: np.random.Generator) -> Table:
    """500 × 20 of rank 2, 70 % missing: nothing wrong with it."""
    truth = _low_rank(rng, 500, 20, 2)
    return _gaussian(rng, truth, 0.7)


def units(rng: np.random.Generator) -> Table:
    """Columns with units of their own, from .001 to 10 000."""
    truth, observed, missing = _gaussian(rng, _low_rank(rng, 150, 12, 2) + 2, 0.3)
    scales = np.geomspace(1e-3, 1e4, 12)
    return truth * scales, observed * scales, missing


def heavy(rng: np.random.Generator) -> Table:
    """Noise with infinite variance: Student's t with 1.5 degrees of freedom."""
    truth = _low_rank(rng, 100, 60, 3)
    observed = truth + 0.5 * rng.standard_t(1.5, truth.shape)
    return truth, observed, rng.random(truth.shape) < 0.4


def binary(rng: np.random.Generator) -> Table:
    """0 and 1, the probability of which is logistic in a matrix of rank 2."""
    truth = 1 / (1 + np.exp(-1.5 * _low_rank(rng, 120, 80, 2)))
    observed = (rng.random(truth.shape) < truth).astype(float)
    return truth, observed, rng.random(truth.shape) < 0.4


def by_value(rng: np.random.Generator) -> Table:
    """Large values are missing more often."""
    truth, observed, _ = _gaussian(rng, _low_rank(rng, 150, 100, 3), 0.0)
    return truth, observed, rng.random(truth.shape) < 1 / (1 + np.exp(-2 * observed))


def offset(rng: np.random.Generator) -> Table:
    """Values around 1e8 that vary by 1."""
    truth, observed, missing = _gaussian(rng, _low_rank(rng, 150, 100, 3), 0.4)
    return truth + 1e8, observed + 1e8, missing


KINDS: tuple[Callable[[np.random.Generator], Table], ...] = (
    *(tall, units, heavy, binary, by_value, offset),
)


def report(kind: Callable[[np.random.Generator], Table], seed: int) -> None:
    truth, observed, missing = kind(np.random.default_rng(100 + seed))
    table = np.where(missing, np.nan, observed)
    found = complete(table, seed=seed, progress=False)
    low, high = found.interval(0.9, noisy=True)
    inside = np.where(missing, (low <= observed) & (observed <= high), np.nan)
    columns = np.nanmean(inside, axis=0)
    spread = np.std(truth[missing])
    means = np.broadcast_to(np.nanmean(table, axis=0), truth.shape)
    errors = [np.sqrt(np.mean((x - truth)[missing] ** 2)) / spread for x in (found.mean(), means)]
    print(
        f"{kind.__name__}, seed {seed}: error {errors[0]:.3f} (means of columns {errors[1]:.3f}); "
        f"90 % intervals hold {np.nanmean(inside):.3f} ({columns.min():.2f} to "
        f"{columns.max():.2f}); noise {found.noise:.3g}, rank {found.rank}; said: "
        f"{'; '.join(map(str, found.findings)) or 'nothing'}",
        flush=True,
    )


def _low_rank(rng: np.random.Generator, count: int, width: int, rank: int) -> np.ndarray:
    return rng.standard_normal((count, rank)) @ rng.standard_normal((rank, width))


def _gaussian(rng: np.random.Generator, truth: np.ndarray, missing: float) -> Table:
    observed = truth + 0.5 * rng.standard_normal(truth.shape)
    return truth, observed, rng.random(truth.shape) < missing


if __name__ == "__main__":
    for each in KINDS:
        if not sys.argv[1:] or each.__name__ in sys.argv[1:]:
            for seed in range(2):
                report(each, seed)
