"""Plain Euler steps on the whole potential: PGD, IPLA and SOUL. No proximal step."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from pipla import _trees
from pipla.algorithms.base import Condition, Geometry, at_most_inverse, register
from pipla.algorithms.langevin import Langevin, Move, Noise, Scales, State
from pipla.models.model import Model


@register
class Euler(Langevin):
    r"""Gradient and noise (PAPER.md, section 2: PGD, IPLA; one chain and several moves: SOUL).

    $$ \theta_{n+1} = \theta_n - \gamma P \tfrac1N \sum_i \nabla_\theta U(\theta_n, X^i_n)
       + \sqrt{2 \gamma P / N}\, \xi^0, \qquad
       X^i_{n+1} = X^i_n - \gamma M \nabla_x U(\theta_n, X^i_n) + \sqrt{2 \gamma M}\, \xi^i $$

    Where $U$ has a kink, the subgradient that automatic differentiation picks is used in place of
    the gradient: no theorem covers that, and the proximal schemes exist because of it.
    """

    def move(self, state: State, noise: Noise, scales: Scales, model: Model) -> Move:
        gradients = model.gradients(
            state.theta, state.particles, nonsmooth_theta=True, nonsmooth_x=True
        )
        theta = self.theta_step(state.theta, gradients.theta, scales)
        particles = self.particle_step(state.particles, gradients.particles, scales)
        return Move(
            theta=_trees.add(theta, noise.theta),
            particles=_trees.add(particles, noise.particles),
            warm=state.warm,
            gradients=gradients,
            gap=jnp.zeros((), _trees.dtype(particles)),
        )

    def objections(self, model: Model) -> Sequence[str]:
        found = super().objections(model)
        if model.nonsmooth.finite:
            return found
        return [
            f"{self.label} has no proximal step and ignores the constraints of "
            f"{type(model.nonsmooth).__name__}; use pipla.PIPGLA or pipla.PGLA",
            *found,
        ]

    def joint_smoothing(self) -> None:
        return None

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        largest = float(geometry.curvature(self.moving_scale).largest)
        return [at_most_inverse(self.gamma, largest, "IPLA: step_size <= 1/L")]
