"""Block Gibbs moves, for likelihoods that can draw parts of x given the others."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms._normals import normals_like
from pipla.algorithms.base import Algorithm, Info, Number, number, register
from pipla.models.model import Model

#: How theta moves.
GibbsUpdate = Literal["interwoven", "closed-form", "frozen"]


class GibbsState(NamedTuple):
    """What the next step needs."""

    theta: PyTree
    particles: PyTree
    steps: Float[Array, ""]


@register
class BlockGibbs(Algorithm[GibbsState]):
    r"""Block Gibbs particles, theta by stochastic EM.

    Every particle draws its blocks in turn from their exact conditional distributions
    (`Likelihood.gibbs`): there is no step size, and the posterior of x at this theta is invariant.
    Theta then moves part of the way to the theta $\hat\theta(X)$ that is best for the particles,

    $$ \theta \leftarrow \theta + \eta\,(\hat\theta(X) - \theta), $$

    whose fixed point, on average over the particles, is that of EM: the maximiser of the marginal
    likelihood, up to a bias of the order of the variance of $\hat\theta(X)$, which falls with the
    size of x and with the number of particles.

    Arguments:
        gain: $\eta$ in (0, 1].
        theta_update: `"interwoven"` moves theta first in non-centred coordinates, the particles
            moving along, where the likelihood can (`Likelihood.interwoven`), and then by the
            closed form; `"closed-form"` by the closed form alone; `"frozen"` not at all.
        interweave_after: the number of steps after which the non-centred moves begin. They remove
            quickly what the data do not need, which is known only when theta has come near.
    """

    gain: Array = eqx.field(converter=number, default=0.2)
    interweave_after: Array = eqx.field(converter=number, default=0.0, kw_only=True)
    theta_update: GibbsUpdate = eqx.field(static=True, default="interwoven", kw_only=True)

    def __check_init__(self) -> None:
        for name, value in (("gain", self.gain), ("interweave_after", self.interweave_after)):
            _checks.single(name, value)
            if _checks.is_concrete(value):
                _checks.real(name, value)
        if _checks.is_concrete(self.gain) and not 0 < float(self.gain) <= 1:
            raise ValueError(f"gain must be in (0, 1], got {float(self.gain):g}.")
        if _checks.is_concrete(self.interweave_after) and float(self.interweave_after) < 0:
            raise ValueError(
                f"interweave_after must not be negative, got {float(self.interweave_after):g}."
            )
        _checks.choice("theta_update", self.theta_update, get_args(GibbsUpdate))

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> GibbsState:
        if model.nonsmooth.reach():
            raise TypeError(
                "BlockGibbs needs a model without a non-smooth term, got "
                f"{type(model.nonsmooth).__name__}; use a Langevin algorithm such as pipla.RPL."
            )
        x = jax.eval_shape(_trees.first, particles)
        if jax.eval_shape(lambda t, x: model.smooth.gibbs(t, x, x), theta, x) is None:
            raise TypeError(
                f"BlockGibbs needs a likelihood with Gibbs moves, and {type(model.smooth).__name__}"
                " has none; pipla.likelihoods.Factors has, or write `gibbs` in one of your own."
            )
        return GibbsState(theta, particles, jnp.zeros((), _trees.dtype(particles)))

    def step(self, key: Key[Array, ""], state: GibbsState, model: Model) -> tuple[GibbsState, Info]:
        theta = state.theta
        noise = normals_like(key, state.particles)
        particles = jax.vmap(model.smooth.gibbs, in_axes=(None, 0, 0))(
            theta, state.particles, noise
        )
        gradients = model.gradients(theta, particles)
        info = Info(gradients.theta, gradients.particles, jnp.zeros((), _trees.dtype(particles)))
        after = state._replace(particles=particles, steps=state.steps + 1)
        if self.theta_update == "frozen":
            return after, info
        if self.theta_update == "interwoven":
            moved = model.smooth.interwoven(theta, particles)
            if moved is not None:
                begun = state.steps >= self.interweave_after
                theta, particles = jax.tree.map(
                    lambda new, old: jnp.where(begun, new, old), moved, (theta, particles)
                )
        best = model.closed_form(theta, particles)
        theta = jax.tree.map(lambda t, b: t + self.gain * (b - t), theta, best)
        return after._replace(theta=theta, particles=particles), info

    def rescaled(self, factor: Number) -> Self:
        return self.with_numbers(gain=self.gain * factor)

    def with_theta(self, state: GibbsState, theta: PyTree) -> GibbsState:
        return state._replace(theta=theta)

    @property
    def learns_theta(self) -> bool:
        return self.theta_update != "frozen"
