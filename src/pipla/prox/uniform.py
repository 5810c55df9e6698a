r"""A uniform density whose half-width is learned, directly or through its logarithm.

Both objectives tend to $-\infty$ as the box closes, so no global minimiser exists, and both maps
return a stated stationary point. With the $|x_i|$ sorted, the problem left in the half-width is
smooth between neighbours.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from pipla._checks import choice
from pipla.prox._arguments import operands, require_smoothing, require_smoothings
from pipla.prox._roots.segments import first_root, segments
from pipla.prox.base import ClosedForm, Scalar
from pipla.prox.regularity import Regularity

#: E18, for both classes.
UNSOUND = (
    "the centred form of {} has no sound joint prox: its objective falls without bound as the box "
    "closes, and theta ends near where it started (E18); use `pipla.noncentred(model)`"
)


class UniformBox(ClosedForm):
    r"""$g_2(\theta, x) = d \log 2\theta$ where all $|x_i| \le \theta$, infinite elsewhere.

    Given $u_0$, $u_i = \operatorname{clip}(x_i, \pm u_0)$. The prox takes the **largest stationary
    point** of $d \log u_0 + (u_0-\theta)^2/(2\lambda_\theta) + \sum_i(|x_i|-u_0)_+^2/(2\lambda_x)$,
    a local minimiser: where the $k$ largest $|x_i|$, with sum $S_k$, exceed $u_0$, and
    $r = \lambda_\theta/\lambda_x$, it is the larger root of

    $$ (1 + rk)\,u^2 - (\theta + r S_k)\,u + \lambda_\theta d = 0. $$

    Where there is none (theta too small for its smoothing), the fallback is the point at which the
    derivative $u - \theta + \lambda_\theta d/u - r\sum_i(|x_i|-u)_+$ is smallest: the largest root
    ends there as a double root when it disappears. Any real theta is accepted; for positive
    `lam_theta` the result is positive.

    `approximation="published"`: $u_0 = (\theta + \sqrt{\theta^2 - 4\lambda_\theta d})/2$ if that is
    real, else $\max_i |x_i|$, which ignores the pull of x on theta.

    >>> theta, x = UniformBox().prox(2.0, jnp.array([0.5, -2.5]), 0.1, 0.1)
    >>> print(f"{theta:.3f}, {x[0]:.3f}, {x[1]:.3f}")
    2.205, 0.500, -2.205
    """

    approximation: str | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        choice("approximation", self.approximation, (None, "published"))

    def regularity(self, theta: Array, x: Array) -> Regularity:
        return Regularity(False, None)

    def objections(self) -> list[str]:
        return [UNSOUND.format(type(self).__name__)]

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        inside = (theta > 0) & jnp.all(jnp.abs(x) <= theta)
        return jnp.where(inside, x.size * jnp.log(2 * jnp.where(theta > 0, theta, 1)), jnp.inf)

    def parameters(self, theta: Array) -> dict[str, Array]:
        return {"half-width": theta}

    def time_unit(self, theta: Array, x: Array) -> Array:
        r"""The variance $\theta^2/3$."""
        theta, x = operands(self, theta, x)
        return theta**2 / 3

    def prox(
        self, theta: Array, x: Array, lam_theta: Scalar | None, lam_x: Scalar
    ) -> tuple[Array, Array]:
        theta, x = operands(self, theta, x)
        width = jnp.maximum(theta, 0)
        if lam_theta is None:
            require_smoothing("lam_x", lam_x, x)
            return theta, jnp.clip(x, -width, width)
        lam_theta, lam_x = require_smoothings(lam_theta, lam_x, x)
        if self.approximation == "published":
            room = theta**2 - 4 * lam_theta * x.size
            root = (theta + jnp.sqrt(jnp.maximum(room, 0))) / 2
            moved = jnp.where(room >= 0, root, jnp.max(jnp.abs(x)))
            half_width = jnp.abs(moved)
        else:
            moved = _largest_stationary_point(theta, x, lam_theta * x.size, lam_theta / lam_x)
            half_width = jnp.maximum(moved, 0)
        moved, half_width = (
            jnp.where(lam_theta > 0, new, old) for new, old in ((moved, theta), (half_width, width))
        )
        return moved, jnp.clip(x, -half_width, half_width)


class UniformLogBox(ClosedForm):
    r"""$g_2(\eta, x) = d\,\eta + d \log 2$ where all $|x_i| \le e^\eta$, infinite elsewhere.

    The uniform density on $\pm e^\eta$. Given $u_0$, $u_i = \operatorname{clip}(x_i, \pm e^{u_0})$;
    the prox takes the stationary point in eta's own basin, the first root met from $\eta$ of

    $$ E(u_0) = u_0 - \eta + \lambda_\theta d
       - \frac{\lambda_\theta}{\lambda_x}\, e^{u_0} \sum_i (|x_i| - e^{u_0})_+ . $$

    It always exists: $E \le 0$ at $\eta - \lambda_\theta d$, and $E > 0$ at any larger $u_0$
    whose box contains x.
    """

    def regularity(self, theta: Array, x: Array) -> Regularity:
        return Regularity(False, None)

    def objections(self) -> list[str]:
        return [UNSOUND.format(type(self).__name__)]

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        inside = jnp.all(jnp.abs(x) <= jnp.exp(theta))
        return jnp.where(inside, x.size * (theta + jnp.log(jnp.asarray(2, x.dtype))), jnp.inf)

    def parameters(self, theta: Array) -> dict[str, Array]:
        return {"half-width": jnp.exp(theta)}

    def time_unit(self, theta: Array, x: Array) -> Array:
        r"""The variance $e^{2\eta}/3$."""
        theta, x = operands(self, theta, x)
        return jnp.exp(2 * theta) / 3

    def prox(
        self, theta: Array, x: Array, lam_theta: Scalar | None, lam_x: Scalar
    ) -> tuple[Array, Array]:
        theta, x = operands(self, theta, x)
        if lam_theta is None:
            require_smoothing("lam_x", lam_x, x)
            return theta, jnp.clip(x, -jnp.exp(theta), jnp.exp(theta))
        lam_theta, lam_x = require_smoothings(lam_theta, lam_x, x)
        root = first_root(theta, jnp.abs(x), lam_theta * x.size, -lam_theta / lam_x)
        moved = jnp.where(lam_theta > 0, root, theta)
        half_width = jnp.exp(moved)
        return moved, jnp.clip(x, -half_width, half_width)


def _largest_stationary_point(theta: Array, x: Array, shrinkage: Array, ratio: Array) -> Array:
    number, total, below, above = segments(jnp.abs(x))
    curvature = 1 + ratio * number
    push = theta + ratio * total
    lowest = jnp.sqrt(shrinkage / curvature)  # where the derivative is smallest in this segment
    # The discriminant as a product: no overflow, and exact next to the double root.
    edge = 2 * curvature * lowest
    real = push >= edge
    root = (push + jnp.sqrt(jnp.maximum(push - edge, 0) * (push + edge))) / (2 * curvature)
    # A root on a boundary must not be lost to rounding on both sides of it.
    slack = 8 * jnp.finfo(x.dtype).eps
    valid = real & (root >= below * (1 - slack)) & (root <= above * (1 + slack))
    largest = jnp.max(jnp.where(valid, root, -jnp.inf))

    point = jnp.clip(lowest, below, above)
    derivative = curvature * point + shrinkage / jnp.where(point > 0, point, 1) - push
    # A segment closed up at 0 (elements of x that are 0) holds no positive point.
    smallest = jnp.argmin(jnp.where(point > 0, derivative, jnp.inf))
    return jnp.where(jnp.any(valid), largest, point[smallest])
