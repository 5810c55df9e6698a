r"""The change of a learned strength in one proximal step: the equation behind `Strength`."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from pipla.prox._roots.segments import first_root

#: Rounds of an alternation before it is called slow.
MAX_STEPS = 40


def strength_root(log_level: Array, offset: Array, rate: Array) -> Array:
    r"""The $\delta > -c$ with $(\delta + c)\, e^{k \delta} = B$; arguments $\log B$, $c$, $k > 0$.

    This is the change of a learned strength when the penalised quantity is held fixed.
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
    # From these bounds three or four steps bring the error below rounding, everywhere (tested).
    for _ in range(4 if jnp.finfo(log_level.dtype).bits > 32 else 3):
        # Where B is negligible root + c rounds to 0; the floor freezes it there, at -c.
        distance = jnp.maximum(root + offset, tiny)
        excess = jnp.log(distance) + rate * root - log_level
        root = root - excess * distance / (1 + rate * distance)
    return jnp.where(empty, -offset, root) - shift


class _Iterate(NamedTuple):
    """The state of `StrengthEquation.solve`."""

    decrease: Array
    moving: Array
    steps: Array


class StrengthEquation(eqx.Module):
    r"""$D + c = a\, w\, S(w)$ with $w = e^{\ell - kD}$, in the decrease $D$ of the strength.

    `log_weight` is $\ell$, the logarithm of the weight at $D = 0$; `pull` is $a$, `offset` is $c$
    and `rate` is $k > 0$. $S(w)$ is what remains of the penalty after a prox of weight $w$.
    """

    log_weight: Array
    pull: Array
    offset: Array
    rate: Array

    def weight(self, decrease: Array) -> Array:
        """The weight after a decrease of the strength."""
        return jnp.exp(self.log_weight - self.rate * decrease)

    def root(self, total: Array, constant: Array | float = 0.0) -> Array:
        r"""The $D$ that solves it with $w\,S(w)$ replaced by `constant` $+\, w\,\cdot$ `total`."""
        level = jnp.log(self.pull) + jnp.log(total) + self.log_weight
        return strength_root(level, self.offset - self.pull * constant, self.rate)

    def rounding(self, decrease: Array) -> Array:
        """How far rounding alone may move the root."""
        width = jnp.minimum(jnp.abs(decrease + self.offset), 1 / self.rate)
        return 8 * jnp.finfo(decrease.dtype).eps * (jnp.abs(decrease) + width)

    def solve(self, amplitudes: Array, lam: Array) -> Array:
        r"""The first root from $D = 0$ for soft-thresholding, $S(w) = \sum_j (s_j - \lambda w)_+$.

        Alternating between $w$ and $S$ replaces $A(w) = w S(w)$ by $w S(w_k)$, a bound in the
        direction of travel that touches at $w_k$. Any $A(w_k) + B (w - w_k)$ that is also a bound
        keeps the iterates on this side of the first root, and the flatter, the faster; close to
        $A'$ it is Newton's method.

        * $w$ rising (A must not be underestimated): $w s_j - \lambda w^2$ lies under its tangent,
          so $B = \sum_j (s_j - 2 \lambda w_k)_+$.
        * $w$ falling (A must not be overestimated): no less than the $m$ active terms alone, a
          concave parabola, hence no less than its chord down to $w_{\min}$:
          $B = S(w_k) - \lambda m w_{\min}$. Replacing $S$ by $\sum_j s_j$ in the equation
          overshoots, which gives $w_{\min}$.

        Two to five steps are usual. Next to a double root, or past one that has just vanished, they
        have no end; then the amplitudes are sorted.
        """
        weight = self.weight(jnp.zeros_like(lam))
        excess = _times(weight, jnp.sum(jnp.maximum(amplitudes - lam * weight, 0)))
        falling = self.pull * excess > self.offset
        least = self.weight(self.root(jnp.sum(amplitudes)))

        def unfinished(state: _Iterate) -> Array:
            return state.moving & (state.steps < MAX_STEPS)

        def iterate(state: _Iterate) -> _Iterate:
            decrease = state.decrease
            weight = self.weight(decrease)
            rest = amplitudes - lam * weight
            total = jnp.sum(jnp.maximum(rest, 0))
            active = (rest > 0).astype(rest.dtype)
            second = jnp.sum(jnp.where(falling, active, jnp.maximum(rest - lam * weight, 0)))
            chord = jnp.where(falling, jnp.maximum(total - lam * second * least, 0), second)
            target = self.root(chord, _times(weight, total - chord))
            # A step against the direction of travel is rounding and is not taken.
            step = jnp.where(falling, target - decrease, decrease - target)
            decrease = jnp.where(step > 0, target, decrease)
            return _Iterate(decrease, step > self.rounding(decrease), state.steps + 1)

        zero = jnp.zeros_like(lam)
        state = _Iterate(zero, zero == 0, jnp.zeros((), jnp.int32))
        decrease, unsettled, _ = jax.lax.while_loop(unfinished, iterate, state)
        return self._sort_where(unsettled, amplitudes, lam, decrease)

    def _sort_where(
        self, unsettled: Array, amplitudes: Array, lam: Array, decrease: Array
    ) -> Array:
        r"""The root by sorting where it is needed: a loop of at most one turn, rarely entered.

        In $v = \log w$ the equation is
        $v - v_0 - kc + k a \lambda\, e^v \sum_j (s_j/\lambda - e^v)_+ = 0$.
        """

        def sort(state: tuple[Array, Array]) -> tuple[Array, Array]:
            v = first_root(
                self.log_weight,
                amplitudes / lam,
                -self.rate * self.offset,
                self.rate * self.pull * lam,
            )
            return (self.log_weight - v) / self.rate, jnp.zeros_like(unsettled)

        return jax.lax.while_loop(lambda state: state[1], sort, (decrease, unsettled))[0]


def _times(weight: Array, amount: Array) -> Array:
    """`weight * amount`, and 0 where the amount is 0 although the weight has overflowed."""
    return jnp.where(amount > 0, weight * amount, 0)
