"""The compiled chunk: the one place where steps are repeated on the device.

A chunk runs any number of steps up to the length of its buffer without compiling again, because
the number of steps, the position in the run and every hyperparameter are arguments. The random
numbers of a step come from `fold_in(key, step)`, so that cutting a run into other chunks, or
resuming it later, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pipla import _trees
from pipla.algorithms.base import Algorithm, Info
from pipla.engine.batches import Running
from pipla.engine.save import Moments, observe
from pipla.models.model import Model

#: A leaf of theta with more numbers than this keeps no trace, but running batch means.
LARGE = 10_000
#: In a theta with more numbers than this, a network, so do leaves with more than a hundred.
LARGE_THETA, LARGE_THERE = 100_000, 100


class Program(eqx.Module):
    """What stays the same throughout a run.

    With an array of keys it stands for many runs (lanes): the numbers of the algorithm then have
    the same leading axis.
    """

    model: Model
    algorithm: Algorithm
    key: Key[Array, "..."]
    quantity: Callable[[PyTree, PyTree], PyTree] | None = None  # whose moments are kept, if not x

    @property
    def lanes(self) -> tuple[int, ...]:
        """The shape of the runs: `()` for one, `(n,)` for n of them."""
        return self.key.shape


class Carry(NamedTuple):
    """What goes from step to step: the algorithm's state and the running averages."""

    state: Any
    moments: Moments | None
    batch: Running | None = None  # of the large parts of theta, where there are any


class Window(NamedTuple):
    """The steps of a chunk: arrays, so that no number of steps is a program of its own."""

    first: Int[Array, ""]  # the number of its first step
    length: Int[Array, ""]  # how many steps it makes
    burn_in: Int[Array, ""]
    moments_every: Int[Array, ""]

    @classmethod
    def of(cls, first: int, length: int, burn_in: int, moments_every: int | None) -> Window:
        """From numbers."""
        numbers = (first, length, burn_in, moments_every or 1)
        # NumPy's arrays: JAX would put each on the device by itself, as much work as a whole step.
        arrays: Any = (np.asarray(number, np.int32) for number in numbers)
        return cls(*arrays)

    def steps_to_moments(self, done: Int[Array, ""]) -> Int[Array, ""]:
        """How many steps there are, after `done` of the chunk, before one with moments."""
        to_burn_in = self.burn_in - (self.first + done)
        return jnp.where(to_burn_in > 0, to_burn_in, to_burn_in % self.moments_every)


class Chunk(NamedTuple):
    """What a chunk of steps returns."""

    carry: Carry
    #: Theta after each step; rows beyond the number of steps are not written, and a large part has
    #: none.
    trace: PyTree
    finite: Bool[Array, "..."]
    prox_gap: Float[Array, "..."]  # the largest in the chunk


@_trees.bounded_jit("moments")
def start(
    fixed: Program, arrays: Program, theta: PyTree, particles: PyTree, moments: bool
) -> Carry:
    """The carry before the first step; with lanes, theta and particles have their leading axis."""
    program = eqx.combine(fixed, arrays)

    def one(program: Program, theta: PyTree, particles: PyTree) -> Carry:
        state = program.algorithm.init(program.model, theta, particles)
        seen = observe(program.quantity, state.theta, state.particles) if moments else None
        large = by_size(state.theta)[1]
        batch = Running.empty(large) if jax.tree.leaves(large) else None
        return Carry(state, None if seen is None else Moments.empty(seen), batch)

    if program.lanes:
        return eqx.filter_vmap(one, in_axes=(lane_axes(program), 0, 0))(program, theta, particles)
    return one(program, theta, particles)


