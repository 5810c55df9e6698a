"""Gradient and noise, then the joint prox: PIPGLA and PGLA."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import _checks
from pipla.algorithms.base import Limits
from pipla.algorithms.langevin import Langevin, Move, Noise, number
from pipla.models.model import Model


class ForwardBackward(Langevin):
    r"""Gradient and noise, then the joint prox (paper, eqs. pip-gla to pip-gla-x).

    $$ v_{n+1/2} = v_n - \gamma P \nabla g_1(v_n) + \sqrt{2 \gamma P}\, \xi, \qquad
       v_{n+1} = \operatorname{prox}^{\lambda P}_{g_2}(v_{n+1/2}) $$

    averaged over particles in theta. The splitting is consistent only for $\lambda = \gamma$, the
    default: another $\lambda$ weights the prior by $\lambda/\gamma$ against the likelihood (E13).

    `reflected=True` goes through the proximal point of half the smoothing and as far again,
    $X_{n+1} = 2 \operatorname{prox}^{\lambda/2}_{g_2}(X_{n+1/2}) - X_{n+1/2}$: for a smooth $g_2$
    an implicit midpoint step, for a constraint the mirror image. Its bias is smaller than that of
    the prox, above all at a constraint: there, projected particles pile up on the border, and the
    bias is of order $\sqrt\gamma$ instead of $\gamma$.

    Arguments:
        smoothing: $\lambda$; `None` means equal to `step_size`.
        reflected: reflect at the proximal point instead of going to it (the particles only; theta
            must move by its gradient, or not at all).
    """

    smoothing: Array | None = eqx.field(converter=number, default=None, kw_only=True)

    reflected: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self) -> None:
        _checks.positive("smoothing", self.smoothing)
        _checks.boolean("reflected", self.reflected)

    def move(
        self, theta: PyTree, particles: PyTree, warm: PyTree, noise: Noise, model: Model
    ) -> Move:
        if self.reflected and self.theta_update == "prox" and model.nonsmooth.uses_theta:
            raise ValueError(
                "reflected=True reflects the particles only, and theta must not move by the prox: "
                "use theta_update='gradient' or 'frozen', or `pipla.noncentred`."
            )
        slope = self.slopes(theta, particles, model)
        half = jax.tree.map(jnp.add, self.descend(theta, slope.theta), noise.theta)
        half_particles = jax.tree.map(
            jnp.add,
            self.descend_particles(theta, particles, slope.particles, model),
            noise.particles,
        )
        smoothing = 0.5 * self._lam if self.reflected else self._lam
        point = self.solve(half, half_particles, smoothing, warm, model, scale_point=self.published)
        if self.reflected:
            point = point._replace(x=mirrored(half, half_particles, point.x, model))
        return Move(point.theta, point.x, point.warm, slope, point.gap)

    @property
    def _lam(self) -> Array:
        return self._gamma if self.smoothing is None else self.smoothing

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        gamma = self._gamma
        convexity = jnp.clip(smallest * gamma, 0.0, 0.999)
        return Limits(
            1 / largest,
            (gamma, gamma / (1 - convexity)),
            "theorem PIPGLA: step_size <= 1/L and "
            "step_size <= smoothing <= step_size/(1 - mu step_size)",
        )


def mirrored(theta: PyTree, particles: PyTree, points: PyTree, model: Model) -> PyTree:
    """The particles reflected at their proximal points, where the potential is finite there.

    A particle thrown so far that its mirror image lies beyond the opposite border stays at the
    proximal point.
    """

    if model.nonsmooth.finite:
        return jax.tree.map(lambda u, v: 2 * u - v, points, particles)

    def one(x: PyTree, point: PyTree) -> PyTree:
        image = jax.tree.map(lambda u, v: 2 * u - v, point, x)
        inside = jnp.isfinite(model.nonsmooth.value(theta, image))
        return jax.tree.map(lambda new, old: jnp.where(inside, new, old), image, point)

    return jax.vmap(one)(particles, points)
