r"""Densities of x whose location theta is learned: Laplace and Gaussian."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from pipla._checks import choice, integer
from pipla.prox._arguments import (
    Hyperparameter,
    check_positive,
    hyperparameter,
    operands,
    require_floating,
    require_particles,
    require_smoothings,
)
from pipla.prox._roots.newton import add_up, clipped_root
from pipla.prox.base import ClosedForm, Scalar, soft
from pipla.prox.regularity import Regularity


class LaplaceLocation(ClosedForm):
    r"""$g_2(\theta, x) = \sum_i |x_i - \theta| / b$: each $x_i$ is Laplace around $\theta$.

    $b$ is `scale`; the constant $d \log 2b$ is left out. Jointly convex. Given $u_0$,
    $u_i = x_i - \operatorname{clip}(x_i - u_0, \pm\lambda_x/b)$, and $u_0$ is the root of the
    increasing, piecewise linear

    $$ u_0 - \theta - \frac{\lambda_\theta}{\lambda_x}
       \sum_i \operatorname{clip}\!\Big(x_i - u_0, \pm\frac{\lambda_x}{b}\Big), $$

    found by Newton from $\theta$. `approximation` selects one of the paper's substitutes:

    * `"published"`: soft-threshold around the old $\theta$,
      $u_i = \theta + \operatorname{soft}(x_i - \theta, \lambda_x/b)$, then
      $u_0 = \theta + (\lambda_\theta/b) \sum_i \operatorname{sign}(u_i - \theta)$.
    * `"iterative"`: `sweeps` fixed-point sweeps of the optimality conditions from $(\theta, x)$,
      $u_i \leftarrow x_i - (\lambda_x/b) \operatorname{sign}(u_i - u_0)$ and then, with the new
      $u$ and the old $u_0$ on the right,
      $u_0 \leftarrow \theta + (\lambda_\theta/b) \sum_i \operatorname{sign}(u_i - u_0)$, assuming
      no tie ($D = \emptyset$). The sign of the paper's $u_0$ equation is corrected (E8). Of the
      possible orders only this one reproduces the published tables (PIPULA: 19 %). The sweeps
      need not converge: one step of $\lambda_\theta d / b$ in $u_0$ can flip every sign.

    >>> theta, x = LaplaceLocation().prox(0.0, jnp.array([-1.0, 3.0, 5.0]), 0.1, 0.5)
    >>> print(f"{theta:.3f}, {x[0]:.3f}, {x[1]:.3f}, {x[2]:.3f}")
    0.100, -0.500, 2.500, 4.500
    """

    finite: ClassVar[bool] = True
    has_closed_form: ClassVar[bool] = True

    scale: Hyperparameter = hyperparameter(default=1.0)
    approximation: str | None = eqx.field(static=True, default=None)
    sweeps: int = eqx.field(static=True, default=40)

    def __check_init__(self) -> None:
        check_positive("scale", self.scale)
        choice("approximation", self.approximation, (None, "published", "iterative"))
        integer("sweeps", self.sweeps, least=1)

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        return jnp.sum(jnp.abs(x - theta)) / self.scale.astype(x.dtype)

    def rounded_value(self, theta: Array, x: Array, width: Array) -> Scalar:
        """With $|x - \\theta|$ replaced by a parabola up to the width (Huber)."""
        theta, x = operands(self, theta, x)
        scale = self.scale.astype(x.dtype)
        # An x that does not vary at all has no kink to round off; its curvature stays finite.
        width = jnp.maximum(width, jnp.finfo(x.dtype).eps * scale)
        distance = jnp.abs(x - theta)
        near = distance**2 / (2 * width) + width / 2
        return jnp.sum(jnp.where(distance < width, near, distance)) / scale

    def parameters(self, theta: Array) -> dict[str, Array]:
        return {"location": theta}

    def closed_form(self, theta: Array, particles: Array) -> Array:
        """The median of all elements of all particles."""
        return _median(require_particles(particles, self))

    def time_unit(self, theta: Array, x: Array) -> Array:
        r"""The squared scale $b^2$."""
        x = require_floating("x", x, self)
        return self.scale.astype(x.dtype) ** 2

    def regularity(self, theta: Array, x: Array) -> Regularity:
        r"""$\sqrt{d(d + 1)}/b$: where all signs agree, theta's slope is $d/b$."""
        size = require_floating("x", x, self).size
        return Regularity(True, math.sqrt(size * (size + 1)) / float(self.scale))

    def prox(
        self, theta: Array, x: Array, lam_theta: Scalar | None, lam_x: Scalar
    ) -> tuple[Array, Array]:
        theta, x = operands(self, theta, x)
        fixed = lam_theta is None
        lam_theta, lam_x = require_smoothings(lam_theta, lam_x, x)
        width = lam_x / self.scale.astype(x.dtype)
        ratio = lam_theta / lam_x
        if self.approximation == "published":
            return _published(theta, x, ratio, width)
        if self.approximation == "iterative":
            return _iterated(theta, x, ratio, width, self.sweeps)
        if fixed:
            return theta, _towards(theta, x, width)
        return _exact(theta, x, ratio, width)


