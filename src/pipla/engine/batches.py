r"""Averages of the large parts of theta, of which no trace is kept: running batch means.

The steps after burn-in are cut into batches of equal length, of which at most `COUNT` are kept.
When all are full, neighbours are merged in pairs, and batches are twice as long from then on:
memory does not grow with the number of steps. The mean over all steps is exact. Its Monte-Carlo
error is that of 8 to 16 batch means (Flegal and Jones 2010), known within a fourth or so.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from pipla import _trees

#: The largest number of batches kept, an even number.
COUNT = 16
#: Below this many batches nothing is said of the error.
LEAST = 4


class Batches(NamedTuple):
    """The means of the batches so far, on the device."""

    means: PyTree  # leading axis: batches; rows that are not begun are 0
    length: Int[Array, ""]  # the number of steps in a batch
    seen: Int[Array, ""]  # the number of steps added

    @classmethod
    def empty(cls, theta: PyTree) -> Batches:
        """Nothing seen yet."""
        means = jax.tree.map(lambda leaf: jnp.zeros((COUNT, *leaf.shape), leaf.dtype), theta)
        return cls(means, jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32))

    def add(self, theta: PyTree, due: Bool[Array, ""]) -> Batches:
        """Add theta after a step, if it is `due`, to the batch that is being filled."""
        row, done = self.seen // self.length, self.seen % self.length

        def leaf(rows: Array, new: Array) -> Array:
            share = due.astype(new.dtype) / (done + 1).astype(new.dtype)
            mean = jax.lax.dynamic_index_in_dim(rows, row, keepdims=False)
            return jax.lax.dynamic_update_index_in_dim(rows, mean + share * (new - mean), row, 0)

        means = jax.tree.map(leaf, self.means, theta)
        return Batches(means, self.length, self.seen + due.astype(self.seen.dtype))

    def room(self) -> int:
        """How many more steps fit before batches must be merged; lanes fill up together."""
        return COUNT * int(np.max(self.length)) - int(np.max(self.seen))


@functools.partial(jax.jit, static_argnames="lanes")
def merged(batches: Batches, lanes: bool) -> Batches:
    """Full batches in pairs: half as many, twice as long."""

    def leaf(rows: Array) -> Array:
        pairs = rows.reshape(COUNT // 2, 2, *rows.shape[1:]).mean(axis=1)
        return jnp.concatenate([pairs, jnp.zeros_like(pairs)])

    means = jax.tree.map(jax.vmap(leaf) if lanes else leaf, batches.means)
    return batches._replace(means=means, length=2 * batches.length)


@dataclasses.dataclass(frozen=True)
class LargeParts:
    """What a result keeps of the parts of theta without a trace; `None` in the other places.

    Attributes:
        last: after the last step. In a sweep, it and the batches have two more leading axes.
        batches: the means of the batches; leading axis: batches.
        length, seen: the number of steps in a batch, and of all steps after burn-in.
    """

    last: PyTree
    batches: PyTree
    length: int
    seen: int

    @classmethod
    def of(cls, theta: PyTree, batches: Batches, grid: tuple[int, ...] = ()) -> LargeParts:
        """On the host, by settings and replicates in a sweep."""

        def host(leaf: Array) -> np.ndarray:
            numbers = np.asarray(leaf)
            return numbers.reshape(*grid, *leaf.shape[1:]) if grid else numbers

        return cls(
            jax.tree.map(host, theta),
            jax.tree.map(host, batches.means),
            int(np.max(batches.length)),
            int(np.max(batches.seen)),
        )

    def running(self, template: PyTree, lanes: tuple[int, ...] = ()) -> Batches:
        """The batches to resume from; `template` has the structure of theta's large parts."""
        found = _trees.like("theta", template, self.batches)
        means = jax.tree.map(
            lambda rows, leaf: jnp.asarray(rows).reshape(*lanes, COUNT, *leaf.shape[len(lanes) :]),
            found,
            template,
        )
        length, seen = (jnp.full(lanes, n, jnp.int32) for n in (self.length, self.seen))
        return Batches(means, length, seen)

    def mean(self, axis: int = 0) -> PyTree:
        """The mean after burn-in (axis: batches); the last values when burn-in was not reached."""
        if not self.seen:
            return self.last
        counts = np.diff(np.minimum(np.arange(COUNT + 1) * self.length, self.seen))

        def leaf(batches: np.ndarray) -> np.ndarray:
            rows = np.moveaxis(batches, axis, 0)
            total: Any = sum(
                n * row.astype(np.float64) for n, row in zip(counts, rows, strict=True) if n
            )
            return total / self.seen

        return jax.tree.map(leaf, self.batches)

    def stderr(self, axis: int = 0) -> PyTree:
        """The Monte-Carlo error of the mean, from the batches that are full."""
        full = self.seen // self.length

        def leaf(batches: np.ndarray) -> np.ndarray:
            rows = np.moveaxis(batches, axis, 0)[:full].astype(np.float64)
            if full < LEAST:
                return np.full(rows.shape[1:], np.nan)
            return rows.std(axis=0, ddof=1) / np.sqrt(full)

        return jax.tree.map(leaf, self.batches)
