"""Moves that are accepted or rejected on the true potential: no bias, at twice the cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms._normals import normals_like
from pipla.algorithms.base import (
    Algorithm,
    Geometry,
    Info,
    Number,
    check_scale_like_theta,
    check_theta_scale,
    given,
    number,
    register,
    theta_scale,
)
from pipla.algorithms.langevin import check_optimizer, first_state, optimizer_step
from pipla.models.model import Model

if TYPE_CHECKING:
    from optax import GradientTransformation

#: The acceptance rate at which Metropolis-adjusted Langevin is most efficient.
TARGET_ACCEPTANCE = 0.574


class MetropolisState(NamedTuple):
    """What the next step needs."""

    theta: PyTree
    particles: PyTree
    optimizer: PyTree
    log_factor: Float[Array, ""]  # of the step size, adapted to the acceptance rate
    steps: Float[Array, ""]


class Proposal(NamedTuple):
    """Particles with their potentials and gradients, one per particle."""

    particles: PyTree
    potential: Float[Array, " n"]
    gradient: PyTree  # of the smoothed potential in x
    theta_gradient: PyTree


@register
class MetropolisAdjusted(Algorithm[MetropolisState]):
    r"""Metropolis-adjusted Langevin particles; theta by stochastic approximation. The reference.

    Each particle proposes an Euler step along the smoothed potential,
    $X' = X - \gamma M \nabla U^\lambda(\theta, X) + \sqrt{2 \gamma M}\, \xi$, and accepts it with
    probability $\min(1, e^{U(\theta, X) - U(\theta, X')}\, q(X \mid X')/q(X' \mid X))$, on the true
    potential: the posterior of x at this theta is invariant, whatever $\gamma$ and $\lambda$. Then

    $$ \theta \leftarrow \theta - \gamma P a_n\, \tfrac1N \sum_i \nabla_\theta U(\theta, X^i),
       \qquad a_n = (1 + n/n_0)^{-\alpha}, $$

    which converges to the maximiser of the marginal likelihood itself. Use it on models whose theta
    sits in the smooth part (`pipla.noncentred`): where a constraint moves with theta, the mean
    gradient is not that of the marginal likelihood. Two evaluations per step; made for up to about
    a thousand dimensions.

    Arguments:
        step_size: $\gamma$ of the first step; then adapted towards 57 % acceptance, with a gain
            that falls like $n^{-0.6}$, so that the limit law is not disturbed.
        smoothing: $\lambda$ of the proposal.
        theta_scale: $P$, as for the other algorithms.
        decay_after: $n_0$, the number of steps after which theta's steps begin to shrink.
        decay_power: $\alpha$ in (1/2, 1].
        theta_optimizer: any optax transformation instead of this step for theta.
    """

    swept: ClassVar[tuple[str, ...]] = ("step_size", "smoothing")
    needs_support: ClassVar[bool] = True

    step_size: Array | None = eqx.field(converter=number, default=None)
    smoothing: Array | None = eqx.field(converter=number, default=None)
    theta_scale: PyTree = eqx.field(converter=theta_scale, default="auto", kw_only=True)
    decay_after: Array = eqx.field(converter=number, default=1000.0, kw_only=True)
    decay_power: Array = eqx.field(converter=number, default=0.7, kw_only=True)
    theta_optimizer: GradientTransformation | None = eqx.field(default=None, kw_only=True)
    name: str = eqx.field(static=True, default="MetropolisAdjusted", kw_only=True)

    def __check_init__(self) -> None:
        for name in ("step_size", "smoothing", "decay_after", "decay_power"):
            _checks.positive(name, getattr(self, name))
        concrete = not isinstance(self.decay_power, jax.core.Tracer)
        if concrete and not bool(jnp.all((self.decay_power > 0.5) & (self.decay_power <= 1))):
            raise ValueError(f"decay_power must be in (1/2, 1], got {self.decay_power}.")
        check_theta_scale(self.theta_scale)
        check_optimizer(self.theta_optimizer)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> MetropolisState:
        optimizer = first_state(self.theta_optimizer, theta)
        zero = jnp.zeros((), _trees.dtype(particles))
        return MetropolisState(theta, particles, optimizer, zero, zero)

    def step(
        self, key: Key[Array, ""], state: MetropolisState, model: Model
    ) -> tuple[MetropolisState, Info]:
        propose_key, accept_key = jax.random.split(key)
        theta = state.theta
        base = given("step_size", self.step_size) * jnp.exp(state.log_factor)
        step = _trees.scale(base, model.particle_scale(theta, state.particles))
        here = self._evaluate(theta, state.particles, model)
        proposed = jax.tree.map(
            lambda x, g, h, xi: x - h * g + jnp.sqrt(2 * h) * xi,
            state.particles,
            here.gradient,
            step,
            normals_like(propose_key, state.particles),
        )
        there = self._evaluate(theta, proposed, model)
        log_ratio = (
            here.potential
            - there.potential
            + _log_proposal(there, here, step)
            - _log_proposal(here, there, step)
        )
        # A proposal outside of a constraint has an infinite potential; NaN must not be accepted.
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        uniform = jax.random.uniform(accept_key, log_ratio.shape, log_ratio.dtype)
        accepted = jnp.log(uniform) < log_ratio

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(accepted.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        particles, gradients = jax.tree.map(
            choose, (there.particles, there.theta_gradient), (here.particles, here.theta_gradient)
        )
        gradient = _trees.mean(gradients)
        theta, optimizer = self._theta_after(state, gradient)
        steps = state.steps + 1
        rate = jnp.mean(jnp.exp(jnp.minimum(log_ratio, 0.0)))
        log_factor = state.log_factor + steps**-0.6 * (rate - TARGET_ACCEPTANCE)
        info = Info(gradient, here.gradient, jnp.zeros((), rate.dtype))
        return MetropolisState(theta, particles, optimizer, log_factor, steps), info

    def _evaluate(self, theta: PyTree, particles: PyTree, model: Model) -> Proposal:
        """The true potential, its gradient in theta, the smoothed gradient in x; per particle."""
        smoothing = given("smoothing", self.smoothing)

        def smooth(x: PyTree) -> tuple[Array, PyTree, PyTree]:
            value, gradients = jax.value_and_grad(model.smooth_value, argnums=(0, 1))(theta, x)
            return value, *gradients

        value, theta_gradient, gradient = jax.vmap(smooth)(particles)
        rough, rough_gradient = jax.vmap(
            lambda x: jax.value_and_grad(model.nonsmooth.value)(theta, x)
        )(particles)
        lam = _trees.scale(smoothing, model.particle_scale(theta, particles))
        warm = model.warm_start(theta, particles)
        point = model.solve(theta, particles, None, lam, warm)
        gradient = jax.tree.map(
            lambda g, x, u, m: g + (x - u) / m, gradient, particles, point.x, lam
        )
        theta_gradient = _trees.add(theta_gradient, rough_gradient)
        return Proposal(particles, value + rough, gradient, theta_gradient)

    def _theta_after(self, state: MetropolisState, gradient: PyTree) -> tuple[PyTree, PyTree]:
        if self.theta_optimizer is not None:
            return optimizer_step(self.theta_optimizer, gradient, state.optimizer, state.theta)
        gain = given("step_size", self.step_size) * (
            (1 + state.steps / self.decay_after) ** -self.decay_power
        )
        scales = jax.tree.broadcast(given("theta_scale", self.theta_scale), state.theta)
        moved = jax.tree.map(lambda t, p, g: t - gain * p * g, state.theta, scales, gradient)
        return moved, None

    def check(self, theta: PyTree, particles: PyTree) -> None:
        for name in ("step_size", "smoothing"):
            _checks.single(name, getattr(self, name))
        if not isinstance(self.theta_scale, str):
            check_scale_like_theta(self.theta_scale, theta)

    def completed(self, geometry: Geometry) -> Self:
        completed = self
        if isinstance(self.theta_scale, str):
            completed = self.with_numbers(theta_scale=geometry.theta_scale())
        missing = [name for name in ("step_size", "smoothing") if getattr(self, name) is None]
        if not missing:
            return completed
        curvature = geometry.curvature(completed.theta_scale)
        suggested = curvature.suggest(self.smoothing, geometry.largest_smoothing())
        return completed.with_numbers(**{name: getattr(suggested, name) for name in missing})

    def rescaled(self, factor: Number) -> Self:
        return self.with_numbers(step_size=given("step_size", self.step_size) * factor)

    def with_theta(self, state: MetropolisState, theta: PyTree) -> MetropolisState:
        return state._replace(theta=theta)

    @property
    def label(self) -> str:
        return self.name


def _log_proposal(start: Proposal, end: Proposal, step: PyTree) -> Float[Array, " n"]:
    r"""$\log q(\text{end} \mid \text{start})$ up to a constant, for every particle."""

    def leaf(x: Array, g: Array, y: Array, h: Array) -> Array:
        residual = y - x + h * g
        return -jnp.sum(residual**2, axis=tuple(range(1, x.ndim))) / (4 * h)

    terms = jax.tree.map(leaf, start.particles, start.gradient, end.particles, step)
    return sum(jax.tree.leaves(terms))  # type: ignore[return-value]
