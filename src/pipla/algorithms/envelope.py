"""Euler steps on the potential with its non-smooth term smoothed: MYPGD, MYIPLA and MYULA."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
from jaxtyping import Array

from pipla import _checks
from pipla.algorithms.base import (
    Condition,
    Geometry,
    Number,
    at_most,
    given,
    number,
    register,
)
from pipla.algorithms.langevin import Langevin, Move, Noise, Scales, State
from pipla.models.model import Model


@register
class EnvelopeEuler(Langevin):
    r"""Gradient of $g_1$ and of the envelope of $g_2$, and noise (paper, eq. pip-myula_theta).

    With $(\theta^i, x^i) = \operatorname{prox}^{\lambda P, \lambda M}_{g_2}(\theta_n, X^i_n)$,

    $$ \theta_{n+1} = \theta_n - \gamma P \tfrac1N \sum_i \nabla_\theta g_1
       - \tfrac{\gamma}{\lambda}(\theta_n - \tfrac1N \sum_i \theta^i) + \sqrt{2\gamma P/N}\,\xi^0 $$
    $$ X^i_{n+1} = X^i_n - \gamma M \nabla_x g_1 - \tfrac{\gamma}{\lambda}(X^i_n - x^i)
       + \sqrt{2 \gamma M}\, \xi^i $$

    The envelope's gradient in the metric of $P$ is $(\theta - \theta^i)/(\lambda P)$; the drift
    multiplies it by $P$: the second term needs no $P$ of its own.

    Arguments:
        smoothing: $\lambda$.
    """

    smoothing: Array | None = eqx.field(converter=number, default=None, kw_only=True)

    def __check_init__(self) -> None:
        _checks.positive("smoothing", self.smoothing)

    def move(self, state: State, noise: Noise, scales: Scales, model: Model) -> Move:
        smoothing = given("smoothing", self.smoothing)
        gradients = self.gradients(state, model)
        point = self.prox(state.theta, state.particles, smoothing, scales, state.warm, model)
        ratio = self.gamma / smoothing
        return Move(
            theta=jax.tree.map(
                lambda down, t, u, xi: down - ratio * (t - u) + xi,
                self.theta_step(state.theta, gradients.theta, scales),
                state.theta,
                point.theta,
                noise.theta,
            ),
            particles=jax.tree.map(
                lambda down, x, u, xi: down - ratio * (x - u) + xi,
                self.particle_step(state.particles, gradients.particles, scales),
                state.particles,
                point.x,
                noise.particles,
            ),
            warm=point.warm,
            gradients=gradients,
            gap=point.gap,
        )

    @property
    def _lacks_smoothing(self) -> bool:
        return self.smoothing is None

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        curvature = geometry.curvature(self.moving_scale)
        theorem = myipla_conditions if self.theta_noise else mypgd_conditions
        smoothing = given("smoothing", self.smoothing)
        return theorem(self.gamma, smoothing, float(curvature.largest), float(curvature.smallest))


def myipla_conditions(
    step_size: Number, smoothing: Number, stiffness: float, convexity: float
) -> list[Condition]:
    r"""MYIPLA: $\gamma < \min(1/(L + 1/\lambda),\; 2/\mu)$ [th:myipla_main_text].

    $2/\mu$ is never the smaller one, because $\mu \le L$.
    """
    high = 1 / (stiffness + 1 / float(smoothing))
    source = "theorem MYIPLA: step_size < 1/(L + 1/smoothing)"
    return [at_most(step_size, high, source, stiffness)]


def mypgd_conditions(
    step_size: Number, smoothing: Number, stiffness: float, convexity: float
) -> list[Condition]:
    r"""MYPGD: $\gamma \le 1/(L + 1/\lambda + \mu)$ [th:mypgd]."""
    high = 1 / (stiffness + 1 / float(smoothing) + max(convexity, 0.0))
    source = "theorem MYPGD: step_size <= 1/(L + 1/smoothing + mu)"
    return [at_most(step_size, high, source, stiffness)]
