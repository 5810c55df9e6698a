r"""A penalty whose strength is learned: $g_2(\theta, x) = e^{r\theta} R(x) - r\,d\,\theta$.

$R$ is absolutely homogeneous ($\ell_1$, group norms, nuclear norm, total variation), so that
$e^{-wR}$ on $d$ coordinates has the normaliser $w^{-d}$, and $w = e^{r\theta}$ keeps it positive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla.prox.base import Iterative, Scalar, Solution, Term
from pipla.prox.checks import (
    Number,
    as_float,
    hyperparameter,
    not_zero,
    operands,
    positive,
    smoothing,
)
from pipla.prox.norms import SoftThreshold
from pipla.prox.root import strength_root
from pipla.prox.segments import first_root

#: A joint prox: (theta, x, lam_theta, lam_x) -> (theta, x).
JointProx = Callable[[Array, Array, Array, Array], tuple[Array, Array]]

_MAX_STEPS = 40


class Strength(Iterative):
    r"""$g_2(\theta, x) = w R(x) - r\,d\,\theta$ with $w = e^{r\theta}$.

    Arguments: `regulariser`, the $R$; `rate`, the $r \ne 0$; `degrees`, the $d$ (by default the
    number of elements of x; total variation, blind to constants, has one less); `normalised=False`
    leaves $-r\,d\,\theta$ to the smooth part. `tolerance` (relative, of the displacement of theta)
    stops the alternation below; it is not used when $R$ is a `SoftThreshold`, which is solved to
    float precision. `substitute(theta, x, lam_theta, lam_x) -> (theta, x)` is used in place of the
    exact map; the published approximations of the named strengths are such substitutes.

    Given $u_0$, $u$ is the prox of $R$ at threshold $\lambda_x w(u_0)$. Write
    $D = -\operatorname{sign}(r)(u_0 - \theta)$, the decline of the strength, and $k = |r|$:

    $$ D + k \lambda_\theta d = k \lambda_\theta\, w\, S(w), \qquad
       w = e^{r\theta - kD}, \qquad S(w) = R(\operatorname{prox}_{\lambda_x w R}(x)). $$

    $g_2$ is not jointly convex and (normalised) not bounded below, so there may be several roots;
    the smallest objective may belong to a collapsed one, $x = 0$. The map returned is the
    stationary point in theta's own basin, the first root met when descending from $D = 0$, which
    tends to $\theta$ as the smoothing tends to 0 (E12 says when it, too, runs away).

    Alternating between $u$ and $u_0$ finds just that root: for fixed $S$ the equation is
    `strength_root`, $S$ decreases with $w$, so the map $D \mapsto D$ is monotone and its iterates
    from 0 never pass the first fixed point.
    """

    regulariser: Term
    rate: Number = hyperparameter(default=1.0)
    degrees: Number = eqx.field(
        converter=lambda value: None if value is None else as_float(value), default=None
    )
    normalised: bool = eqx.field(static=True, default=True)
    tolerance: Number = hyperparameter(default=1e-4)
    substitute: JointProx | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if not isinstance(self.regulariser, Term) or self.regulariser.uses_theta:
            raise TypeError(
                "regulariser must be a term in x alone, such as L1() or TotalVariation(), "
                f"got {type(self.regulariser).__name__}."
            )
        not_zero("rate", self.rate)
        positive("tolerance", self.tolerance)
        if self.degrees is not None:
            positive("degrees", self.degrees)

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        exponent = self.rate.astype(x.dtype) * theta
        value = jnp.exp(exponent) * self.regulariser.value(None, x)
        return value - self._degrees(x) * exponent if self.normalised else value

    def warm_start(self, theta: Array, x: Array) -> PyTree:
        return self.regulariser.warm_start(None, x)

    def solve(
        self, theta: Array, x: Array, lam_theta: Scalar, lam_x: Scalar, warm: PyTree
    ) -> Solution:
        theta, x = operands(self, theta, x)
        lam_theta, lam_x = smoothing(lam_theta, x), smoothing(lam_x, x)
        if self.substitute is not None:
            theta, x = self.substitute(theta, x, lam_theta, lam_x)
            return Solution(theta, x, warm, jnp.zeros((), x.dtype))
        rate = self.rate.astype(x.dtype)
        pull = jnp.abs(rate) * lam_theta
        equation = _Equation(
            log_weight=rate * theta,
            pull=pull,
            offset=pull * self._degrees(x) if self.normalised else jnp.zeros_like(pull),
            rate=jnp.abs(rate),
        )

        def moved(decline: Array) -> Array:
            return jnp.where(lam_theta > 0, theta - jnp.sign(rate) * decline, theta)

        if not isinstance(self.regulariser, SoftThreshold):
            decline, point = self._alternate(equation, x, lam_x, warm)
            return point._replace(theta=moved(decline))

        # Scaling amplitudes by the weight w and smoothing by w² leaves a problem of weight 1.
        amplitudes, rebuild = self.regulariser.decompose(x)
        weight = self.regulariser.weight.astype(x.dtype)
        theta = moved(_root_of_soft_threshold(equation, weight * amplitudes, weight**2 * lam_x))
        threshold = lam_x * weight * jnp.exp(rate * theta)
        x = rebuild(jnp.maximum(amplitudes - threshold, 0))
        return Solution(theta, x, warm, jnp.zeros((), x.dtype))

    def _alternate(
        self, equation: _Equation, x: Array, lam_x: Array, warm: PyTree
    ) -> tuple[Array, Solution]:
        """The plain alternation: x is always the prox at the returned theta; `gap` is of that prox.

        With `lam_theta = 0` the first pass changes nothing and is the only one.
        """

        def unfinished(state: tuple[Any, ...]) -> Array:
            *_, moving, count = state
            return moving & (count < _MAX_STEPS)

        def iterate(state: tuple[Any, ...]) -> tuple[Any, ...]:
            _, decline, point, _, count = state
            lam = lam_x * jnp.exp(equation.log_weight - equation.rate * decline)
            point = self.regulariser.solve(None, x, 0.0, lam, point.warm)
            following = equation.root(self.regulariser.value(None, point.x))
            step = jnp.abs(following - decline)
            tolerance = self.tolerance.astype(x.dtype) * jnp.abs(following)
            moving = step > jnp.maximum(tolerance, equation.rounding(following))
            # What is returned is the decline that this x belongs to.
            return decline, following, point, moving, count + 1

        zero = jnp.zeros_like(lam_x)
        start = Solution(None, x, warm, zero)
        state: tuple[Any, ...] = (zero, zero, start, zero == 0, jnp.zeros((), jnp.int32))
        decline, _, point, _, _ = jax.lax.while_loop(unfinished, iterate, state)
        weight = jnp.exp(equation.log_weight - equation.rate * decline)
        # The inner problem was w R + |u - x|²/(2 lam_x), divided by w.
        return decline, point._replace(gap=point.gap * weight)

    def _degrees(self, x: Array) -> Array:
        return jnp.asarray(x.size if self.degrees is None else self.degrees, x.dtype)


class _Equation(eqx.Module):
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


def _root_of_soft_threshold(equation: _Equation, amplitudes: Array, lam: Array) -> Array:
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
        return moving & (count < _MAX_STEPS)

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
    unsettled: Array, equation: _Equation, amplitudes: Array, lam: Array, decline: Array
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
