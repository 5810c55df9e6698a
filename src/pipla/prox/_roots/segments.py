r"""Equations that are smooth between the sorted elements of an array, solved segment by segment.

Sorting costs more than a few passes over the data, but it leaves nothing to chance: every segment
is treated in closed form, so no root can be skipped.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pipla.prox._roots.newton import increasing_root


def segments(amplitudes: Array) -> tuple[Array, Array, Array, Array]:
    """For k = 0..d: k, the sum of the k largest amplitudes, and the interval that just k exceed."""
    largest = _sort_non_negative(amplitudes.ravel())[::-1]
    number = jnp.arange(largest.size + 1).astype(largest.dtype)
    total = jnp.concatenate([jnp.zeros(1, largest.dtype), jnp.cumsum(largest)])
    above = jnp.concatenate([jnp.full(1, jnp.inf, largest.dtype), largest])
    below = jnp.concatenate([largest, jnp.zeros(1, largest.dtype)])
    return number, total, below, above


def first_root(start: Array, amplitudes: Array, constant: Array, ratio: Array) -> Array:
    r"""The first root met from `start`, downhill, of

    $$ E(v) = v - v_0 + c + r\, e^v \sum_j (a_j - e^v)_+ , $$

    the derivative of a potential: downhill is down where $E(v_0) > 0$ and up where $E(v_0) < 0$.

    Between the knots, $\log a_j$ and the critical points of $E$, $E$ is monotone. So the first sign
    change over the knots brackets the first root and nothing else, and Newton inside that bracket
    finds it. Where $k$ amplitudes, of sum $S_k$, exceed $w = e^v$, $E' = 1 + r (w S_k - 2 k w^2)$:
    at most two critical points, in closed form.
    """
    number, total, below, above = segments(amplitudes)
    top = jnp.log(above[1])

    def equation(v: Array, number: Array, total: Array) -> Array:
        w = jnp.exp(jnp.minimum(v, top))  # beyond the top the sum is empty: no overflow
        return v - start + constant + ratio * w * (total - number * w)

    # With r > 0 the bump is at most Σ a²/4; with r < 0 it is gone beyond the top.
    w = jnp.exp(jnp.minimum(start, top))
    down = constant + ratio * w * jnp.sum(jnp.maximum(amplitudes - w, 0)) > 0
    lift = jnp.maximum(ratio, 0) * jnp.sum(amplitudes**2) / 4
    lower = jnp.where(down, start - constant - lift, start)
    highest = jnp.where(ratio > 0, start - constant, top)
    upper = jnp.where(down, start, jnp.maximum(start, highest))

    knots = jnp.log(jnp.stack([above, *_critical(number, total, below, above, ratio), below], 1))
    knots = jnp.clip(knots, lower, upper).ravel()  # from the top of the real line to the bottom
    # A segment outside the range has been clipped to a point where its k is not the right one.
    present = jnp.repeat((jnp.log(above) >= lower) & (jnp.log(below) <= upper), 4)
    number, total = jnp.repeat(number, 4), jnp.repeat(total, 4)
    values = equation(knots, number, total)

    # Downwards the root lies just above the first knot with E ≤ 0, upwards just below the last
    # knot with E ≥ 0. The ends of the range make sure that there is one, up to rounding.
    last = knots.size - 1
    indices = jnp.arange(knots.size)
    first_below = jnp.argmax(present & (values <= 0) | (indices == last))
    last_above = last - jnp.argmax((present & (values >= 0) | (indices == 0))[::-1])
    floor = jnp.where(down, first_below, jnp.minimum(last_above + 1, last))
    ceiling = jnp.where(down, jnp.maximum(first_below - 1, 0), last_above)
    here = jnp.where(down, first_below, last_above)

    def value_and_derivative(v: Array) -> tuple[Array, Array]:
        w = jnp.exp(jnp.minimum(v, top))
        k, s = number[here], total[here]
        return equation(v, k, s), 1 + ratio * w * (s - 2 * k * w)

    return increasing_root(value_and_derivative, knots[floor], knots[ceiling], knots[ceiling])


def _critical(
    number: Array, total: Array, below: Array, above: Array, ratio: Array
) -> tuple[Array, Array]:
    r"""The roots of $1 + r (w S_k - 2 k w^2)$, the larger first; `below` where there is none."""
    push = jnp.abs(ratio) * total
    room = push**2 + 8 * ratio * number
    real = (room > 0) & (number > 0)
    # The larger root without cancellation, the other from their product.
    twice = jnp.where(real, push + jnp.sqrt(jnp.maximum(room, 0)), 1) / 2
    high = twice / jnp.where(real, 2 * jnp.abs(ratio) * number, 1)
    low = -jnp.sign(ratio) / twice
    high, low = (jnp.where(real, jnp.clip(root, below, above), below) for root in (high, low))
    return high, low


def _sort_non_negative(x: Array) -> Array:
    """Sorted in ascending order, as integers, whose order is that of non-negative floats.

    Ten times faster on CPUs, where XLA compares floats through a total order that includes NaN.
    """
    bits = jnp.dtype(f"int{8 * x.dtype.itemsize}")
    integers = jax.lax.bitcast_convert_type(x, bits)
    return jax.lax.bitcast_convert_type(jax.lax.sort(integers, is_stable=False), x.dtype)
