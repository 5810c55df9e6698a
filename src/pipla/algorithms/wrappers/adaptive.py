r"""Steps that follow the curvature, for any algorithm with a step size and a theta scale.

Along with each step one particle (another one every time) makes one power iteration on its Hessian
of $g_1$, which costs about 5/N of a step. So the step size follows the stiffness wherever theta
goes, and need not be chosen beforehand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms._normals import normals_like
from pipla.algorithms.base import Algorithm, Geometry, Info, Number, number, register
from pipla.algorithms.wrappers.wrapper import (
    InnerT,
    Wrapper,
    WrapperState,
    fraction,
    zero_like,
)
from pipla.models.model import Model, theta_block, theta_parts, x_block


class AdaptiveState(WrapperState[InnerT]):
    """The inner state, and what is known of the curvature."""

    theta_direction: PyTree  # a unit vector near the stiffest direction, per part of theta
    x_direction: PyTree  # and one of x
    theta_stiffness: PyTree  # for each leaf of theta, of its part: L_theta
    stiffness: Float[Array, ""]  # of x: L_x
    drift: PyTree  # running mean of theta's moves
    speed: Float[Array, ""]  # running mean of their squared length
    age: Float[Array, ""]  # steps since theta has arrived
    steps: Float[Array, ""]


@register
class Adaptive(Wrapper[AdaptiveState]):
    r"""An algorithm whose `step_size` and `theta_scale` follow the curvature of $g_1$.

    $$ \gamma_n = \frac{f_n}{2 L_x}, \qquad P_n = \min\Bigl(\frac{L_x}{L_\theta}, 1\Bigr), \qquad
       f_n = f_\infty + \frac{f_0 - f_\infty}{(1 + n/n_0)^2} $$

    with $L_x$, $L_\theta$ the stiffnesses of the diagonal blocks. In the metric of $P$ the whole
    Hessian is at most $2 L_x$ where $g_1$ is convex, so $f \le 1$ is the condition of the theorems.
    The fraction starts at $f_0$ for a fast transient, and ends at $f_\infty$, because the bias is
    proportional to the step. Here $n$ counts the steps since theta has arrived: a step adds
    $(1 - \rho)^2$ to it, where $\rho$ is the length of the running mean of theta's moves over their
    root mean square, 1 while theta travels and near 0 when it fluctuates.

    Each stiffness is the larger of the one just measured and `memory` (.98) times the last one: it
    is forgotten in about 50 steps unless measured again. In one step theta moves by at most
    $1/\sqrt{L_\theta}$ in each part: far from the data a likelihood is steep and hardly curved, and
    a step of the size of its curvature would overshoot by orders of magnitude. A part is a leaf of
    theta, or all the arrays of a module that no term sets. Made for models with theta in their
    smooth part (`noncentred`).

    Arguments:
        scheme: which algorithm; its `step_size` and `theta_scale` are replaced.
        first, last, change_after: $f_0$, $f_\infty$ and $n_0$.
        capped: whether $P \le 1$. Without it theta makes part of a Newton step where it is flatter
            than x, bounded by $1/\sqrt{L_\theta}$ only. That suits the log scales of a network,
            whose stiffest direction in x is hundreds of times as stiff as they are; with it they
            need as many times more steps. Where the likelihood is flat far from the data (the
            half width of a uniform prior), theta leaves for good without it.
    """

    first: Array = eqx.field(converter=number, default=1.0)
    last: Array = eqx.field(converter=number, default=0.0625)
    change_after: Array = eqx.field(converter=number, default=40.0)
    capped: bool = eqx.field(static=True, default=True, kw_only=True)
    name: str = eqx.field(static=True, default="", kw_only=True)

    #: The number of steps over which theta's moves are averaged.
    window = 50.0
    #: The factor by which a measured stiffness is forgotten per step.
    memory = 0.98

    def __check_init__(self) -> None:
        for name in ("first", "last", "change_after"):
            _checks.positive(name, getattr(self, name))
        _checks.boolean("capped", self.capped)
        if isinstance(self.scheme, Algorithm):
            self._scheme(1.0, 1.0)  # an error where there are no such numbers

    def completed(self, geometry: Geometry) -> Self:
        # What is replaced in every step need not be measured; the smoothing may still be missing.
        inner = self._scheme(1.0, 1.0).completed(geometry)
        smoothing = inner.numbers().get("smoothing")
        return self if smoothing is None else self.with_numbers(smoothing=smoothing)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> AdaptiveState:
        scheme = self._scheme(jnp.ones(()), jax.tree.map(lambda _: jnp.ones(()), theta))
        theta_direction, x_direction = normals_like(
            jax.random.key(0), (theta, _trees.first(particles))
        )
        zero = zero_like(particles)
        blank = AdaptiveState(
            inner=scheme.init(model, theta, particles),
            theta_direction=_by_part(_unit, theta_parts(model, theta), theta_direction),
            x_direction=_trees.scale(1 / _trees.norm(x_direction), x_direction),
            theta_stiffness=jax.tree.map(lambda _: zero, theta),
            stiffness=zero,
            drift=_trees.zeros_like(theta),
            speed=zero,
            age=zero,
            steps=zero,
        )
        # Power iterations on twenty particles, so that the first step is not a guess.
        return jax.lax.fori_loop(0, 20, lambda i, state: self._measured(state, i, model), blank)

    def step(
        self, key: Key[Array, ""], state: AdaptiveState, model: Model
    ) -> tuple[AdaptiveState, Info]:
        state = self._measured(state, state.steps.astype(jnp.int32), model)
        share = fraction(state.age, self.first, self.last, self.change_after)
        stiffness = _or_one(state.stiffness)
        ratios = jax.tree.map(
            lambda s: jnp.minimum(
                stiffness / jnp.where(s > 0, s, jnp.inf), 1.0 if self.capped else jnp.inf
            ),
            state.theta_stiffness,
        )
        scheme = self._scheme(
            share / (2 * stiffness), jax.tree.map(lambda p: jnp.where(p > 0, p, 1.0), ratios)
        )
        inner, info = scheme.step(key, state.inner, model)
        theta = _by_part(
            _clipped_step,
            theta_parts(model, state.theta),
            state.theta,
            inner.theta,
            state.theta_stiffness,
        )
        state = self._older(state, _trees.subtract(theta, state.theta))
        inner = scheme.with_theta(inner, theta)
        return dataclasses.replace(state, inner=inner, steps=state.steps + 1), info

    def joint_smoothing(self) -> None:
        return None  # it follows the curvature, and is not known beforehand

    def rescaled(self, factor: Number) -> Self:
        return self.with_numbers(first=self.first * factor, last=self.last * factor)

    def _older(self, state: AdaptiveState, move: PyTree) -> AdaptiveState:
        """A step older if theta fluctuated, no older if it travelled."""
        share = 1 / (1 + jnp.minimum(state.steps, self.window))
        drift = jax.tree.map(lambda old, new: old + share * (new - old), state.drift, move)
        speed = state.speed + share * (_trees.norm(move) ** 2 - state.speed)
        straight = jnp.minimum(_trees.norm(drift) / jnp.sqrt(_or_one(speed)), 1.0)
        age = state.age + (1 - straight) ** 2
        return dataclasses.replace(state, drift=drift, speed=speed, age=age)

    def _scheme(self, step_size: Any, theta_scale: PyTree) -> Any:
        return self.scheme.with_numbers(step_size=step_size, theta_scale=theta_scale)

    def _measured(self, state: AdaptiveState, turn: Any, model: Model) -> AdaptiveState:
        """One power iteration for the block of x and for each part of theta, at one particle."""
        theta = state.theta
        which = turn % _trees.num_particles(state.particles)
        x = jax.tree.map(lambda leaf: leaf[which], state.particles)
        root = jax.tree.map(jnp.sqrt, model.particle_scale(theta, state.particles))
        block = x_block(model, theta, x, root)
        x_direction, stiffness = _trees.power_step(block, state.x_direction)
        directions, structure = jax.tree.flatten(state.theta_direction)
        lengths = list(directions)
        for part in theta_parts(model, theta):
            turned, length = _trees.power_step(
                theta_block(model, theta, x, part), [directions[i] for i in part]
            )
            for i, direction in zip(part, turned, strict=True):
                directions[i], lengths[i] = direction, length
        return dataclasses.replace(
            state,
            x_direction=x_direction,
            stiffness=jnp.maximum(stiffness, self.memory * state.stiffness),
            theta_direction=jax.tree.unflatten(structure, directions),
            theta_stiffness=jax.tree.map(
                lambda new, old: jnp.maximum(new, self.memory * old),
                jax.tree.unflatten(structure, lengths),
                state.theta_stiffness,
            ),
        )


def _by_part(function: Callable[..., list[Array]], parts: Any, *trees: PyTree) -> PyTree:
    """The leaves that `function` makes of the leaves of each part."""
    structure = jax.tree.structure(trees[0])
    columns = [jax.tree.leaves(tree) for tree in trees]
    made = list(columns[0])
    for part in parts:
        leaves = function(*([column[i] for i in part] for column in columns))
        for i, leaf in zip(part, leaves, strict=True):
            made[i] = leaf
    return jax.tree.unflatten(structure, made)


def _unit(leaves: list[Array]) -> list[Array]:
    length = _trees.norm(leaves)
    return [leaf / length for leaf in leaves]


def _clipped_step(old: list[Array], new: list[Array], stiffness: list[Array]) -> list[Array]:
    r"""`new`, but no farther from `old` than $1/\sqrt{L_\theta}$."""
    move = _trees.subtract(new, old)
    reach = 1 / jnp.sqrt(_or_one(stiffness[0]))  # one number for the part
    share = jnp.minimum(1.0, reach / _or_one(_trees.norm(move)))
    return jax.tree.map(lambda a, m: a + m * share, old, move)


def _or_one(value: Array) -> Array:
    return jnp.where(value > 0, value, 1.0)
