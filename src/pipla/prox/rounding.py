"""Kinks that move with theta, rounded off, so that second derivatives in theta see them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

Scalar = Float[Array, ""]


def rounded(term: Any, theta: PyTree, x: PyTree, width: PyTree) -> Scalar:
    r"""The value of a term, with the kinks that move with theta rounded off over `width`.

    The standard error of theta needs second derivatives, of which a kink shows nothing. The two
    derivatives in theta that a rounded kink has at this theta take the place of its own: with the
    prox over x, $u = \operatorname{prox}_{\lambda g_2(\theta, \cdot)}(x)$, its derivatives
    $U = \partial u/\partial\theta$ and $J = \partial u/\partial x$, and
    $C = (I - J - \lambda \nabla_x^2 g_2\, J)\, U/\lambda$, added to $g_2(\theta', x)$ is

    $$ (u - x + \lambda \nabla_x g_2)^\top C\, (\theta' - \theta)
       + \tfrac12 (\theta' - \theta)^\top U^\top C\, (\theta' - \theta). $$

    Near a kink points are mapped onto it: across it $J = 0$, and $U$ is its velocity. There
    these are the derivatives of the Moreau envelope over x. Where the term is smooth,
    $J = (I + \lambda \nabla_x^2 g_2)^{-1}$, and at a kink that stays where it is $U = 0$: there
    $C$ vanishes, and the value stays as it is. A kink is rounded off over
    $\lambda |\nabla_x g_2|$, so that $\lambda$ is width / slope, each a root mean square over a
    leaf of x.
    """
    value = term.value(theta, x)
    # Constants, so that reverse mode does not enter the solver, which may loop.
    fixed, here, x, width = constant((term, theta, x, width))
    slope = jax.grad(fixed.value, argnums=1)
    slopes = slope(here, x)
    lam = jax.tree.map(_smoothing, width, slopes)
    flat, unravel = ravel_pytree(here)

    def point(theta: PyTree, x: PyTree) -> PyTree:
        return fixed.prox(theta, x, None, lam)[1]

    def along(direction: Array) -> tuple[Array, Array]:
        """The columns of U and C for a direction of theta."""
        moved = jax.jvp(lambda t: point(t, x), (here,), (unravel(direction),))[1]
        kept = jax.jvp(lambda x: point(here, x), (x,), (moved,))[1]
        smooth = jax.jvp(lambda x: slope(here, x), (x,), (kept,))[1]
        across = jax.tree.map(lambda m, k, s, lam: (m - k) / lam - s, moved, kept, smooth, lam)
        return ravel_pytree(moved)[0], ravel_pytree(across)[0]

    moved, across = jax.vmap(along)(jnp.eye(flat.size, dtype=flat.dtype))
    pull = jax.tree.map(lambda u, x, s, lam: u - x + lam * s, point(here, x), x, slopes, lam)
    step = ravel_pytree(theta)[0] - flat
    return value + step @ (across @ ravel_pytree(pull)[0] + 0.5 * (moved @ across.T) @ step)


def _smoothing(width: Array, slope: Array) -> Scalar:
    """The smoothing of a leaf of x that rounds off over this width."""
    width, slope = (jnp.sqrt(jnp.mean(jnp.square(leaf))) for leaf in (width, slope))
    slope = jnp.where(slope > 0, slope, 1.0)
    # An x that does not vary at all has no kink to round off; its curvature stays finite.
    return jnp.maximum(width, jnp.finfo(slope.dtype).eps / slope) / slope


def constant(tree: PyTree) -> PyTree:
    """`tree` with arrays that are constants under differentiation."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)
