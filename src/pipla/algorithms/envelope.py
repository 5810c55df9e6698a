"""Euler on the potential with its non-smooth term smoothed: MYPGD, MYIPLA and MYULA."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import _checks
from pipla.algorithms.base import Limits
from pipla.algorithms.langevin import Langevin, Move, Noise, number
from pipla.models.model import Model


class EnvelopeEuler(Langevin):
    r"""Gradient of $g_1$ and of the envelope of $g_2$, and noise (paper, eq. pip-myula_theta).

    With $(\theta^i, x^i) = \operatorname{prox}^{\lambda P}_{g_2}(\theta_n, X^i_n)$,

    $$ \theta_{n+1} = \theta_n - \gamma P \tfrac1N \sum_i \nabla_\theta g_1
       - \tfrac{\gamma}{\lambda}(\theta_n - \tfrac1N \sum_i \theta^i) + \sqrt{2\gamma P/N}\,\xi^0 $$
    $$ X^i_{n+1} = X^i_n - \gamma \nabla_x g_1 - \tfrac{\gamma}{\lambda}(X^i_n - x^i)
       + \sqrt{2 \gamma}\, \xi^i $$

    The envelope's gradient in the metric of $P$ is $(\theta - \theta^i)/(\lambda P)$; the drift
    multiplies it by $P$: the second term needs no $P$ of its own.

    Arguments:
        smoothing: $\lambda$.
    """

    needs: ClassVar[tuple[str, ...]] = ("step_size", "smoothing")

    smoothing: Array | None = eqx.field(converter=number, default=None, kw_only=True)

    def __check_init__(self) -> None:
        _checks.positive("smoothing", self.smoothing)

    def move(
        self, theta: PyTree, particles: PyTree, warm: PyTree, noise: Noise, model: Model
    ) -> Move:
        assert self.smoothing is not None, "run() fills in what was left to tuning"
        slope = self.slopes(theta, particles, model)
        point = self.solve(
            theta, particles, self.smoothing, warm, model, scale_point=self.published
        )
        pull = self._gamma / self.smoothing
        return Move(
            theta=jax.tree.map(
                lambda down, t, u, xi: down - pull * (t - u) + xi,
                self.descend(theta, slope.theta),
                theta,
                point.theta,
                noise.theta,
            ),
            particles=jax.tree.map(
                lambda down, x, u, xi: down - pull * (x - u) + xi,
                self.descend_particles(theta, particles, slope.particles, model),
                particles,
                point.x,
                noise.particles,
            ),
            warm=point.warm,
            slope=slope,
            gap=point.gap,
        )

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        assert self.smoothing is not None
        stiffness = largest + 1 / self.smoothing
        if self.theta_noise:
            return Limits(1 / stiffness, None, "theorem MYIPLA: step_size < 1/(L + 1/smoothing)")
        margin = jnp.maximum(smallest, 0.0)
        return Limits(
            1 / (stiffness + margin), None, "theorem MYPGD: step_size <= 1/(L + 1/smoothing + mu)"
        )
