"""Gradient and noise, then the joint prox: PIPGLA and PGLA."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import checks
from pipla.algorithms.base import Limits
from pipla.algorithms.langevin import Langevin, Move, Noise, number
from pipla.model import Model


class ForwardBackward(Langevin):
    r"""Gradient and noise, then the joint prox (paper, eqs. pip-gla to pip-gla-x).

    $$ v_{n+1/2} = v_n - \gamma P \nabla g_1(v_n) + \sqrt{2 \gamma P}\, \xi, \qquad
       v_{n+1} = \operatorname{prox}^{\lambda P}_{g_2}(v_{n+1/2}) $$

    averaged over particles in theta. The splitting is consistent only for $\lambda = \gamma$, the
    default: another $\lambda$ weights the prior by $\lambda/\gamma$ against the likelihood (E13).

    Arguments:
        smoothing: $\lambda$; `None` means equal to `step_size`.
    """

    smoothing: Array | None = eqx.field(converter=number, default=None, kw_only=True)

    def __check_init__(self) -> None:
        checks.positive("smoothing", self.smoothing)

    def move(
        self, theta: PyTree, particles: PyTree, warm: PyTree, noise: Noise, model: Model
    ) -> Move:
        slope = self.slopes(theta, particles, model)
        half = jax.tree.map(jnp.add, self.descend(theta, slope.theta), noise.theta)
        half_particles = jax.tree.map(
            jnp.add, self.descend_particles(particles, slope.particles), noise.particles
        )
        point = self.solve(half, half_particles, self._lam, warm, model)
        # E1: the published code scales the point instead of the displacement.
        target = self.scaled(point.theta) if self.published else point.theta
        return Move(target, point.x, point.warm, slope, point.gap)

    @property
    def _lam(self) -> Array:
        return self._gamma if self.smoothing is None else self.smoothing

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        gamma = self._gamma
        convexity = jnp.clip(smallest * gamma, 0.0, 0.999)
        return Limits(
            1 / largest,
            (gamma, gamma / (1 - convexity)),
            "theorem PIPGLA: step_size <= 1/L, step_size <= smoothing <= step_size/(1 - mu step_size)",
        )