class GaussianLocation(ClosedForm):
    r"""$g_2(\theta, x) = \sum_i (x_i - \theta)^2 / (2 s^2)$: each $x_i$ is normal around $\theta$.

    $s$ is `scale`; the constant $d \log s\sqrt{2\pi}$ is left out. Given $u_0$,
    $u_i = (s^2 x_i + \lambda_x u_0)/(s^2 + \lambda_x)$, and

    $$ u_0 = \theta + \frac{\lambda_\theta \sum_i (x_i - \theta)}
                           {s^2 + \lambda_x + \lambda_\theta d}. $$

    It could be a smooth term just as well; here it tests what uses a joint prox.
    """

    finite: ClassVar[bool] = True
    has_closed_form: ClassVar[bool] = True

    scale: Hyperparameter = hyperparameter(default=1.0)

    def __check_init__(self) -> None:
        check_positive("scale", self.scale)

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        return jnp.sum((x - theta) ** 2) / (2 * self.scale.astype(x.dtype) ** 2)

    def rounded_value(self, theta: Array, x: Array, width: Array) -> Scalar:
        """The value, which has no kinks."""
        return self.value(theta, x)

    def parameters(self, theta: Array) -> dict[str, Array]:
        return {"location": theta}

    def closed_form(self, theta: Array, particles: Array) -> Array:
        """The mean of all elements of all particles."""
        return jnp.mean(require_particles(particles, self))

    def time_unit(self, theta: Array, x: Array) -> Array:
        r"""The variance $s^2$."""
        x = require_floating("x", x, self)
        return self.scale.astype(x.dtype) ** 2

    def regularity(self, theta: Array, x: Array) -> Regularity:
        return Regularity(True, None)

    def prox(
        self, theta: Array, x: Array, lam_theta: Scalar | None, lam_x: Scalar
    ) -> tuple[Array, Array]:
        theta, x = operands(self, theta, x)
        lam_theta, lam_x = require_smoothings(lam_theta, lam_x, x)
        variance = self.scale.astype(x.dtype) ** 2
        total = variance + lam_x
        moved = theta + lam_theta * jnp.sum(x - theta) / (total + lam_theta * x.size)
        return moved, moved + (x - moved) * (variance / total)


def _median(values: Array) -> Array:
    """A number with half of the values on either side.

    By bisection: on a CPU, XLA takes twenty times as long to sort.
    """

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + (high - low) / 2
        above = 2 * jnp.sum(values <= middle) >= values.size
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    ends = (jnp.min(values), jnp.max(values))
    return jax.lax.fori_loop(0, jnp.finfo(values.dtype).nmant + 8, halve, ends)[1]


def _exact(theta: Array, x: Array, ratio: Array, width: Array) -> tuple[Array, Array]:
    # In the unit v = (u0 - theta)/width one number is left: v = ratio Σ clip(z - v, ±1). Saturated
    # terms then add up without rounding, and nothing cancels when theta is large.
    z = (x - theta) / width
    moved = theta + clipped_root(z.reshape(-1), ratio) * width
    return moved, _towards(moved, x, width)


def _towards(theta: Array, x: Array, width: Array) -> Array:
    """Equal to `x - clip(x - theta, ±width)`, but a tie x = theta comes out exact."""
    return jnp.clip(theta, x - width, x + width)


def _published(theta: Array, x: Array, ratio: Array, width: Array) -> tuple[Array, Array]:
    moved = theta + soft(x - theta, width)
    # Of soft(x - theta), not of moved - theta: rounding in the sum must not invent a sign.
    signs = jnp.sign(soft(x - theta, width))
    return theta + ratio * width * add_up(signs), moved


def _iterated(
    theta: Array, x: Array, ratio: Array, width: Array, sweeps: int
) -> tuple[Array, Array]:
    def sweep(_: int, point: tuple[Array, Array]) -> tuple[Array, Array]:
        level, moved = point
        moved = x - width * jnp.sign(moved - level)
        return theta + ratio * width * add_up(jnp.sign(moved - level)), moved

    return jax.lax.fori_loop(0, sweeps, sweep, (theta, x))
