"""The compiled chunk: the one place where steps are repeated on the device.

A chunk runs any number of steps up to the length of its buffer without compiling again, because
the number of steps, the position in the run and every hyperparameter are arguments. The random
numbers of a step come from `fold_in(key, step)`, so that cutting a run into other chunks, or
resuming it later, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pipla import _trees
from pipla.algorithms.base import Algorithm, Info
from pipla.engine.save import Moments, observe
from pipla.models.model import Model


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
    """What goes from step to step: the algorithm's state and the running moments."""

    state: Any
    moments: Moments | None


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
    trace: PyTree  # theta after each step; rows beyond the number of steps are not written
    finite: Bool[Array, "..."]
    prox_gap: Float[Array, "..."]  # the largest in the chunk


@_trees.bounded_jit("moments")
def start(
    fixed: Program, arrays: Program, theta: PyTree, particles: PyTree, moments: bool
) -> Carry:
    """The carry before the first step; with lanes, theta and particles have their leading axis."""
    program = eqx.combine(fixed, arrays)

    def one(program: Program, theta: PyTree, particles: PyTree) -> Carry:
        empty = Moments.empty(observe(program.quantity, theta, particles)) if moments else None
        return Carry(program.algorithm.init(program.model, theta, particles), empty)

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
    if program.lanes:
        step = eqx.filter_vmap(step, in_axes=(eqx.if_array(0), 0, 0, None))
        number_key = jax.vmap(number_key, in_axes=(0, None))
        add = eqx.filter_vmap(add, in_axes=(0, 0, None, None))
    trace = jax.tree.map(
        lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), carry.state.theta
    )
    gap = jnp.zeros(program.lanes, _trees.dtype(carry.state.particles))

    def body(i: Int[Array, ""], chunk: tuple[Any, PyTree, Array]) -> tuple[Any, PyTree, Array]:
        state, trace, gap = chunk
        state, info = step(algorithm, number_key(key, window.first + i), state, model)
        trace = jax.tree.map(
            lambda rows, leaf: jax.lax.dynamic_update_index_in_dim(rows, leaf, i, axis=0),
            trace,
            state.theta,
        )
        return state, trace, jnp.maximum(gap, info.prox_gap)

    def stretch(turn: tuple[Any, ...]) -> tuple[Any, ...]:
        """All steps up to the next one after which moments are due, and these."""
        done, moments, chunk = turn
        due = done + window.steps_to_moments(done) + 1
        stop = jnp.minimum(due, window.length)
        chunk = jax.lax.fori_loop(done, stop, body, chunk)
        return stop, add(moments, chunk[0], program.quantity, stop == due), chunk

    chunk = (carry.state, trace, gap)
    if carry.moments is None:
        moments, chunk = None, jax.lax.fori_loop(0, window.length, body, chunk)
    else:
        turn = (jnp.zeros_like(window.length), carry.moments, chunk)
        _, moments, chunk = jax.lax.while_loop(lambda turn: turn[0] < window.length, stretch, turn)
    state, trace, gap = chunk
    carry = Carry(state, moments)
    return Chunk(carry, trace, _finite(carry, len(program.lanes)), gap)


@_trees.bounded_jit()
def next_info(fixed: Program, arrays: Program, carry: Carry, number: Int[Array, ""]) -> Info:
    """What step `number` would report: the gradients at the present state, the gap of its prox."""
    program = eqx.combine(fixed, arrays)
    if program.lanes:
        raise TypeError("info is available in runs, not in sweeps.")
    key = jax.random.fold_in(program.key, number)
    return program.algorithm.step(key, carry.state, program.model)[1]


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
