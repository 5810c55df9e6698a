"""Plain Euler on the whole potential: PGD, IPLA and SOUL, which know no prox."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla.algorithms.base import Limits
from pipla.algorithms.langevin import Langevin, Move, Noise
from pipla.models.model import Model


class Euler(Langevin):
    r"""Gradient and noise (PAPER.md, section 2: PGD, IPLA; one chain and several moves: SOUL).

    $$ \theta_{n+1} = \theta_n - \gamma P \tfrac1N \sum_i \nabla_\theta U(\theta_n, X^i_n)
       + \sqrt{2 \gamma P / N}\, \xi^0, \qquad
       X^i_{n+1} = X^i_n - \gamma \nabla_x U(\theta_n, X^i_n) + \sqrt{2 \gamma}\, \xi^i $$

    Where $U$ has a kink, whatever subgradient automatic differentiation picks stands in for the
    gradient: theory says nothing, and the proximal schemes exist because of it.
    """

    def move(
        self, theta: PyTree, particles: PyTree, warm: PyTree, noise: Noise, model: Model
    ) -> Move:
        slope = model.gradients(theta, particles, nonsmooth_theta=True, nonsmooth_x=True)
        return Move(
            theta=jax.tree.map(jnp.add, self.descend(theta, slope.theta), noise.theta),
            particles=jax.tree.map(
                jnp.add,
                self.descend_particles(theta, particles, slope.particles, model),
                noise.particles,
            ),
            warm=warm,
            slope=slope,
            gap=jnp.zeros((), jnp.result_type(*jax.tree.leaves(particles))),
        )

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        return Limits(1 / largest, None, "IPLA: step_size <= 1/L")
