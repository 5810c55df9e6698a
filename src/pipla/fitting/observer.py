"""What a fit sees of its run, in flat memory: moments, samples and scores, from time to time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from pipla.fitting.information import Scores

#: The most numbers of particles that are kept for quantiles.
MOST_SAMPLES = 2 * 10**7
#: The most looks whose particles are kept, and the most blocks of moments.
MOST_LOOKS = 400
MOST_BLOCKS = 64
#: The most looks whose averages over particles, and whose scores, are kept.
MOST_MEANS, MOST_SCORES = 2000, 500
#: The most elements of x that are watched for mixing.
MOST_WATCHED = 500


class Look(NamedTuple):
    """The particles at one step: (lanes, particles, elements of x)."""

    step: int
    particles: Float[np.ndarray, "2 n d"]


class Block(NamedTuple):
    """Moments over some looks."""

    first: int
    last: int
    number: float
    mean: Float[np.ndarray, "2 d"]
    squares: Float[np.ndarray, "2 d"]  # the sum of squared deviations

    @classmethod
    def of(cls, look: Look) -> Block:
        """The moments of one look."""
        values = look.particles.astype(np.float64)
        mean = values.mean(axis=1)
        squares = ((values - mean[:, None]) ** 2).sum(axis=1)
        return cls(look.step, look.step, values.shape[1], mean, squares)

    def merged(self, other: Block) -> Block:
        """Both together (Chan, Golub and LeVeque)."""
        count = self.number + other.number
        shift = other.mean - self.mean
        return Block(
            min(self.first, other.first),
            max(self.last, other.last),
            count,
            self.mean + shift * (other.number / count),
            self.squares + other.squares + shift**2 * (self.number * other.number / count),
        )


class Observer:
    """Keeps what the verdict and the answer need of x; memory does not grow with the steps."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.blocks: list[Block] = []
        self.looks: list[Look] = []
        self.scores: list[tuple[int, list[Scores]]] = []
        self.means: list[tuple[int, Any]] = []  # over particles, at every look
        self._seen = 0
        self.watched = np.arange(size)
        if size > MOST_WATCHED:
            self.watched = np.sort(rng.choice(size, MOST_WATCHED, replace=False))

    def add(self, look: Look) -> None:
        """One more look."""
        self._seen += 1
        self._count(Block.of(look))
        watched = look.particles[:, :, self.watched].astype(np.float64)
        averages = np.stack([watched.mean(axis=1), (watched**2).mean(axis=1)])
        self._keep(self.means, (look.step, averages), MOST_MEANS)
        most = min(MOST_LOOKS, max(MOST_SAMPLES // look.particles.size, 8))
        self._keep(self.looks, Look(look.step, np.asarray(look.particles, np.float32)), most)

    def add_scores(self, step: int, scores: list[Scores]) -> None:
        """What the particles of the last look say of theta."""
        self._keep(self.scores, (step, scores), MOST_SCORES)

    def _keep(self, rows: list[Any], row: Any, most: int) -> None:
        """Add what belongs to the last look; of too many looks, every second, fourth, … is kept."""
        if _spacing(self._seen, most) > _spacing(self._seen - 1, most):
            del rows[1::2]
        if (self._seen - 1) % _spacing(self._seen, most) == 0:
            rows.append(row)

    def _count(self, block: Block) -> None:
        """Add the moments of the last look; all blocks are of 1, 2, 4, … looks, but for the last.

        Equal ones: those after burn-in shall be those of all looks after burn-in.
        """
        looks = _spacing(self._seen, MOST_BLOCKS)
        if looks > _spacing(self._seen - 1, MOST_BLOCKS):
            pairs = zip(self.blocks[::2], self.blocks[1::2], strict=True)
            self.blocks = [first.merged(second) for first, second in pairs]
        if (self._seen - 1) % looks == 0:
            self.blocks.append(block)
        else:
            self.blocks[-1] = self.blocks[-1].merged(block)

    def moments(self, burn_in: int) -> Block:
        """The moments of the blocks after burn-in."""
        kept = [block for block in self.blocks if block.first > burn_in] or self.blocks[-1:]
        total = kept[0]
        for block in kept[1:]:
            total = total.merged(block)
        return total

    def samples(self, burn_in: int) -> Float[np.ndarray, "t 2 n d"]:
        """The particles of the looks after burn-in."""
        kept = [look.particles for look in self.looks if look.step > burn_in]
        return np.stack(kept or [self.looks[-1].particles])

    def scores_after(self, burn_in: int) -> list[list[Scores]]:
        """The scores after burn-in."""
        return [scores for step, scores in self.scores if step > burn_in]

    def particle_means(self, burn_in: int) -> Float[np.ndarray, "t 2 2 w"]:
        """Mean and mean square over particles, per lane, of the watched elements at each look."""
        return np.stack(
            [pair for step, pair in self.means if step > burn_in] or [self.means[-1][1]]
        )


def _spacing(seen: int, most: int) -> int:
    """The power of 2 at which no more than `most` of these looks are kept."""
    every = 1
    while seen > most * every:
        every *= 2
    return every
