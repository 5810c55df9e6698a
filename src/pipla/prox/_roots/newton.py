r"""Two scalar equations that the proximal maps reduce to, solved to float precision.

Both sit in the innermost loop of every algorithm, once per particle, so they are written to
cost a handful of cheap iterations when batched by `jax.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pipla.prox.base import Scalar


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

    `function(u)` returns the value and a positive slope (any element of the generalised
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

    def unfinished(state: tuple[Any, ...]) -> Array:
        *_, moving, count = state
        return moving & (count < max_iterations)

    def iterate(state: tuple[Any, ...]) -> tuple[Any, ...]:
        u, lower, upper, last, before_last, _, count = state
        value, slope = function(u)
        lower = jnp.where(value < 0, u, lower)
        upper = jnp.where(value > 0, u, upper)
        newton = u - value / slope
        # Written so that a NaN (0/0 on a flat piece) also falls back to bisection.
        trusted = (newton >= lower) & (newton <= upper)
        trusted &= 2 * jnp.abs(newton - u) <= before_last
        target = jnp.where(trusted, newton, lower + 0.5 * (upper - lower))
        target = jnp.where(value == 0, u, target)
        step = jnp.abs(target - u)
        moving = step > rounding * (jnp.abs(target) + resolution)
        return target, lower, upper, step, last, moving, count + 1

    width = upper - lower
    start = jnp.clip(start, lower, upper)
    counter = jnp.zeros((), jnp.int32)
    state: tuple[Any, ...] = (start, lower, upper, 2 * width, 2 * width, width >= 0, counter)
    return jax.lax.while_loop(unfinished, iterate, state)[0]


def strength_root(log_level: Array, offset: Array, rate: Array) -> Array:
    r"""The $\delta > -c$ with $(\delta + c)\, e^{k \delta} = B$; arguments $\log B$, $c$, $k > 0$.

    This is where the strength of a penalty settles when the penalised quantity is held fixed.
    With $c = 0$ it is $W(kB)/k$, $W$ being Lambert's function; a large $c$ (smoothing times
    dimension reaches $10^5$) would lose every digit of $W(kBe^{kc})/k - c$ in float32, and
    overflow, so the unknown stays $\delta$ and the equation is taken in logarithms,

    $$ F(\delta) = \log(\delta + c) + k \delta - \log B = 0. $$

    $F$ increases and is concave: Newton from the left never overshoots. It starts at the largest
    of these lower bounds, in which $\xi = \log(kB) + kc$:

    * $(B - c)/(1 + kB)$, a Newton step from 0 for the concave $\delta + c - B e^{-k\delta}$;
    * $(\log B - \log c)/k$ where $B \le c$, because then $\delta \le 0$ and $\delta + c \le c$;
    * $\sigma(\xi)/k - c$ and, for $\xi \ge 1$, $(\xi - \log \xi)/k - c$, from
      $W(z) \ge z/(1+z)$ and $W(z) \ge \log z - \log\log z$.

    $B = 0$ gives $-c$. A negative $c$ is shifted away without loss.

    >>> round(float(strength_root(jnp.asarray(1.0), jnp.asarray(0.0), jnp.asarray(1.0))), 6)
    1.0
    """
    shift = jnp.minimum(offset, 0)
    log_level, offset = log_level + rate * shift, jnp.maximum(offset, 0)

    empty = jnp.isneginf(log_level)
    log_level = jnp.where(empty, 0, log_level)  # any finite number: keeps the branch free of NaN
    tiny = jnp.finfo(log_level.dtype).tiny

    # B overflows before its logarithm does: above 1, divide by it.
    inverse, level = jnp.exp(-jnp.abs(log_level)), jnp.exp(jnp.minimum(log_level, 0))
    above = (1 - offset * inverse) / (inverse + rate)
    below = (level - offset) / (1 + rate * level)
    start = jnp.where(log_level > 0, above, below)

    log_offset = jnp.log(jnp.maximum(offset, tiny))
    start = jnp.where(
        log_level <= log_offset, jnp.maximum(start, (log_level - log_offset) / rate), start
    )
    argument = jnp.log(rate) + log_level + rate * offset
    start = jnp.maximum(start, jax.nn.sigmoid(argument) / rate - offset)
    large = jnp.maximum(argument, 1)
    start = jnp.where(
        argument >= 1, jnp.maximum(start, (large - jnp.log(large)) / rate - offset), start
    )

    root = start
    # From such bounds the error is below rounding after so many steps, everywhere (tested).
    for _ in range(4 if jnp.finfo(log_level.dtype).bits > 32 else 3):
        # Where B is negligible root + c rounds to 0; the floor freezes it there, at -c.
        distance = jnp.maximum(root + offset, tiny)
        excess = jnp.log(distance) + rate * root - log_level
        root = root - excess * distance / (1 + rate * distance)
    return jnp.where(empty, -offset, root) - shift
