r"""A penalty whose strength is learned: $g_2(\theta, x) = e^{r\theta} R(x) - r\,d\,\theta$.

$R$ is absolutely homogeneous ($\ell_1$, group norms, nuclear norm, total variation), so that
$e^{-wR}$ on $d$ coordinates has the normaliser $w^{-d}$, and $w = e^{r\theta}$ keeps it positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla._checks import boolean, choice, show
from pipla.prox._arguments import (
    Hyperparameter,
    OptionalHyperparameter,
    check_nonzero,
    check_positive,
    hyperparameter,
    operands,
    optional_hyperparameter,
    require_particles,
    require_smoothing,
    require_smoothings,
    require_warm_start,
)
from pipla.prox._roots.strength import MAX_STEPS, StrengthEquation, strength_root
from pipla.prox.base import Iterative, Scalar, Solution, Term, soft
from pipla.prox.norms import L1, NuclearNorm, SoftThreshold, SquaredL2
from pipla.prox.regularity import Regularity

#: A joint prox: (theta, x, lam_theta, lam_x) -> (theta, x).
JointProx = Callable[[Array, Array, Array, Array], tuple[Array, Array]]


class _Alternation(NamedTuple):
    """The state of `Strength._alternate`: `point` is the prox at `decrease`."""

    decrease: Array
    following: Array
    point: Solution
    moving: Array
    steps: Array


class Strength(Iterative):
    r"""$g_2(\theta, x) = w R(x) - r\,d\,\theta$ with $w = e^{r\theta}$.

    Arguments:
        regulariser: the $R$, a term in x alone.
        rate: the $r \ne 0$.
        degrees: the $d$, by default the number of elements of x, or half of it for a square, which
            has homogeneity 2. Total variation, which does not see constants, has one less.
        normalised: `False` leaves $-r\,d\,\theta$ to the smooth part.
        tolerance: relative to the displacement of theta; stops the alternation below. Not used when
            $R$ is a `SoftThreshold`, which is solved to float precision.
        substitute: a function `(theta, x, lam_theta, lam_x) -> (theta, x)` in place of the exact
            map: the published approximations of the named strengths are such functions.

    Given $u_0$, $u$ is the prox of $R$ at threshold $\lambda_x w(u_0)$. Write
    $D = -\operatorname{sign}(r)(u_0 - \theta)$, the decrease of the strength, and $k = |r|$:

    $$ D + k \lambda_\theta d = k \lambda_\theta\, w\, S(w), \qquad
       w = e^{r\theta - kD}, \qquad S(w) = R(\operatorname{prox}_{\lambda_x w R}(x)). $$

    $g_2$ is not jointly convex and (normalised) not bounded below, so there may be several roots;
    the smallest objective may belong to a collapsed one, $x = 0$. The map returned is the
    stationary point in theta's own basin, the first root met when descending from $D = 0$, which
    tends to $\theta$ as the smoothing tends to 0 (E12 says when it, too, runs away).

    Alternating between $u$ and $u_0$ finds just that root: for fixed $S$ the equation is
    `strength_root`, and $S$ decreases with $w$, so one round is a monotone map of $D$, whose
    iterates from 0 never pass its first fixed point. For soft-thresholding
    `StrengthEquation.solve` is faster.
    """

    finite: ClassVar[bool] = True

    regulariser: Term
    rate: Hyperparameter = hyperparameter(default=1.0)
    degrees: OptionalHyperparameter = optional_hyperparameter()
    normalised: bool = eqx.field(static=True, default=True)
    tolerance: Hyperparameter = hyperparameter(default=1e-4)
    substitute: JointProx | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if not isinstance(self.regulariser, Term) or self.regulariser.uses_theta:
            raise TypeError(
                "regulariser must be a term in x alone, such as L1() or TotalVariation(), "
                f"got {type(self.regulariser).__name__}."
            )
        check_nonzero("rate", self.rate)
        boolean("normalised", self.normalised)
        if self.substitute is not None and not callable(self.substitute):
            raise TypeError(
                "substitute must be a function (theta, x, lam_theta, lam_x), "
                f"got {show(self.substitute)}."
            )
        check_positive("tolerance", self.tolerance)
        if self.degrees is not None:
            check_positive("degrees", self.degrees)

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        exponent = self.rate.astype(x.dtype) * theta
        total = self.regulariser.value(None, x)
        # Where the penalty is 0, so is the product, although the weight may have overflowed.
        value = jnp.exp(jnp.where(total > 0, exponent, 0)) * total
        return value - self._degrees(x) * exponent if self.normalised else value

    def rounded_value(self, theta: Array, x: Array, width: Array) -> Scalar:
        """The value: the kinks of $R$ stay where they are."""
        return self.value(theta, x)

    def regularity(self, theta: PyTree, x: PyTree) -> Regularity:
        """Neither: $e^{r\\theta} R(x)$ grows faster than linearly, and is not convex (E7)."""
        return Regularity(False, None)

    @property
    def has_closed_form(self) -> bool:
        """Only with its normaliser: without it nothing keeps the strength from 0."""
        return self.normalised

    def closed_form(self, theta: Array, particles: Array) -> Array:
        r"""The minimiser has $w = d / \overline{R(X)}$: $\theta = \log(d/\overline{R(X)})/r$."""
        if not self.normalised:
            raise TypeError(
                f"{type(self).__name__} has no closed-form theta without its normaliser: nothing "
                "keeps the strength from 0; use normalised=True, and no normaliser in `smooth`."
            )
        particles = require_particles(particles, self)
        return self._best(particles, jax.vmap(lambda x: self.regulariser.value(None, x))(particles))

    def closed_form_at(self, theta: Array, particles: Array, penalty: Array | None) -> Array:
        if penalty is None or not self.normalised:
            return self.closed_form(theta, particles)
        return self._best(require_particles(particles, self), penalty)

    def closed_form_curvature(self, theta: Array, particles: Array) -> Array:
        r"""$r^2 d$, because $w R(X)$ is $d$ on average."""
        particles = require_particles(particles, self)
        return self.rate.astype(particles.dtype) ** 2 * self._degrees(particles[0])

    def _best(self, particles: Array, penalty: Array) -> Array:
        strength = self._degrees(particles[0]) / jnp.mean(penalty)
        return jnp.log(strength) / self.rate.astype(particles.dtype)

    def time_unit(self, theta: Array, x: Array) -> Array:
        r"""The squared length scale: $w^{-2}$ times that of $R$, $w^{-1}$ for a square."""
        theta, x = operands(self, theta, x)
        exponent = -2 / self.regulariser.homogeneity * self.rate.astype(x.dtype) * theta
        return jnp.exp(exponent) * self.regulariser.time_unit(None, x)

    def largest_smoothing(self, theta: Array, x: Array) -> Scalar:
        r"""The limit: .05 of `time_unit`, $.05\, w^{-2}$ for a norm (E12)."""
        return 0.05 * self.time_unit(theta, x)

    def parameters(self, theta: Array) -> dict[str, Array]:
        return {"strength": jnp.exp(self.rate * theta)}

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
        equation = StrengthEquation(
            log_weight=rate * theta,
            pull=pull,
            offset=pull * self._degrees(x) if self.normalised else jnp.zeros_like(pull),
            rate=jnp.abs(rate),
        )

        def moved(decrease: Array) -> Array:
            return jnp.where(lam_theta > 0, theta - jnp.sign(rate) * decrease, theta)

        if not isinstance(self.regulariser, SoftThreshold):
            require_warm_start(warm, self, theta, x)
            decrease, point = self._alternate(equation, x, lam_x, warm)
            return point._replace(theta=moved(decrease))

        # Scaling amplitudes by the weight w and smoothing by w² leaves a problem of weight 1.
        amplitudes, rebuild = self.regulariser.decompose(x)
        weight = self.regulariser.weight.astype(x.dtype)
        theta = moved(equation.solve(weight * amplitudes, weight**2 * lam_x))
        threshold = lam_x * weight * jnp.exp(rate * theta)
        shrunk = jnp.maximum(amplitudes - threshold, 0)
        return Solution(
            theta, rebuild(shrunk), warm, jnp.zeros((), x.dtype), weight * jnp.sum(shrunk)
        )

    def _over_x(self, theta: Array, x: Array, lam_x: Array, warm: PyTree) -> Solution:
        """The prox over x alone: that of R, with the strength in its smoothing."""
        weight = jnp.exp(self.rate.astype(x.dtype) * theta)
        point = self.regulariser.solve(None, x, None, lam_x * weight, warm)
        return point._replace(theta=theta, gap=point.gap * weight)

    def _alternate(
        self, equation: StrengthEquation, x: Array, lam_x: Array, warm: PyTree
    ) -> tuple[Array, Solution]:
        """The plain alternation: x is always the prox at the returned theta; `gap` is of that prox.

        With `lam_theta = 0` the first pass changes nothing and is the only one.
        """
        # No penalty overflows at such weights, nor does one tell them apart.
        largest = 0.5 * math.log(jnp.finfo(x.dtype).max)
        cold = self.regulariser.warm_start(None, x)

        def weight_at(decrease: Array) -> Array:
            return jnp.exp(jnp.minimum(equation.log_weight - equation.rate * decrease, largest))

        def unfinished(state: _Alternation) -> Array:
            return state.moving & (state.steps < MAX_STEPS)

        def iterate(state: _Alternation) -> _Alternation:
            decrease = state.following
            weight = weight_at(decrease)
            # A warm start from a much smaller weight is worse than none.
            stale = weight > 8 * weight_at(state.decrease)
            start = jax.tree.map(
                lambda new, old: jnp.where(stale, new, old), cold, state.point.warm
            )
            point = self.regulariser.solve(None, x, None, lam_x * weight, start)
            if point.penalty is None:
                point = point._replace(penalty=self.regulariser.value(None, point.x))
            following = equation.root(point.penalty)
            step = jnp.abs(following - decrease)
            tolerance = self.tolerance.astype(x.dtype) * jnp.abs(following)
            moving = step > jnp.maximum(tolerance, equation.rounding(following))
            return _Alternation(decrease, following, point, moving, state.steps + 1)

        zero = jnp.zeros_like(lam_x)
        start = Solution(None, x, warm, zero, penalty=zero)
        state = _Alternation(zero, zero, start, zero == 0, jnp.zeros((), jnp.int32))
        state = jax.lax.while_loop(unfinished, iterate, state)
        # The inner problem was w R + |u - x|²/(2 lam_x), divided by w.
        gap = state.point.gap * weight_at(state.decrease)
        return state.decrease, state.point._replace(gap=gap)

    def _degrees(self, x: Array) -> Array:
        plain = x.size / self.regulariser.homogeneity
        return jnp.asarray(plain if self.degrees is None else self.degrees, x.dtype)


class LaplaceScale(Strength):
    r"""$g_2(\theta, x) = 2 d\,\theta + e^{-2\theta} \sum_i |x_i|$: Laplace of scale $e^{2\theta}$.

    The normaliser is $2d\,\theta$; the paper has $d\,\theta$ (E2). The constant $d \log 2$ is left
    out. Given $u_0$, $u_i = \operatorname{soft}(x_i, \lambda_x e^{-2u_0})$, and $u_0$ is the root
    in theta's own basin (see `Strength`) of

    $$ u_0 - \theta + 2 \lambda_\theta d
       - 2 \lambda_\theta e^{-2u_0} \sum_i (|x_i| - \lambda_x e^{-2u_0})_+ = 0. $$

    That basin is wide while $2 \lambda_\theta d \ll 1$ and $\lambda_x \lesssim .05\, e^{4\theta}$;
    beyond, theta runs away and x collapses to 0 (E12): scale theta's block by $1/d$, or use the
    non-centred form of the model.

    `approximation="published"` is the paper's, with its $d$ and without the factor
    $e^{2\lambda_\theta d}$ that its Lambert step drops (E2):
    $u_i = \operatorname{soft}(x_i, \lambda_x e^{-2\theta})$ and
    $u_0 = \theta - \lambda_\theta d + \tfrac12 W(4 \lambda_\theta e^{-2\theta} \sum_i |u_i|)$.

    >>> theta, x = LaplaceScale().prox(0.0, jnp.array([2.0, -0.5]), 0.01, 0.1)
    >>> print(f"{theta:.4f}, {x[0]:.4f}, {x[1]:.4f}")
    0.0055, 1.9011, -0.4011
    """

    def __init__(self, *, approximation: str | None = None) -> None:
        choice("approximation", approximation, (None, "published"))
        super().__init__(L1(), rate=-2.0, substitute=_published_scale if approximation else None)

    def parameters(self, theta: Array) -> dict[str, Array]:
        return {"scale": jnp.exp(2 * jnp.asarray(theta))}


class GaussianScale(Strength):
    r"""$g_2(\theta, x) = 2 d\,\theta + \tfrac12 e^{-4\theta} |x|^2$: normal of scale $e^{2\theta}$.

    The constant $\tfrac d2 \log 2\pi$ is left out. Given $u_0$,
    $u = x / (1 + \lambda_x e^{-4u_0})$, and $u_0$ is the root in theta's own basin (see `Strength`)
    of $u_0 - \theta + 2 \lambda_\theta (d - e^{-4u_0} |u|^2) = 0$.
    What `LaplaceScale` says about that basin is true here as well.

    >>> theta, x = GaussianScale().prox(0.0, jnp.array([2.0, -0.5]), 0.01, 0.1)
    >>> print(f"{theta:.4f}, {x[0]:.4f}, {x[1]:.4f}")
    0.0247, 1.8339, -0.4585
    """

    def __init__(self) -> None:
        super().__init__(SquaredL2(), rate=-4.0, tolerance=1e-6)

    def parameters(self, theta: Array) -> dict[str, Array]:
        return {"scale": jnp.exp(2 * jnp.asarray(theta))}


class NuclearStrength(Strength):
    r"""$g_2(\theta, x) = e^\theta |x|_*$: how strongly should low rank be preferred?

    The normaliser $-d\,\theta$ is left to the smooth part, as in the paper, unless
    `normalised=True`. Given $u_0$ the singular values are soft-thresholded at
    $\lambda_x e^{u_0}$; with one singular value decomposition, $u_0$ is the first root below
    $\theta$ of (see `Strength`)

    $$ u_0 - \theta + \lambda_\theta\, e^{u_0} \sum_j (s_j - \lambda_x e^{u_0})_+ = 0. $$

    `approximation="published"` is the paper's
    $\alpha = \theta + W(\lambda_\theta e^\theta \sum_j (s_j - \lambda_x e^\theta)_+)$ followed by
    thresholding at $\lambda_x e^\alpha$. Its plus sign is an error (E4): a penalty cannot raise its
    own strength. With minus it is one step of the exact iteration.
    """

    def __init__(self, *, normalised: bool = False, approximation: str | None = None) -> None:
        choice("approximation", approximation, (None, "published"))
        boolean("normalised", normalised)
        if approximation and normalised:
            raise ValueError(
                "approximation='published' exists only for normalised=False: "
                "the paper keeps the normaliser in the smooth part."
            )
        substitute = _published_nuclear if approximation else None
        super().__init__(NuclearNorm(), normalised=normalised, substitute=substitute)


def _published_scale(theta: Array, x: Array, lam_theta: Array, lam_x: Array) -> tuple[Array, Array]:
    moved = soft(x, lam_x * jnp.exp(-2 * theta))
    lambert = strength_root(
        jnp.log(4 * lam_theta) - 2 * theta + jnp.log(jnp.sum(jnp.abs(moved))),
        jnp.zeros_like(theta),
        jnp.ones_like(theta),
    )
    return theta - lam_theta * x.size + 0.5 * lambert, moved


def _published_nuclear(
    theta: Array, x: Array, lam_theta: Array, lam_x: Array
) -> tuple[Array, Array]:
    amplitudes, rebuild = NuclearNorm().decompose(x)
    total = jnp.sum(jnp.maximum(amplitudes - lam_x * jnp.exp(theta), 0))
    lambert = strength_root(
        jnp.log(lam_theta) + jnp.log(total) + theta, jnp.zeros_like(theta), jnp.ones_like(theta)
    )
    moved = theta + lambert
    return moved, rebuild(jnp.maximum(amplitudes - lam_x * jnp.exp(moved), 0))
