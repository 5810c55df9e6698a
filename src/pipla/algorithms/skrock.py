"""Stabilised explicit steps: s gradients in a Chebyshev recursion go as far as s² Euler steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla import _checks, _trees
from pipla.algorithms.base import Condition, Geometry, given, number, register
from pipla.algorithms.langevin import Langevin, Move, Noise, Scales, State
from pipla.models.model import Gradients, Model

#: The damping of the Chebyshev polynomials that Pereyra, Vargas and Zygalakis (2020) use.
DAMPING = 0.05


class _Drift(NamedTuple):
    """$-\\gamma \\nabla U^\\lambda$ at some particles, and what was found on the way."""

    step: PyTree
    warm: PyTree
    gradients: Gradients
    gap: Array


@register
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
        num_stages: $s \ge 2$, the number of gradients in a step.
    """

    smoothing: Array | None = eqx.field(converter=number, default=None, kw_only=True)
    num_stages: int = eqx.field(static=True, default=10, kw_only=True)

    def __check_init__(self) -> None:
        _checks.positive("smoothing", self.smoothing)
        _checks.integer("num_stages", self.num_stages, least=2)

    def move(self, state: State, noise: Noise, scales: Scales, model: Model) -> Move:
        self.refuse_joint_prox(model, "SKROCK moves the particles by several gradients")
        theta, particles = state.theta, state.particles
        dtype = _trees.dtype(particles)
        mu, nu, kappa = (jnp.asarray(part, dtype) for part in _coefficients(self.num_stages))

        def drift(particles: PyTree, warm: PyTree) -> _Drift:
            return self._drift(state._replace(particles=particles, warm=warm), scales, model)

        ahead = jax.tree.map(lambda x, z: x + nu[0] * z, particles, noise.particles)
        first = drift(ahead, state.warm)
        now = jax.tree.map(
            lambda x, d, z: x + mu[0] * d + kappa * z, particles, first.step, noise.particles
        )

        def stage(carry: tuple[PyTree, ...], numbers: tuple[Array, Array]) -> tuple[PyTree, None]:
            before, now, warm, gap = carry
            m, n = numbers
            found = drift(now, warm)
            following = jax.tree.map(
                lambda d, k, old: m * d + n * k + (1 - n) * old, found.step, now, before
            )
            return (now, following, found.warm, jnp.maximum(gap, found.gap)), None

        carry = (particles, now, first.warm, first.gap)
        (_, now, warm, gap), _ = jax.lax.scan(stage, carry, (mu[1:], nu[1:]))
        target = _trees.add(self.theta_step(theta, first.gradients.theta, scales), noise.theta)
        return Move(target, now, warm, first.gradients, gap)

    def _drift(self, state: State, scales: Scales, model: Model) -> _Drift:
        smoothing = given("smoothing", self.smoothing)
        gradients = self.gradients(state, model)
        point = self.prox(state.theta, state.particles, smoothing, scales, state.warm, model)
        down = self.particle_step(state.particles, gradients.particles, scales)
        ratio = self.gamma / smoothing
        step = jax.tree.map(lambda d, x, u: d - x - ratio * (x - u), down, state.particles, point.x)
        return _Drift(step, point.warm, gradients, point.gap)

    @property
    def _lacks_smoothing(self) -> bool:
        return self.smoothing is None

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        largest = float(geometry.curvature(self.moving_scale).largest)
        reach = (self.num_stages - 0.5) ** 2 * (2 - 4 / 3 * DAMPING) - 1.5
        high = reach / (largest + 1 / float(given("smoothing", self.smoothing)))
        source = (
            f"SK-ROCK with {self.num_stages} stages: step_size <= {reach:.4g}/(L + 1/smoothing)"
        )
        return [Condition("step_size", self.gamma, 0.0, high, source, f"L = {largest:.4g}")]


def _coefficients(stages: int) -> tuple[np.ndarray, np.ndarray, float]:
    r"""$\mu_j$, $\nu_j$ and $\kappa_1$.

    With $\omega_0 = 1 + \eta/s^2$ and $\omega_1 = T_s(\omega_0)/T_s'(\omega_0)$:
    $\mu_1 = \omega_1/\omega_0$, $\nu_1 = s\omega_1/2$, $\kappa_1 = s\omega_1/\omega_0$,
    $\mu_j = 2\omega_1 T_{j-1}/T_j$, $\nu_j = 2\omega_0 T_{j-1}/T_j$.
    """
    start = 1 + DAMPING / stages**2
    values, derivatives = [1.0, start], [0.0, 1.0]
    for _ in range(2, stages + 1):
        derivatives.append(2 * values[-1] + 2 * start * derivatives[-1] - derivatives[-2])
        values.append(2 * start * values[-1] - values[-2])
    rate = values[-1] / derivatives[-1]
    ratios = np.array(values[1:-1]) / np.array(values[2:])
    mu = np.concatenate([[rate / start], 2 * rate * ratios])
    nu = np.concatenate([[stages * rate / 2], 2 * start * ratios])
    return mu, nu, stages * rate / start
