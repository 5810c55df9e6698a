"""The exact flow of a Gaussian likelihood, then the prior by a (reflected) prox: RPL."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from pipla import _trees
from pipla.algorithms.base import register
from pipla.algorithms.forward_backward import mirror_images
from pipla.algorithms.langevin import Langevin, Move, Noise, Scales, State
from pipla.models.model import Gradients, Model


@register
class ExponentialFlow(Langevin):
    r"""The likelihood's own diffusion, solved exactly, and the prior by its prox.

    With $h = \gamma \tau$, where $\tau$ is the prior's own unit of time ($e^{-2\theta}$ for a
    strength $e^\theta$),

    $$ Y = \text{flow}_h(X_n) \quad (\texttt{Likelihood.flow}), \qquad
       M_{n+1} = \operatorname{prox}^{h/2}_{g_2}(Y), \qquad X_{n+1} = 2 M_{n+1} - Y. $$

    Nothing is explicit, so no stiffness limits the step: $\gamma$ is a pure number, the same for
    every image and every noise. The particles reported are the midpoints $M_{n+1}$, from which
    theta is learned; the mirror images $X_{n+1}$ carry the dynamics. The bias is of order $\gamma$.

    Arguments:
        reflected: reflect at the proximal point; without it $X_{n+1} = \operatorname{prox}^h(Y)$,
            the exponential form of PIPGLA.
    """

    reflected: bool = eqx.field(static=True, default=True, kw_only=True)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> State:
        state = super().init(model, theta, particles)
        return state._replace(reflected=particles) if self.reflected else state

    def scales(self, state: State, model: Model) -> Scales:
        """In x, also times the prior's unit of time."""
        scales = super().scales(state, model)
        unit = model.nonsmooth.time_unit(state.theta, _trees.first(state.particles))
        return scales._replace(particles=_trees.multiply(scales.particles, unit))

    def move(self, state: State, noise: Noise, scales: Scales, model: Model) -> Move:
        self.refuse_joint_prox(model, "the flow of the likelihood moves x alone")
        theta = state.theta
        start = state.reflected if self.reflected else state.particles
        time = _trees.scale(self.gamma, scales.particles)

        def one(i: Array, particles: Array) -> Array:
            x, push = (
                jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False)
                for leaf in (particles, noise.particles)
            )
            after = model.smooth.flow(theta, x, time, push)
            if after is None:
                raise TypeError(
                    "RPL needs a smooth part whose flow is known exactly: "
                    "pipla.GaussianLikelihood with an operator that has an eigenbasis. For other "
                    "models use pipla.SKROCK or pipla.MYIPLA."
                )
            return jax.lax.dynamic_update_index_in_dim(particles, after, i, axis=0)

        # One after the other: a Fourier transform fills a core, and works in its cache.
        free = jax.lax.fori_loop(0, _trees.num_particles(start), one, start)
        smoothing = 0.5 * self.gamma if self.reflected else self.gamma
        point = self.prox(theta, free, smoothing, scales, state.warm, model)
        gradients = Gradients(*_trees.zeros_like((theta, point.x)))
        if self.theta_update == "gradient":
            gradients = self.gradients(state._replace(particles=point.x), model)
        return Move(
            theta=_trees.add(self.theta_step(theta, gradients.theta, scales), noise.theta),
            particles=point.x,
            warm=point.warm,
            gradients=gradients,
            gap=point.gap,
            reflected=mirror_images(theta, free, point.x, model) if self.reflected else None,
        )
