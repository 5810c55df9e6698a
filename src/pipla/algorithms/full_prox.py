"""The prox of the whole potential, then noise: PIPULA and PPGD."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla.algorithms.base import Limits
from pipla.algorithms.langevin import Langevin, Move, Noise
from pipla.models.model import Model


class FullProx(Langevin):
    r"""The (linearised) prox of $U$, then noise (PAPER.md, section 2: PIPULA, PPGD).

    $$ v_{n+1} = \operatorname{prox}^{\gamma P}_{U}(v_n) + \sqrt{2 \gamma P}\, \xi, \qquad
       \operatorname{prox}^{\gamma P}_U(v) \approx
       \operatorname{prox}^{\gamma P}_{g_2}\bigl(v - \gamma P \nabla g_1(v)\bigr) $$

    averaged over particles in theta. `published=True` is the authors' form: twice the gradient
    step, which doubles the likelihood against the prior (E3).
    """

    def move(
        self, theta: PyTree, particles: PyTree, warm: PyTree, noise: Noise, model: Model
    ) -> Move:
        slope = self.slopes(theta, particles, model)
        factor = 2.0 if self.published else 1.0
        forward = jax.tree.map(lambda g: factor * g, slope)
        point = self.solve(
            self.descend(theta, forward.theta),
            self.descend_particles(theta, particles, forward.particles, model),
            self._gamma,
            warm,
            model,
        )
        return Move(
            theta=jax.tree.map(jnp.add, point.theta, noise.theta),
            particles=jax.tree.map(jnp.add, point.x, noise.particles),
            warm=point.warm,
            slope=slope,
            gap=point.gap,
        )

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        # The corollary's 2/mu is for the exact prox of U; the linearised one steps along g1.
        return Limits(1 / largest, None, "PIPULA with g1 linearised: step_size <= 1/L")
