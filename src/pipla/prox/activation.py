r"""The hard tanh as a penalty: the paper's piecewise linear activation."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla._checks import choice
from pipla.prox.base import Fixed, Scalar
from pipla.prox.regularity import Regularity


class HardTanh(Fixed):
    r"""$\sum_i h(x_i)$ with $h(x) = \operatorname{clip}(x, -1, 1)$, which is not convex.

    The prox is the global minimiser. From $x > -1$ one may slide down the ramp to
    $\max(x - \lambda, -1)$, or, from above 1, stay on the plateau at the price $h = 1$. Sliding
    costs $x - \lambda/2$ if it ends on the ramp and $-1 + (x+1)^2/(2\lambda)$ if it ends at $-1$;
    either is below 1 for $x$ below the switch

    $$ 1 + \lambda/2 \;\text{ for } \lambda \le 4, \qquad
       2\sqrt\lambda - 1 \;\text{ for } \lambda \ge 4. $$

    So $u = x$ for $x \le -1$ or $x$ beyond the switch (where both are minimisers, it stays), and
    $u = \max(x - \lambda, -1)$ between.

    `approximation="published"` is the paper's equation (proximity_map_leaky_relu), for
    $\lambda \le 1$, which sends $[1-\lambda, 1]$ to 1 and stays above 1. That is wrong: the kink at
    $+1$ is concave, no minimiser sits on it, and its "subgradient $[-1, 0]$" does not exist. Where
    its cases overlap ($\lambda > 1$) the first that applies is taken, after $x > 1$.
    """

    finite: ClassVar[bool] = True

    approximation: str | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        choice("approximation", self.approximation, (None, "published"))

    def regularity(self, theta: PyTree, x: Array) -> Regularity:
        return Regularity(False, math.sqrt(jnp.size(x)))

    def penalty(self, x: Array) -> Scalar:
        return jnp.sum(jnp.clip(x, -1, 1))

    def shrink(self, x: Array, lam: Scalar) -> Array:
        if self.approximation == "published":
            return _published(x, lam)
        switch = jnp.where(lam <= 4, 1 + lam / 2, 2 * jnp.sqrt(lam) - 1)
        return jnp.where((x <= -1) | (x >= switch), x, jnp.maximum(x - lam, -1))


def _published(x: Array, lam: Scalar) -> Array:
    on_the_ramp = jnp.where(x <= 1 - lam, x - lam, 1)
    between = jnp.where(x <= -1 + lam, -1, on_the_ramp)
    return jnp.where((x < -1) | (x > 1), x, between)
