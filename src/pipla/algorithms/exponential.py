"""The exact flow of a Gaussian likelihood, then the prior by a (reflected) prox: RPL."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla.algorithms.base import Limits, State
from pipla.algorithms.forward_backward import mirrored
from pipla.algorithms.langevin import Langevin, Move, Noise
from pipla.models.model import Gradients, Model, num_particles


class ExponentialFlow(Langevin):
    r"""The likelihood's own diffusion, solved exactly, and the prior by its prox.

    With $h = \gamma \tau$, where $\tau$ is the prior's own unit of time ($e^{-2\theta}$ for a
    strength $e^\theta$),

    $$ Y = \text{flow}_h(X_n) \quad (\texttt{GaussianLikelihood.flow}), \qquad
       M_{n+1} = \operatorname{prox}^{h/2}_{g_2}(Y), \qquad X_{n+1} = 2 M_{n+1} - Y. $$

    Nothing is explicit, so no stiffness limits the step: $\gamma$ is a pure number, the same for
    every picture and every noise. The particles reported are the midpoints $M_{n+1}$, from which
    theta is learned; the mirror images $X_{n+1}$ carry the dynamics. The bias is of order $\gamma$.

    Arguments:
        reflected: reflect at the proximal point; without it $X_{n+1} = \operatorname{prox}^h(Y)$,
            the exponential form of PIPGLA.
    """

    limited: ClassVar[bool] = False

    reflected: bool = eqx.field(static=True, default=True, kw_only=True)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> State:
        state = super().init(model, theta, particles)
        return state._replace(warm=(particles, state.warm)) if self.reflected else state

    def metric(self, theta: PyTree, particles: PyTree, model: Model) -> PyTree:
        unit = model.nonsmooth.time_unit(theta, jax.tree.map(lambda leaf: leaf[0], particles))
        return jax.tree.map(jnp.multiply, super().metric(theta, particles, model), unit)

    def move(
        self, theta: PyTree, particles: PyTree, warm: PyTree, noise: Noise, model: Model
    ) -> Move:
        self._check_model(model)
        flow: Any = model.smooth
        start, warm = warm if self.reflected else (particles, warm)
        time = jax.tree.map(lambda m: self._gamma * m, self.metric(theta, particles, model))

        def particle(i: Array, cloud: Array) -> Array:
            x, push = (
                jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False)
                for leaf in (cloud, noise.particles)
            )
            moved = flow.flow(theta, x, time, push)
            return jax.lax.dynamic_update_index_in_dim(cloud, moved, i, axis=0)

        # One after the other: a Fourier transform fills a core, and works in its cache.
        free = jax.lax.fori_loop(0, num_particles(start), particle, start)
        smoothing = 0.5 * self._gamma if self.reflected else self._gamma
        point = self.solve(theta, free, smoothing, warm, model)
        next_warm: PyTree = point.warm
        if self.reflected:
            next_warm = (mirrored(theta, free, point.x, model), point.warm)
        slope = self._slope(theta, point.x, model)
        return Move(
            theta=jax.tree.map(jnp.add, self.descend(theta, slope.theta), noise.theta),
            particles=point.x,
            warm=next_warm,
            slope=slope,
            gap=point.gap,
        )

    def _slope(self, theta: PyTree, particles: PyTree, model: Model) -> Gradients:
        """Theta's slope at the new particles, where theta follows it."""
        if self.theta_update == "gradient":
            return self.slopes(theta, particles, model)
        return Gradients(*jax.tree.map(jnp.zeros_like, (theta, particles)))

    def _check_model(self, model: Model) -> None:
        if getattr(model.smooth, "basis", None) is None:
            raise TypeError(
                "RPL needs a smooth part whose flow is known exactly: pipla.GaussianLikelihood "
                "with an operator that has an eigenbasis. For other models use pipla.SKROCK or "
                "pipla.MYIPLA."
            )
        if self.theta_update == "prox" and model.nonsmooth.uses_theta:
            raise ValueError(
                "theta_update='prox' would need the joint prox of theta and a flow; use "
                "'closed-form', 'gradient' or 'frozen'."
            )

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        return Limits(jnp.asarray(jnp.inf, largest.dtype), None, "the flow is exact: no condition")
