r"""Averages of the large parts of theta, of which no trace is kept: batch means.

The steps after burn-in are cut into batches of equal length. The mean of the batch that is being
filled runs along on the device; those of full ones, fewer than `COUNT`, are kept on the host. When
there are `COUNT`, neighbours are merged in pairs, and batches are twice as long from then on:
memory does not grow with the number of steps. The mean over all steps is exact. Its Monte-Carlo
error is that of 8 to 15 batch means (Flegal and Jones 2010), known within a fourth or so.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from pipla import _trees

#: The number of batches at which they are merged, an even number.
COUNT = 16
#: Below this many batches nothing is said of the error.
LEAST = 4


class Running(NamedTuple):
    """The batch that is being filled, on the device."""

    mean: PyTree
    seen: Int[Array, ""]  # the number of steps in it

    @classmethod
    def empty(cls, theta: PyTree) -> Running:
        """Nothing seen yet."""
        return cls(_trees.zeros_like(theta), jnp.zeros((), jnp.int32))

    def add(self, theta: PyTree, due: Bool[Array, ""]) -> Running:
        """Add theta after a step, if it is `due`.

        The table of full batches is not here: every chunk of steps would copy it.
        """

        def leaf(mean: Array, new: Array) -> Array:
            share = due.astype(new.dtype) / (self.seen + 1).astype(new.dtype)
            return jnp.where(self.seen == 0, new, mean + share * (new - mean))

        mean = jax.tree.map(leaf, self.mean, theta)
        return Running(mean, self.seen + due.astype(self.seen.dtype))

    def steps(self) -> int:
        """The number of steps in it; lost lanes may have fewer."""
        return int(np.asarray(self.seen).max())

    def emptied(self) -> Running:
        """The next batch, of which nothing is seen."""
        # Computed from itself, so that it stays on its devices: another place is another program.
        return self._replace(seen=self.seen - self.seen)


class BatchMeans(NamedTuple):
    """The means of the full batches, on the host, and the number of steps in each."""

    rows: tuple[PyTree, ...] = ()
    length: int = 1

    def room(self, running: Running) -> int:
        """How many more steps the running batch takes; lanes fill up together."""
        return self.length - running.steps()

    def extended(self, running: Running) -> BatchMeans:
        """With the running batch, which is full; merged where there are many."""
        rows = (*self.rows, jax.tree.map(np.asarray, running.mean))
        if len(rows) < COUNT:
            return BatchMeans(rows, self.length)
        pairs = zip(rows[::2], rows[1::2], strict=True)
        merged = (jax.tree.map(lambda a, b: (a + b) / 2, *pair) for pair in pairs)
        return BatchMeans(tuple(merged), 2 * self.length)


@dataclasses.dataclass(frozen=True)
class LargeParts:
    """What a result keeps of the parts of theta without a trace; `None` in the other places.

    Attributes:
        last: after the last step. In a sweep, everything has two more leading axes.
        batches: the means of full batches; leading axis: batches.
        partial: the mean of the batch that was being filled.
        length, seen: the number of steps in a full batch, and in that one.
    """

    last: PyTree
    batches: PyTree
    partial: PyTree
    length: int
    seen: int

    @classmethod
    def of(
        cls, theta: PyTree, means: BatchMeans, running: Running, grid: tuple[int, ...] = ()
    ) -> LargeParts:
        """On the host, by settings and replicates in a sweep."""

        def host(leaf: Any) -> np.ndarray:
            numbers = np.asarray(leaf)
            return numbers.reshape(*grid, *leaf.shape[1:]) if grid else numbers

        def stacked(last: Array, *rows: np.ndarray) -> np.ndarray:
            # With the last values in front, which are taken off again: there may be no rows.
            together = np.stack([host(row) for row in (last, *rows)], axis=len(grid))
            return np.delete(together, 0, axis=len(grid))

        return cls(
            jax.tree.map(host, theta),
            jax.tree.map(stacked, theta, *means.rows),
            jax.tree.map(host, running.mean),
            means.length,
            running.steps(),
        )

    def resumed(self, template: PyTree, lanes: int = 0) -> BatchMeans:
        """The full batches to resume from; `template` has the structure of the large parts."""
        axis = 2 if lanes else 0
        found = _trees.like("theta", template, self.batches)
        count = next(leaf.shape[axis] for leaf in jax.tree.leaves(found))

        def row(number: int) -> PyTree:
            return jax.tree.map(
                lambda rows, leaf: np.take(rows, number, axis).reshape(leaf.shape), found, template
            )

        return BatchMeans(tuple(map(row, range(count))), self.length)

    def mean(self, axis: int = 0) -> PyTree:
        """The mean after burn-in (axis: batches); the last values when burn-in was not reached."""

        def leaf(batches: np.ndarray, partial: np.ndarray, last: np.ndarray) -> np.ndarray:
            count = batches.shape[axis] * self.length + self.seen
            total: Any = self.length * batches.sum(axis=axis, dtype=np.float64)
            if self.seen:
                total = total + self.seen * partial.astype(np.float64)
            return total / count if count else last

        return jax.tree.map(leaf, self.batches, self.partial, self.last)

    def stderr(self, axis: int = 0) -> PyTree:
        """The Monte-Carlo error of the mean, from the full batches."""

        def leaf(batches: np.ndarray) -> np.ndarray:
            count = batches.shape[axis]
            if count < LEAST:
                return np.full(np.delete(batches.shape, axis), np.nan)
            return batches.std(axis=axis, ddof=1, dtype=np.float64) / np.sqrt(count)

        return jax.tree.map(leaf, self.batches)