@_trees.bounded_jit("capacity")
def advance(fixed: Program, arrays: Program, carry: Carry, window: Window, capacity: int) -> Chunk:
    """`window.length` (at most `capacity`) steps from step number `window.first`.

    With lanes, the step is vmapped over them. The loop is outside of the vmap, and its length is
    shared, so no lane is masked and none waits for another.
    """
    program = eqx.combine(fixed, arrays)
    algorithm, model, key = program.algorithm, program.model, program.key
    step, number_key, add = type(algorithm).step, jax.random.fold_in, _add_moments
    add_to_batch = Running.add
    if program.lanes:
        step = eqx.filter_vmap(step, in_axes=(eqx.if_array(0), 0, 0, None))
        number_key = jax.vmap(number_key, in_axes=(0, None))
        add = eqx.filter_vmap(add, in_axes=(0, 0, None, None))
        add_to_batch = jax.vmap(add_to_batch, in_axes=(0, 0, None))
    lead = len(program.lanes)
    trace = jax.tree.map(
        lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype),
        by_size(carry.state.theta, lead)[0],
    )
    gap = jnp.zeros(program.lanes, _trees.dtype(carry.state.particles))

    def body(i: Int[Array, ""], chunk: tuple[Any, ...]) -> tuple[Any, ...]:
        state, trace, gap, batch = chunk
        state, info = step(algorithm, number_key(key, window.first + i), state, model)
        small, large = by_size(state.theta, lead)
        trace = jax.tree.map(
            lambda rows, leaf: jax.lax.dynamic_update_index_in_dim(rows, leaf, i, axis=0),
            trace,
            small,
        )
        if batch is not None:
            batch = add_to_batch(batch, large, window.first + i >= window.burn_in)
        return state, trace, jnp.maximum(gap, info.prox_gap), batch

    def stretch(turn: tuple[Any, ...]) -> tuple[Any, ...]:
        """All steps up to the next one after which moments are due, and these."""
        done, moments, chunk = turn
        due = done + window.steps_to_moments(done) + 1
        stop = jnp.minimum(due, window.length)
        chunk = jax.lax.fori_loop(done, stop, body, chunk)
        return stop, add(moments, chunk[0], program.quantity, stop == due), chunk

    chunk = (carry.state, trace, gap, carry.batch)
    if carry.moments is None:
        moments, chunk = None, jax.lax.fori_loop(0, window.length, body, chunk)
    else:
        turn = (jnp.zeros_like(window.length), carry.moments, chunk)
        _, moments, chunk = jax.lax.while_loop(lambda turn: turn[0] < window.length, stretch, turn)
    state, trace, gap, batch = chunk
    carry = Carry(state, moments, batch)
    return Chunk(carry, trace, _finite(carry, lead), gap)


@eqx.filter_jit
def observed(program: Program, carry: Carry) -> PyTree:
    """What is saved of the particles now: x, or the quantity that a run keeps instead."""
    return observe(program.quantity, carry.state.theta, carry.state.particles)


@_trees.bounded_jit()
def next_info(fixed: Program, arrays: Program, carry: Carry, number: Int[Array, ""]) -> Info:
    """What step `number` would report: the gradients at the present state, the gap of its prox."""
    program = eqx.combine(fixed, arrays)
    if program.lanes:
        raise TypeError("info is available in runs, not in sweeps.")
    key = jax.random.fold_in(program.key, number)
    return program.algorithm.step(key, carry.state, program.model)[1]


def by_size(theta: PyTree, lanes: int = 0) -> tuple[PyTree, PyTree]:
    """Theta's small parts, which have a trace, and its large ones; each with `None` elsewhere.

    The first `lanes` axes do not count.
    """
    sizes = jax.tree.map(lambda leaf: math.prod(leaf.shape[lanes:]), theta)
    most = LARGE if sum(jax.tree.leaves(sizes)) <= LARGE_THETA else LARGE_THERE
    return eqx.partition(theta, jax.tree.map(lambda size: size <= most, sizes))


def capacity_for(theta: PyTree) -> int:
    """How many steps fit in a chunk: 1024, or fewer when theta is large (16 MiB of trace)."""
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(theta))
    return max(1, min(1024, 2**24 // max(size, 1)))


def lane_axes(program: Program) -> Any:
    """Which axes of a program of many lanes count them: keys and the algorithm's numbers."""
    return Program(None, eqx.if_array(0), 0, None)  # type: ignore[arg-type]


def _add_moments(moments: Moments, state: Any, quantity: Any, due: Bool[Array, ""]) -> Moments:
    return moments.add(observe(quantity, state.theta, state.particles), due)


def _finite(carry: Carry, lane_axes: int) -> Bool[Array, "..."]:
    """Whether theta and every particle are finite, for each lane."""
    flags: list[Any] = [
        jnp.all(jnp.isfinite(leaf), axis=tuple(range(lane_axes, leaf.ndim)))
        for leaf in jax.tree.leaves((carry.state.theta, carry.state.particles))
    ]
    return jnp.all(jnp.stack(flags), axis=0)
