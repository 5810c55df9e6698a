r"""A penalty whose strength is learned: $g_2(\theta, x) = e^{r\theta} R(x) - r\,d\,\theta$.

$R$ is absolutely homogeneous ($\ell_1$, group norms, nuclear norm, total variation), so that
$e^{-wR}$ on $d$ coordinates has the normaliser $w^{-d}$, and $w = e^{r\theta}$ keeps it positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla._checks import (
    Number,
    as_float,
    hyperparameter,
    nonzero_number,
    operands,
    positive_number,
    require_smoothing,
    require_smoothings,
)
from pipla.prox._roots.strength import MAX_STEPS, Equation, first_decline
from pipla.prox.base import Iterative, Scalar, Solution, Term
from pipla.prox.norms import SoftThreshold

#: A joint prox: (theta, x, lam_theta, lam_x) -> (theta, x).
JointProx = Callable[[Array, Array, Array, Array], tuple[Array, Array]]


class Strength(Iterative):
    r"""$g_2(\theta, x) = w R(x) - r\,d\,\theta$ with $w = e^{r\theta}$.

    Arguments: `regulariser`, the $R$; `rate`, the $r \ne 0$; `degrees`, the $d$ (by default the
    number of elements of x; total variation, blind to constants, has one less, and a penalty of
    homogeneity 2 half as many); `normalised=False` leaves $-r\,d\,\theta$ to the smooth part.
    `tolerance` (relative, of the displacement of theta) stops the alternation below; it is not used
    when $R$ is a `SoftThreshold`, which is solved to float precision. `substitute`, a function
    `(theta, x, lam_theta, lam_x) -> (theta, x)`, is used in place of the exact map: the published
    approximations of the named strengths are such functions.

    Given $u_0$, $u$ is the prox of $R$ at threshold $\lambda_x w(u_0)$. Write
    $D = -\operatorname{sign}(r)(u_0 - \theta)$, the decline of the strength, and $k = |r|$:

    $$ D + k \lambda_\theta d = k \lambda_\theta\, w\, S(w), \qquad
       w = e^{r\theta - kD}, \qquad S(w) = R(\operatorname{prox}_{\lambda_x w R}(x)). $$

    $g_2$ is not jointly convex and (normalised) not bounded below, so there may be several roots;
    the smallest objective may belong to a collapsed one, $x = 0$. The map returned is the
    stationary point in theta's own basin, the first root met when descending from $D = 0$, which
    tends to $\theta$ as the smoothing tends to 0 (E12 says when it, too, runs away).

    Alternating between $u$ and $u_0$ finds just that root: for fixed $S$ the equation is
    `strength_root`, and $S$ decreases with $w$, so one round is a monotone map of $D$, whose
    iterates from 0 never pass its first fixed point. `pipla.prox.decline` has the quicker way for
    soft-thresholding.
    """

    finite: ClassVar[bool] = True

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
        nonzero_number("rate", self.rate)
        positive_number("tolerance", self.tolerance)
        if self.degrees is not None:
            positive_number("degrees", self.degrees)

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        exponent = self.rate.astype(x.dtype) * theta
        total = self.regulariser.value(None, x)
        # Where the penalty is 0, so is the product, although the weight may have overflowed.
        value = jnp.exp(jnp.where(total > 0, exponent, 0)) * total
        return value - self._degrees(x) * exponent if self.normalised else value

    def closed_form(self, theta: Array, particles: Array) -> Array:
        r"""$w = d / \overline{R(X)}$, so $\theta = \log(d/\overline{R(X)})/r$."""
        if not self.normalised:
            return super().closed_form(theta, particles)
        mean = jnp.mean(jax.vmap(lambda x: self.regulariser.value(None, x))(particles))
        return jnp.log(self._degrees(particles[0]) / mean) / self.rate.astype(particles.dtype)

    def time_unit(self, theta: Array, x: Array) -> Array:
        r"""$w^{-2}$ times that of $R$."""
        return jnp.exp(-2 * self.rate.astype(x.dtype) * theta) * self.regulariser.time_unit(None, x)

    def largest_smoothing(self, theta: Array, x: Array) -> Scalar:
        r"""$.05\, w^{-2}$ (E12)."""
        return 0.05 * self.time_unit(theta, x)

    def warm_start(self, theta: Array, x: Array) -> PyTree:
        return self.regulariser.warm_start(None, x)

    def solve(
        self, theta: Array, x: Array, lam_theta: Scalar | None, lam_x: Scalar, warm: PyTree
    ) -> Solution:
        theta, x = operands(self, theta, x)
        if lam_theta is None and self.substitute is None:
            return self._over_x(theta, x, require_smoothing("lam_x", lam_x, x), warm)
        lam_theta, lam_x = require_smoothings(lam_theta, lam_x, x)
        if self.substitute is not None:
            theta, x = self.substitute(theta, x, lam_theta, lam_x)
            return Solution(theta, x, warm, jnp.zeros((), x.dtype))
        rate = self.rate.astype(x.dtype)
        pull = jnp.abs(rate) * lam_theta
        equation = Equation(
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
        theta = moved(first_decline(equation, weight * amplitudes, weight**2 * lam_x))
        threshold = lam_x * weight * jnp.exp(rate * theta)
        x = rebuild(jnp.maximum(amplitudes - threshold, 0))
        return Solution(theta, x, warm, jnp.zeros((), x.dtype))

    def _over_x(self, theta: Array, x: Array, lam_x: Array, warm: PyTree) -> Solution:
        """The prox over x alone: that of R, with the strength in its smoothing."""
        weight = jnp.exp(self.rate.astype(x.dtype) * theta)
        point = self.regulariser.solve(None, x, None, lam_x * weight, warm)
        return point._replace(theta=theta, gap=point.gap * weight)

    def _alternate(
        self, equation: Equation, x: Array, lam_x: Array, warm: PyTree
    ) -> tuple[Array, Solution]:
        """The plain alternation: x is always the prox at the returned theta; `gap` is of that prox.

        With `lam_theta = 0` the first pass changes nothing and is the only one.
        """

        # No penalty overflows at such weights, nor does one tell them apart.
        most = 0.5 * math.log(jnp.finfo(x.dtype).max)
        cold = self.regulariser.warm_start(None, x)

        def weight_at(decline: Array) -> Array:
            return jnp.exp(jnp.minimum(equation.log_weight - equation.rate * decline, most))

        def unfinished(state: tuple[Any, ...]) -> Array:
            *_, moving, count = state
            return moving & (count < MAX_STEPS)

        def iterate(state: tuple[Any, ...]) -> tuple[Any, ...]:
            last, decline, point, _, count = state
            weight = weight_at(decline)
            # A start from a much smaller weight is worse than none.
            stale = weight > 8 * weight_at(last)
            start = jax.tree.map(lambda new, old: jnp.where(stale, new, old), cold, point.warm)
            point = self.regulariser.solve(None, x, None, lam_x * weight, start)
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
        # The inner problem was w R + |u - x|²/(2 lam_x), divided by w.
        return decline, point._replace(gap=point.gap * weight_at(decline))

    def _degrees(self, x: Array) -> Array:
        return jnp.asarray(x.size if self.degrees is None else self.degrees, x.dtype)
