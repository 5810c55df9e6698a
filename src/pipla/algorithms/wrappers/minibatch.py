r"""Steps that see a part of the observations, for any algorithm that follows gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree, UInt32

from pipla import _checks, _trees
from pipla.algorithms.base import Condition, Geometry, Info, Number, register
from pipla.algorithms.metropolis import MetropolisAdjusted
from pipla.algorithms.wrappers.wrapper import InnerT, Wrapper, WrapperState
from pipla.models.likelihoods.base import Tilted
from pipla.models.model import Gradients, Model

#: The rounds of the shuffle.
ROUNDS = 4
#: Folded into the key of a step for the order of an epoch; the inner algorithm splits that key.
_SHUFFLE = 0x7FFFFFFF


class Reference(NamedTuple):
    """A point, and the gradients of the whole likelihood there."""

    theta: PyTree
    x: PyTree
    gradients: Gradients


class MinibatchState(WrapperState[InnerT]):
    """The inner state, the number of steps made, and what this epoch holds fixed."""

    steps: Int[Array, ""]
    seed: UInt32[Array, ""]  # of the order of the observations
    reference: Reference | None


@register
class Minibatch(Wrapper[MinibatchState]):
    r"""An algorithm whose steps see `size` of the n observations, another batch B in every step.

    $$ \hat g_1(\theta, x) = \frac{n}{|B|} \sum_{j \in B} g_{1,j}(\theta, x), $$

    whose gradient is that of $g_1$ in the mean. The batches of an epoch are disjoint; its order of
    the observations comes from the key and is computed where it is needed, not stored. Observations
    left over at the end of an epoch, fewer than a batch, are left out of it.

    The noise of the gradient widens the distribution of the particles. It adds
    $\gamma^2 C n/|B|$ to the variance $2\gamma$ of a step, where $C$, the sum of the covariances of
    the single gradients, is near the Hessian $H$ of $g_1$ in a well-specified model. So along a
    direction of stiffness $h$ the variance of x is about $1 + \gamma h n / (2|B|)$ times too large:
    123 times for a million observations, batches of 4096 and $\gamma h = 1$. All particles see the
    same batch, so that a mean over them has this noise, too. Theta feels it only where the width of
    the posterior of x matters; read intervals of x from a run with small steps, with
    `control_variate`, or on all data.

    With `control_variate=True` the gradient is
    $\nabla g_1(v_0) + \nabla \hat g_1(v) - \nabla \hat g_1(v_0)$ at $v = (\theta, x)$: the noise is
    proportional to the distance from the reference $v_0$, which is where theta and the mean of the
    particles are at the beginning of each epoch. That costs one gradient of one particle on all
    data per epoch, and one on the batch per step. (In a sweep, whose runs are one program, it
    costs the former in every step: use it in runs.)

    With `symmetric=True` every second epoch takes the batches of the one before in reverse. For
    schemes with velocities, whose steps are so short that an epoch moves them little, the noise of
    the batches then cancels over two epochs, in velocities and positions, and what remains is of
    third order in the length of an epoch. M steps of length $\epsilon/M$ on M batches are then
    about as good as one of length $\epsilon$ on all data: `pipla.networks.train` does that.

    Put `Adaptive` inside, `Minibatch(Adaptive(...), size)`, so that it measures the curvature on
    the batch. Numbers that are left out are chosen before the run, on all data.

    Arguments:
        scheme: which algorithm.
        size: the number of observations in a batch.
        control_variate: whether to reduce the noise of the gradient by a reference point.
        symmetric: whether every second epoch repeats the batches of the first in reverse.
        data_rows: for a `smooth` that is a function of your own: it is a sum over observations,
            which are the leading axis of every array in `Model.data`. What it adds that is not such
            a sum (a penalty on x) is multiplied by $n/|B|$ too, and belongs elsewhere.

    Example:
        >>> import pipla
        >>> pipla.Minibatch(pipla.PIPGLA(1e-3), size=256).label
        'Minibatch(PIPGLA)'

    Reference: Welling and Teh (2011); Baker, Fearnhead, Fox and Nemeth (2019) for control variates;
    Paulin, Whalley, Chada and Leimkuhler (2025) for symmetric batches.
    """

    size: int = eqx.field(static=True)
    control_variate: bool = eqx.field(static=True, default=False, kw_only=True)
    symmetric: bool = eqx.field(static=True, default=False, kw_only=True)
    data_rows: bool = eqx.field(static=True, default=False, kw_only=True)
    name: str = eqx.field(static=True, default="", kw_only=True)

    def __check_init__(self) -> None:
        _checks.integer("size", self.size, least=1)
        _checks.boolean("control_variate", self.control_variate)
        _checks.boolean("symmetric", self.symmetric)
        _checks.boolean("data_rows", self.data_rows)
        if isinstance(self.scheme, MetropolisAdjusted):
            raise TypeError(
                "scheme must not be MetropolisAdjusted: it accepts by the value of the whole "
                "likelihood, which a batch does not give; use PIPGLA or MYIPLA."
            )

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> MinibatchState:
        self._count(model)  # an error where there are no rows
        reference = None
        if self.control_variate:
            # Replaced in the first step, which begins an epoch.
            reference = _trees.zeros_like(self._reference(model, theta, particles))
        return MinibatchState(
            inner=self.scheme.init(model, theta, particles),
            steps=jnp.zeros((), jnp.int32),
            seed=jnp.zeros((), jnp.uint32),
            reference=reference,
        )

    def step(
        self, key: Key[Array, ""], state: MinibatchState, model: Model
    ) -> tuple[MinibatchState, Info]:
        state, batch = self._turned(key, state, model)
        inner, info = self.scheme.step(key, state.inner, batch)
        return dataclasses.replace(state, inner=inner), info

    def coarse_step(
        self, keys: tuple[Key[Array, ""], Key[Array, ""]], state: MinibatchState, model: Model
    ) -> tuple[MinibatchState, Info]:
        state, batch = self._turned(keys[0], state, model)
        inner, info = self.scheme.coarse_step(keys, state.inner, batch)
        return dataclasses.replace(state, inner=inner), info

    def rescaled(self, factor: Number) -> Self:
        return self.around(self.scheme.rescaled(factor))

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        return self.scheme.conditions(geometry)

    def _turned(
        self, key: Key[Array, ""], state: MinibatchState, model: Model
    ) -> tuple[MinibatchState, Model]:
        """The state one step later, but for the inner one, and the model of this step's batch."""
        count = self._count(model)
        batches = count // self.size
        turn = state.steps % batches
        place, shuffle = turn, turn == 0
        if self.symmetric:
            back = (state.steps // batches) % 2 == 1
            place, shuffle = jnp.where(back, batches - 1 - turn, turn), shuffle & ~back
        new_seed = jax.random.bits(jax.random.fold_in(key, _SHUFFLE), (), jnp.uint32)
        seed = jnp.where(shuffle, new_seed, state.seed)
        places = place * self.size + jnp.arange(self.size, dtype=jnp.int32)
        batch = self._rows(model, shuffled(places, seed, count), count)
        reference = state.reference
        if reference is not None:
            reference = jax.lax.cond(
                turn == 0,
                lambda: self._reference(model, state.theta, state.particles),
                lambda: reference,
            )
            batch = _controlled(batch, reference)
        return dataclasses.replace(
            state, steps=state.steps + 1, seed=seed, reference=reference
        ), batch

    def _reference(self, model: Model, theta: PyTree, particles: PyTree) -> Reference:
        x = _trees.mean(particles)
        return Reference(theta, x, _gradients(model, theta, x))

    def _count(self, model: Model) -> int:
        """The number of observations."""
        count = _leading_axis(model.data) if self.data_rows else model.smooth.num_rows()
        if count is None:
            raise TypeError(
                "Minibatch needs a likelihood whose observations can be taken apart "
                "(likelihoods.Logistic, Multinomial or Poisson, Gaussian with operators.Dense, or "
                "one of your own with `rows` and `num_rows`); for a function that sums over the "
                "leading axis of the arrays in `data`, give Minibatch(..., data_rows=True)."
            )
        if self.size > count:
            raise ValueError(f"size must be at most the {count} observations, got {self.size}.")
        return count

    def _rows(self, model: Model, indices: Int[Array, " size"], count: int) -> Model:
        """The model with an unbiased estimate of its likelihood from these observations."""
        factor = count / self.size
        if self.data_rows:
            rows = jax.tree.map(lambda leaf: leaf[indices], model.data)
            return eqx.tree_at(
                lambda m: (m.smooth, m.data), model, (model.smooth.scaled(factor), rows)
            )
        some = model.smooth.rows(indices)
        if some is None:
            raise TypeError("smooth has `num_rows` but no `rows`; a batch needs both.")
        return _trees.put_part(model, "smooth", some.scaled(factor))


def shuffled(
    places: Int[Array, " size"], seed: UInt32[Array, ""], count: int
) -> Int[Array, " size"]:
    r"""What a permutation of 0, ..., `count` - 1, chosen by the seed, has at these places.

    Each round multiplies by an odd number, adds another, and adds the upper half of the bits to the
    lower one: a permutation of the m-bit numbers, with $2^m$ the next power of two. A number beyond
    `count` goes through the rounds again, until it is not: so what remains is a permutation, too. A
    cyclic shift at the end makes every observation equally probable at every place. Cost and memory
    do not depend on `count`; sorting random numbers takes .1 s for a million of them.
    """
    bits = max(count - 1, 1).bit_length()
    mask = jnp.uint32(2**bits - 1)
    for_words, for_shift = jax.random.split(jax.random.key(seed))
    words = jax.random.bits(for_words, (ROUNDS, 2), jnp.uint32)

    def mixed(value: Array) -> Array:
        for number in range(ROUNDS):
            value = (value * (words[number, 0] | 1) + words[number, 1]) & mask
            value = value ^ (value >> ((bits + 1) // 2))
        return value

    value = jax.lax.while_loop(
        lambda value: jnp.any(value >= count),
        lambda value: jnp.where(value >= count, mixed(value), value),
        mixed(places.astype(jnp.uint32)),
    )
    shift = jax.random.randint(for_shift, (), 0, count)
    # The sum of two numbers below 2^31 fits in 32 bits without a sign.
    return ((value + shift.astype(jnp.uint32)) % jnp.uint32(count)).astype(jnp.int32)


def _gradients(model: Model, theta: PyTree, x: PyTree) -> Gradients:
    return Gradients(*jax.grad(model.smooth_value, argnums=(0, 1))(theta, x))


def _controlled(batch: Model, reference: Reference) -> Model:
    """The model of a batch whose gradient at the reference is that of all data."""
    there = _gradients(batch, reference.theta, reference.x)
    excess = _trees.subtract(there, reference.gradients)
    return _trees.put_part(batch, "smooth", Tilted(batch.smooth, excess.theta, excess.particles))


def _leading_axis(data: PyTree) -> int:
    """The length that all arrays have in common as their first axis."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(data)]
    if not shapes or any(len(shape) == 0 or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(
            "data_rows=True needs a Model.data whose arrays have a leading axis of one length, the "
            f"observations; got shapes {shapes}."
        )
    return int(shapes[0][0])
