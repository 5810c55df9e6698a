r"""Roots of increasing functions of one variable, by Newton's method inside a bracket.

They are found in the innermost loop of every algorithm, once per particle. So they are written to
cost a handful of cheap iterations when batched by `jax.vmap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pipla.prox.base import Scalar


class _Bracket(NamedTuple):
    """The state of `increasing_root`: the point, its bracket and the lengths of two steps."""

    point: Array
    lower: Array
    upper: Array
    last: Array
    before_last: Array
    moving: Array
    steps: Array


def increasing_root(
    function: Callable[[Scalar], tuple[Array, Array]],
    lower: Array,
    upper: Array,
    start: Array,
    *,
    resolution: float | Array = 0.0,
    max_iterations: int = 100,
) -> Array:
    r"""The root in `[lower, upper]` of an increasing function, by Newton inside a bracket.

    `function(u)` returns the value and a positive derivative (any element of the generalised
    derivative of a piecewise smooth function will do). The step is Newton's unless that leaves
    the bracket or fails to halve the step before last; then it is a bisection, so at least one
    bit is gained every third evaluation whatever the function does. Stops when a step is below
    the rounding of `|u| + resolution`; that step is still taken.

    >>> round(float(increasing_root(lambda u: (u**3 - 8, 3 * u**2), 0.0, 9.0, 5.0)), 5)
    2.0
    """
    start = jnp.asarray(start)
    lower, upper = (jnp.asarray(bound, start.dtype) for bound in (lower, upper))
    rounding = 2 * jnp.finfo(start.dtype).eps
    resolution = jnp.asarray(resolution, start.dtype)

    def unfinished(state: _Bracket) -> Array:
        return state.moving & (state.steps < max_iterations)

    def iterate(state: _Bracket) -> _Bracket:
        u = state.point
        value, derivative = function(u)
        lower = jnp.where(value < 0, u, state.lower)
        upper = jnp.where(value > 0, u, state.upper)
        newton = u - value / derivative
        # Written so that a NaN (0/0 on a flat piece) also falls back to bisection.
        trusted = (newton >= lower) & (newton <= upper)
        trusted &= 2 * jnp.abs(newton - u) <= state.before_last
        target = jnp.where(trusted, newton, lower + 0.5 * (upper - lower))
        target = jnp.where(value == 0, u, target)
        step = jnp.abs(target - u)
        moving = step > rounding * (jnp.abs(target) + resolution)
        return _Bracket(target, lower, upper, step, state.last, moving, state.steps + 1)

    width = upper - lower
    start = jnp.clip(start, lower, upper)
    steps = jnp.zeros((), jnp.int32)
    state = _Bracket(start, lower, upper, 2 * width, 2 * width, width >= 0, steps)
    return jax.lax.while_loop(unfinished, iterate, state).point


@jax.custom_jvp
def clipped_root(z: Float[Array, " d"], ratio: Float[Array, ""]) -> Array:
    r"""The root of the increasing $v - r \sum_i \operatorname{clip}(z_i - v, \pm 1)$.

    The function is linear between its kinks: Newton's method is exact once it has reached the right
    piece.

    >>> round(float(clipped_root(jnp.array([0.5, 9.0]), jnp.asarray(1.0))), 6)
    0.75
    """

    def pull(v: Array, window: Scalar | float) -> tuple[Array, Array]:
        """The sum times r, and how fast it falls with v on average over the window."""
        difference = z - v
        near = (jnp.abs(difference) < window).astype(z.dtype)
        return ratio * add_up(jnp.clip(difference, -1, 1)), ratio * add_up(near) / window

    def optimality(v: Array) -> tuple[Array, Array]:
        total, rate = pull(v, 1.0)
        return v - total, 1 + rate

    # The first step is the longest. It comes from about √d terms of random sign, so the derivative
    # used is the average over a window of that width.
    total, rate = pull(jnp.zeros_like(ratio), jnp.maximum(1, ratio * math.sqrt(z.size)))
    start, bound = total / (1 + rate), ratio * z.size
    return increasing_root(optimality, -bound, bound, start, resolution=1.0)


@clipped_root.defjvp
def _clipped_root_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    r"""Differentiates the equation instead of the loop.

    With $m$ near terms, those with $|z_i - v| < 1$,

    $$ (1 + r m)\, \dot v
       = \dot r \sum_i \operatorname{clip}(z_i - v, \pm 1) + r \sum_{\text{near}} \dot z_i. $$
    """
    (z, ratio), (z_dot, ratio_dot) = primals, tangents
    v = clipped_root(z, ratio)
    near = (jnp.abs(z - v) < 1).astype(z.dtype)
    change = ratio_dot * add_up(jnp.clip(z - v, -1, 1)) + ratio * add_up(near * z_dot)
    return v, change / (1 + ratio * add_up(near))


def add_up(x: Array) -> Array:
    """The sum of all elements, as a product with ones.

    XLA's own sum uses one lane of a CPU's vector unit, and so does what it fuses into that loop.
    """
    return jnp.vdot(x, jnp.ones_like(x), precision=jax.lax.Precision.HIGHEST)
