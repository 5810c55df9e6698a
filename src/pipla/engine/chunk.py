"""The compiled chunk: the only place where steps are repeated.

A chunk runs any number of steps up to the length of its buffer without compiling anew, because
the number of steps, the place in the run and every hyperparameter are arguments. The random
numbers of a step come from `fold_in(key, step)`, so that cutting a run into other chunks, or
continuing it later, changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from pipla.algorithms.base import Algorithm, State
from pipla.engine.save import Moments, Save
from pipla.models.model import Model


class Carry(NamedTuple):
    """What goes from step to step: the algorithm's state and the running moments."""

    state: State
    moments: Moments | None


class Place(NamedTuple):
    """Where a chunk is in the run: arrays, so that no number of steps is a program of its own."""

    first: Int[Array, ""]  # the number of its first step
    length: Int[Array, ""]  # how many steps it makes
    burn_in: Int[Array, ""]
    moments_every: Int[Array, ""]

    @classmethod
    def at(cls, first: int, length: int, burn_in: int, save: Save) -> Place:
        """From numbers."""
        numbers = (first, length, burn_in, save.moments_every or 1)
        # NumPy's arrays: JAX would put each on the device by itself, as much work as a whole step.
        arrays: Any = (np.asarray(number, np.int32) for number in numbers)
        return cls(*arrays)

    def wait(self, done: Int[Array, ""]) -> Int[Array, ""]:
        """How many steps there are, after `done` of the chunk, before one with moments."""
        to_burn_in = self.burn_in - (self.first + done)
        return jnp.where(to_burn_in > 0, to_burn_in, to_burn_in % self.moments_every)


class Chunk(NamedTuple):
    """What a chunk of steps returns."""

    carry: Carry
    trace: PyTree  # theta after each step; rows beyond the number of steps are not written
    finite: Bool[Array, "..."]
    prox_gap: Float[Array, "..."]  # the largest in the chunk


@eqx.filter_jit
def start(
    algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree, save: Save
) -> Carry:
    """The carry before the first step."""
    moments = None
    if save.moments_every is not None:
        moments = Moments.empty(save.observe(theta, particles))
    return Carry(algorithm.init(model, theta, particles), moments)


@eqx.filter_jit
def advance(
    algorithm: Algorithm,
    model: Model,
    save: Save,
    key: Key[Array, "..."],
    carry: Carry,
    place: Place,
    capacity: int,
) -> Chunk:
    """`place.length` (at most `capacity`) steps from step number `place.first`.

    `save` is a `Save.program()`: how often moments are taken is in the place.

    With an array of keys, many runs at once: the algorithm's numbers and the carry then have the
    same leading axis, and the step is vmapped over it. The loop is outside of the vmap, and its
    length is shared, so no lane is masked and none waits for another.
    """
    step, observe = _step, _observe
    if key.ndim:
        step = eqx.filter_vmap(step, in_axes=(eqx.if_array(0), 0, 0, None, None))
        observe = eqx.filter_vmap(observe, in_axes=(0, 0, None, None))
    lanes = key.shape
    theta = carry.state.theta
    trace = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), theta)
    gap = jnp.zeros(lanes, jnp.result_type(*jax.tree.leaves(carry.state.particles)))

    def body(i: Int[Array, ""], chunk: tuple[State, PyTree, Array]) -> tuple[State, PyTree, Array]:
        state, trace, gap = chunk
        state, step_gap = step(algorithm, key, state, model, place.first + i)
        trace = jax.tree.map(
            lambda rows, leaf: jax.lax.dynamic_update_index_in_dim(rows, leaf, i, axis=0),
            trace,
            state.theta,
        )
        return state, trace, jnp.maximum(gap, step_gap)

    def stretch(turn: tuple[Any, ...]) -> tuple[Any, ...]:
        """All steps up to the next one after which moments are due, and these."""
        done, moments, chunk = turn
        ahead = done + place.wait(done) + 1
        stop = jnp.minimum(ahead, place.length)
        chunk = jax.lax.fori_loop(done, stop, body, chunk)
        return stop, observe(moments, chunk[0], save, stop == ahead), chunk

    chunk = (carry.state, trace, gap)
    if carry.moments is None:
        moments, chunk = None, jax.lax.fori_loop(0, place.length, body, chunk)
    else:
        turn = (jnp.zeros_like(place.length), carry.moments, chunk)
        _, moments, chunk = jax.lax.while_loop(lambda turn: turn[0] < place.length, stretch, turn)
    state, trace, gap = chunk
    carry = Carry(state, moments)
    return Chunk(carry, trace, _finite(carry, len(lanes)), gap)


def capacity_for(theta: PyTree, lanes: int = 1) -> int:
    """How many steps fit in a chunk: 1024, or fewer when theta is large (16 MiB of trace)."""
    size = lanes * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(theta))
    return max(1, min(1024, 2**24 // max(size, 1)))


def _step(
    algorithm: Algorithm, key: Key[Array, ""], state: State, model: Model, number: Int[Array, ""]
) -> tuple[State, Float[Array, ""]]:
    """Step number `number`, and the gap of its prox."""
    state, info = algorithm.step(jax.random.fold_in(key, number), state, model)
    return state, info.prox_gap


def _observe(moments: Moments, state: State, save: Save, due: Bool[Array, ""]) -> Moments:
    return moments.add(save.observe(state.theta, state.particles), due)


def _finite(carry: Carry, lane_axes: int) -> Bool[Array, "..."]:
    """Whether theta and every particle are finite, for each lane."""
    flags: list[Any] = [
        jnp.all(jnp.isfinite(leaf), axis=tuple(range(lane_axes, leaf.ndim)))
        for leaf in jax.tree.leaves((carry.state.theta, carry.state.particles))
    ]
    return jnp.all(jnp.stack(flags), axis=0)
