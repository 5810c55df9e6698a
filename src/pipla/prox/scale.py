r"""A Laplace density whose scale is learned."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from pipla._checks import choice
from pipla.prox._roots.newton import strength_root
from pipla.prox.norms import L1, soft
from pipla.prox.strength import Strength


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
        super().__init__(L1(), rate=-2.0, substitute=_published if approximation else None)


def _published(theta: Array, x: Array, lam_theta: Array, lam_x: Array) -> tuple[Array, Array]:
    moved = soft(x, lam_x * jnp.exp(-2 * theta))
    lambert = strength_root(
        jnp.log(4 * lam_theta) - 2 * theta + jnp.log(jnp.sum(jnp.abs(moved))),
        jnp.zeros_like(theta),
        jnp.ones_like(theta),
    )
    return theta - lam_theta * x.size + 0.5 * lambert, moved
