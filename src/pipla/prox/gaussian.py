r"""A Gaussian density whose location is learned: smooth, and every answer is known."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from pipla._checks import Number, hyperparameter, operands, positive_number, require_smoothings
from pipla.prox.base import ClosedForm, Scalar


class GaussianLocation(ClosedForm):
    r"""$g_2(\theta, x) = \sum_i (x_i - \theta)^2 / (2 s^2)$: each $x_i$ is normal around $\theta$.

    $s$ is `scale`; the constant $d \log s\sqrt{2\pi}$ is left out. Given $u_0$,
    $u_i = (s^2 x_i + \lambda_x u_0)/(s^2 + \lambda_x)$, and

    $$ u_0 = \theta + \frac{\lambda_\theta \sum_i (x_i - \theta)}
                           {s^2 + \lambda_x + \lambda_\theta d}. $$

    It could as well be a smooth term; here it is the test bed for what uses a joint prox.
    """

    finite: ClassVar[bool] = True

    scale: Number = hyperparameter(default=1.0)

    def __check_init__(self) -> None:
        positive_number("scale", self.scale)

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        return jnp.sum((x - theta) ** 2) / (2 * self.scale.astype(x.dtype) ** 2)

    def time_unit(self, theta: Array, x: Array) -> Array:
        r"""$s^2$."""
        return self.scale.astype(x.dtype) ** 2

    def prox(
        self, theta: Array, x: Array, lam_theta: Scalar | None, lam_x: Scalar
    ) -> tuple[Array, Array]:
        theta, x = operands(self, theta, x)
        lam_theta, lam_x = require_smoothings(lam_theta, lam_x, x)
        variance = self.scale.astype(x.dtype) ** 2
        spread = variance + lam_x
        moved = theta + lam_theta * jnp.sum(x - theta) / (spread + lam_theta * x.size)
        return moved, moved + (x - moved) * (variance / spread)
