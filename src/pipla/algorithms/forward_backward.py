"""Gradient and noise, then the joint prox: PIPGLA and PGLA."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla import _checks, _trees
from pipla.algorithms.base import (
    Condition,
    Geometry,
    Number,
    at_most_inverse,
    number,
    register,
)
from pipla.algorithms.langevin import Langevin, Move, Noise, Scales, State
from pipla.models.model import Model


@register
class ForwardBackward(Langevin):
    r"""Gradient and noise, then the joint prox (paper, eqs. pip-gla to pip-gla-x).

    With $\gamma P$ for theta and $\gamma M$ for x in the place of $\gamma$,

    $$ \theta_{n+1/2} = \theta_n - \gamma \tfrac1N \sum_i \nabla_\theta g_1
       + \sqrt{2 \gamma / N}\, \xi^0, \qquad
       X^i_{n+1/2} = X^i_n - \gamma \nabla_x g_1 + \sqrt{2 \gamma}\, \xi^i, $$
    $$ (\theta^i, X^i_{n+1}) = \operatorname{prox}^{\lambda}_{g_2}(\theta_{n+1/2}, X^i_{n+1/2}),
       \qquad \theta_{n+1} = \tfrac1N \sum_i \theta^i. $$

    The splitting is consistent only for $\lambda = \gamma$, the default: another $\lambda$ weights
    the prior by $\lambda/\gamma$ against the likelihood (E13).

    `reflected=True` goes through the proximal point of half the smoothing and as far again,
    $X_{n+1} = 2 \operatorname{prox}^{\lambda/2}_{g_2}(X_{n+1/2}) - X_{n+1/2}$: for a smooth $g_2$
    an implicit midpoint step, for a constraint the mirror image. Its bias is smaller than that of
    the prox, above all at a constraint: there, projected particles pile up on the border, and the
    bias is of order $\sqrt\gamma$ instead of $\gamma$.

    Arguments:
        smoothing: $\lambda$; `None` means equal to `step_size`.
        reflected: reflect at the proximal point instead of going to it (the particles only; theta
            must move by its gradient, or not at all).
    """

    smoothing: Array | None = eqx.field(converter=number, default=None, kw_only=True)

    reflected: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self) -> None:
        _checks.positive("smoothing", self.smoothing)
        _checks.boolean("reflected", self.reflected)

    def move(self, state: State, noise: Noise, scales: Scales, model: Model) -> Move:
        if self.reflected:
            self.refuse_joint_prox(model, "reflected=True reflects the particles only")
        gradients = self.gradients(state, model)
        theta = _trees.add(self.theta_step(state.theta, gradients.theta, scales), noise.theta)
        particles = _trees.add(
            self.particle_step(state.particles, gradients.particles, scales), noise.particles
        )
        lam = self.gamma if self.smoothing is None else self.smoothing
        smoothing = 0.5 * lam if self.reflected else lam
        point = self.prox(theta, particles, smoothing, scales, state.warm, model)
        if self.reflected:
            images = mirror_images(theta, particles, point.x, model)
            point = point._replace(x=images, penalty=None)
        return Move(point.theta, point.x, point.warm, gradients, point.gap, penalty=point.penalty)

    def suggested_numbers(self, geometry: Geometry) -> dict[str, float]:
        if self.smoothing is None:
            return super().suggested_numbers(geometry)
        # The two are one number, as far as g1 is stable for it.
        stiffness = geometry.curvature(self.moving_scale).suggest(self.smoothing).stiffness
        return {"step_size": min(float(self.smoothing), 0.98 / stiffness)}

    def conditions(self, geometry: Geometry) -> Sequence[Condition]:
        curvature = geometry.curvature(self.moving_scale)
        largest, smallest = float(curvature.largest), float(curvature.smallest)
        return pipgla_conditions(self.gamma, self.smoothing, largest, smallest)


def pipgla_conditions(
    step_size: Number, smoothing: Number | None, stiffness: float, convexity: float
) -> list[Condition]:
    r"""PIPGLA: $\gamma \le 1/L$ and $\gamma \le \lambda \le \gamma/(1 - \mu\gamma)$
    [th:pipgla_main_text]; `smoothing=None` is $\lambda = \gamma$.
    """
    source = (
        "theorem PIPGLA: step_size <= 1/L and "
        "step_size <= smoothing <= step_size/(1 - mu step_size)"
    )
    found = [at_most_inverse(step_size, stiffness, source)]
    if smoothing is not None:
        gamma = float(step_size)
        high = gamma / (1 - min(max(convexity * gamma, 0.0), 0.999))
        constant = f"mu = {convexity:.4g}"
        found.append(Condition("smoothing", smoothing, gamma, high, source, constant))
    return found


def mirror_images(theta: PyTree, particles: PyTree, points: PyTree, model: Model) -> PyTree:
    """The particles reflected at their proximal points.

    Where there are constraints, the images are projected onto them: an image may lie beyond the
    opposite border, or off the plane of a simplex.
    """
    images = jax.tree.map(lambda u, v: 2 * u - v, points, particles)
    return projected(theta, images, model)


def projected(theta: PyTree, particles: PyTree, model: Model) -> PyTree:
    """The nearest points that keep to the constraints; the particles themselves without any."""
    if model.nonsmooth.finite:
        return particles
    # With next to no smoothing the prox is the projection, and the identity for other terms.
    tiny = jax.tree.map(lambda leaf: jnp.asarray(jnp.finfo(leaf.dtype).tiny, leaf.dtype), particles)
    return model.solve(theta, particles, None, tiny, model.warm_start(theta, particles)).x
