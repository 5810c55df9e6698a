"""The prox of the whole potential, then noise: PIPULA and PPGD."""

from __future__ import annotations

from collections.abc import Sequence

from pipla import _trees
from pipla.algorithms.base import Condition, Geometry, Number, at_most_inverse, register
from pipla.algorithms.langevin import Langevin, Move, Noise, Scales, State
from pipla.models.model import Model


@register
class FullProx(Langevin):
    r"""The (linearised) prox of $U$, then noise (PAPER.md, section 2: PIPULA, PPGD).

    $$ X^i_{n+1} = \operatorname{prox}^{\gamma}_{U}(\theta_n, X^i_n).x + \sqrt{2 \gamma}\, \xi^i,
       \qquad \theta_{n+1} = \tfrac1N \sum_i \operatorname{prox}^{\gamma}_U(\theta_n, X^i_n).\theta
       + \sqrt{2 \gamma / N}\, \xi^0, $$
    $$ \operatorname{prox}^{\gamma}_U(v) \approx
       \operatorname{prox}^{\gamma}_{g_2}\bigl(v - \gamma \nabla g_1(v)\bigr), $$

    with $\gamma P$ for theta and $\gamma M$ for x in the place of $\gamma$. The paper's form takes
    twice the gradient, which counts the likelihood twice (E3; `pipla_lab.experiments.published`).
    """

    def move(self, state: State, noise: Noise, scales: Scales, model: Model) -> Move:
        gradients = self.gradients(state, model)
        point = self.prox(
            self.theta_step(state.theta, gradients.theta, scales),
            self.particle_step(state.particles, gradients.particles, scales),
            self.gamma,
            scales,
            state.warm,
            model,
        )
        return Move(
            theta=_trees.add(point.theta, noise.theta),
            particles=_trees.add(point.x, noise.particles),
            warm=point.warm,
            gradients=gradients,
            gap=point.gap,
        )

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        largest = float(geometry.curvature(self.moving_scale).largest)
        return pipula_conditions(self.gamma, largest)


def pipula_conditions(step_size: Number, stiffness: float) -> list[Condition]:
    r"""PIPULA with $g_1$ linearised: $\gamma \le 1/L$.

    The corollary [th:pipula_theorem] has $\gamma < 2/\mu$, for the exact prox of U; its hypotheses
    contradict each other (E19). The linearised one steps along $g_1$.
    """
    return [at_most_inverse(step_size, stiffness, "PIPULA with g1 linearised: step_size <= 1/L")]
