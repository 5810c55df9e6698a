"""Stabilised explicit steps: s gradients in a Chebyshev recursion go as far as s² Euler steps."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from pipla import _checks
from pipla.algorithms.base import Limits
from pipla.algorithms.langevin import Langevin, Move, Noise, number
from pipla.models.model import Gradients, Model

#: The damping of the Chebyshev polynomials that Pereyra, Vargas and Zygalakis (2020) use.
DAMPING = 0.05


class StabilisedEuler(Langevin):
    r"""SK-ROCK (Abdulle, Almuslimani and Vilmart 2018) on $g_1$ and the envelope of $g_2$.

    With $Z = \sqrt{2\gamma}\,\xi$ and
    $\nabla U^\lambda = \nabla g_1 + (x - \operatorname{prox})/\lambda$,

    $$ K_1 = X - \mu_1 \gamma \nabla U^\lambda(X + \nu_1 Z) + \kappa_1 Z, \qquad
       K_j = -\mu_j \gamma \nabla U^\lambda(K_{j-1}) + \nu_j K_{j-1} + (1 - \nu_j) K_{j-2}, $$

    and $X \leftarrow K_s$; the coefficients are those of damped Chebyshev polynomials. A step of
    $s$ gradients is stable up to $\gamma \approx 2 s^2/L$, where $s$ Euler steps reach $2s/L$.
    For likelihoods without an exact flow.

    Arguments:
        smoothing: $\lambda$.
        num_stages: $s \ge 2$, the gradients in a step.
    """

    needs: ClassVar[tuple[str, ...]] = ("step_size", "smoothing")

    smoothing: Array | None = eqx.field(converter=number, default=None, kw_only=True)
    num_stages: int = eqx.field(static=True, default=10, kw_only=True)

    def __check_init__(self) -> None:
        _checks.positive("smoothing", self.smoothing)
        _checks.integer("num_stages", self.num_stages, least=2)

    def move(
        self, theta: PyTree, particles: PyTree, warm: PyTree, noise: Noise, model: Model
    ) -> Move:
        assert self.smoothing is not None, "run() fills in what was left to tuning"
        smoothing = self.smoothing
        if self.theta_update == "prox" and model.nonsmooth.uses_theta:
            raise ValueError(
                "SKROCK moves the particles by several gradients, and theta must not move by the "
                "prox: use theta_update='gradient', 'closed-form' or 'frozen'."
            )
        dtype = jnp.result_type(*jax.tree.leaves(particles))
        mu, nu, kappa = (jnp.asarray(part, dtype) for part in _coefficients(self.num_stages))

        def drift(cloud: PyTree, warm: PyTree) -> tuple[PyTree, PyTree, Gradients, Array]:
            """$-\\gamma \\nabla U^\\lambda$."""
            slope = self.slopes(theta, cloud, model)
            point = self.solve(theta, cloud, smoothing, warm, model)
            down = self.descend_particles(theta, cloud, slope.particles, model)
            pull = self._gamma / smoothing
            moved = jax.tree.map(lambda d, x, u: d - x - pull * (x - u), down, cloud, point.x)
            return moved, point.warm, slope, point.gap

        ahead = jax.tree.map(lambda x, z: x + nu[0] * z, particles, noise.particles)
        moved, warm, slope, gap = drift(ahead, warm)
        now = jax.tree.map(
            lambda x, m, z: x + mu[0] * m + kappa * z, particles, moved, noise.particles
        )

        def stage(state: tuple[PyTree, ...], numbers: tuple[Array, Array]) -> tuple[PyTree, None]:
            before, now, warm, gap = state
            m, n = numbers
            moved, warm, _, another = drift(now, warm)
            following = jax.tree.map(
                lambda d, k, old: m * d + n * k + (1 - n) * old, moved, now, before
            )
            return (now, following, warm, jnp.maximum(gap, another)), None

        (_, now, warm, gap), _ = jax.lax.scan(stage, (particles, now, warm, gap), (mu[1:], nu[1:]))
        target = jax.tree.map(jnp.add, self.descend(theta, slope.theta), noise.theta)
        return Move(target, now, warm, slope, gap)

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        assert self.smoothing is not None
        reach = (self.num_stages - 0.5) ** 2 * (2 - 4 / 3 * DAMPING) - 1.5
        return Limits(
            reach / (largest + 1 / self.smoothing),
            None,
            f"SK-ROCK with {self.num_stages} stages: step_size <= {reach:.4g}/(L + 1/smoothing)",
        )


def _coefficients(stages: int) -> tuple[np.ndarray, np.ndarray, float]:
    r"""$\mu_j$, $\nu_j$ and $\kappa_1$.

    With $\omega_0 = 1 + \eta/s^2$ and $\omega_1 = T_s(\omega_0)/T_s'(\omega_0)$:
    $\mu_1 = \omega_1/\omega_0$, $\nu_1 = s\omega_1/2$, $\kappa_1 = s\omega_1/\omega_0$,
    $\mu_j = 2\omega_1 T_{j-1}/T_j$, $\nu_j = 2\omega_0 T_{j-1}/T_j$.
    """
    start = 1 + DAMPING / stages**2
    values, slopes = [1.0, start], [0.0, 1.0]
    for _ in range(2, stages + 1):
        slopes.append(2 * values[-1] + 2 * start * slopes[-1] - slopes[-2])
        values.append(2 * start * values[-1] - values[-2])
    rate = values[-1] / slopes[-1]
    ratios = np.array(values[1:-1]) / np.array(values[2:])
    mu = np.concatenate([[rate / start], 2 * rate * ratios])
    nu = np.concatenate([[stages * rate / 2], 2 * start * ratios])
    return mu, nu, stages * rate / start
