r"""How far a learned strength declines in one proximal step, when the penalty soft-thresholds."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from pipla.prox._roots.newton import strength_root
from pipla.prox._roots.segments import first_root

#: Rounds of an alternation before it is called slow.
MAX_STEPS = 40


class Equation(eqx.Module):
    r"""$D + c = a\, w\, S$ with $w = e^{\ell - kD}$: the strength settles against a penalty $S$."""

    log_weight: Array
    pull: Array
    offset: Array
    rate: Array

    def root(self, total: Array, constant: Array | float = 0.0) -> Array:
        r"""The $D$ that solves it with $w\,S$ replaced by `constant` $+\, w\,\cdot$ `total`."""
        level = jnp.log(self.pull) + jnp.log(total) + self.log_weight
        return strength_root(level, self.offset - self.pull * constant, self.rate)

    def rounding(self, decline: Array) -> Array:
        """How far rounding alone may move the root."""
        width = jnp.minimum(jnp.abs(decline + self.offset), 1 / self.rate)
        return 8 * jnp.finfo(decline.dtype).eps * (jnp.abs(decline) + width)


def first_decline(equation: Equation, amplitudes: Array, lam: Array) -> Array:
    r"""The first root when $S(w) = \sum_j (s_j - \lambda w)_+$: alternation with a tighter bound.

    The alternation replaces $A(w) = w S(w)$ by $w S(w_k)$, a bound in the direction of travel that
    touches at $w_k$. Any $A(w_k) + B (w - w_k)$ that is also a bound keeps the iterates on this
    side of the first root, and the flatter, the faster; close to $A'$ it is Newton's method.

    * $w$ rising (A must not be underestimated): $w s_j - \lambda w^2$ lies under its tangent, so
      $B = \sum_j (s_j - 2 \lambda w_k)_+$.
    * $w$ falling (A must not be overestimated): no less than the $m$ active terms alone, a concave
      parabola, hence no less than its chord down to $w_{\min}$: $B = S(w_k) - \lambda m w_{\min}$.
      Replacing $S$ by $\sum_j s_j$ in the equation overshoots, which gives $w_{\min}$.

    Two to five steps are usual. Next to a double root, or past one that has just vanished, there is
    no end to them; then the amplitudes are sorted.
    """
    k = equation.rate

    def weight_at(decline: Array) -> Array:
        return jnp.exp(equation.log_weight - k * decline)

    weight = weight_at(jnp.zeros_like(lam))
    excess = _times(weight, jnp.sum(jnp.maximum(amplitudes - lam * weight, 0)))
    falling = equation.pull * excess > equation.offset
    least = weight_at(equation.root(jnp.sum(amplitudes)))

    def unfinished(state: tuple[Any, ...]) -> Array:
        _, moving, count = state
        return moving & (count < MAX_STEPS)

    def iterate(state: tuple[Any, ...]) -> tuple[Any, ...]:
        decline, _, count = state
        weight = weight_at(decline)
        rest = amplitudes - lam * weight
        total = jnp.sum(jnp.maximum(rest, 0))
        second = jnp.sum(
            jnp.where(falling, (rest > 0).astype(rest.dtype), jnp.maximum(rest - lam * weight, 0))
        )
        slope = jnp.where(falling, jnp.maximum(total - lam * second * least, 0), second)
        target = equation.root(slope, _times(weight, total - slope))
        # Against the direction of travel there is only rounding.
        step = jnp.where(falling, target - decline, decline - target)
        decline = jnp.where(step > 0, target, decline)
        return decline, step > equation.rounding(decline), count + 1

    zero = jnp.zeros_like(lam)
    state: tuple[Any, ...] = (zero, zero == 0, jnp.zeros((), jnp.int32))
    decline, unsettled, _ = jax.lax.while_loop(unfinished, iterate, state)
    return _exact_where(unsettled, equation, amplitudes, lam, decline)


def _exact_where(
    unsettled: Array, equation: Equation, amplitudes: Array, lam: Array, decline: Array
) -> Array:
    r"""The root by sorting, where it is wanted: a loop of at most one turn, entered by few batches.

    In $v = \log w$ the equation is
    $v - v_0 - kc + k a \lambda\, e^v \sum_j (s_j/\lambda - e^v)_+ = 0$.
    """

    def sort(state: tuple[Array, Array]) -> tuple[Array, Array]:
        v = first_root(
            equation.log_weight,
            amplitudes / lam,
            -equation.rate * equation.offset,
            equation.rate * equation.pull * lam,
        )
        return (equation.log_weight - v) / equation.rate, jnp.zeros_like(unsettled)

    return jax.lax.while_loop(lambda state: state[1], sort, (decline, unsettled))[0]


def _times(weight: Array, amount: Array) -> Array:
    """`weight * amount`, and 0 where the amount is 0 although the weight has overflowed."""
    return jnp.where(amount > 0, weight * amount, 0)
