r"""Particles that are accepted or rejected on the true potential: no bias, at twice the cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks
from pipla.algorithms.base import Algorithm, Info, Limits
from pipla.algorithms.langevin import number
from pipla.algorithms.noise import normals_like
from pipla.algorithms.optimizer import check_optimizer, first_state, optimizer_step
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
    """A cloud with its potentials and smoothed slopes, one a particle."""

    particles: PyTree
    potential: Float[Array, " n"]
    slope: PyTree
    theta_slope: PyTree


class MetropolisAdjusted(Algorithm):
    r"""Metropolis-adjusted Langevin particles; theta by stochastic approximation. The reference.

    Each particle proposes an Euler step along the smoothed potential,
    $X' = X - \gamma M \nabla U^\lambda(\theta, X) + \sqrt{2 \gamma M}\, \xi$, and accepts it with
    probability $\min(1, e^{U(\theta, X) - U(\theta, X')}\, q(X \mid X')/q(X' \mid X))$, on the true
    potential: the posterior of x at this theta is invariant, whatever $\gamma$ and $\lambda$. Then

    $$ \theta \leftarrow \theta - \gamma P a_n\, \tfrac1N \sum_i \nabla_\theta U(\theta, X^i),
       \qquad a_n = (1 + n/n_0)^{-\alpha}, $$

    which converges to the maximiser of the marginal likelihood itself. Use it on models whose theta
    sits in the smooth part (`pipla.noncentred`): where a constraint moves with theta, the mean
    slope is not that of the marginal likelihood. Two evaluations a step; made for up to about a
    thousand dimensions.

    Arguments:
        step_size: $\gamma$ of the first step; then adapted towards 57 % acceptance, with a gain
            that falls like $n^{-0.6}$, so that the limit law is not disturbed.
        smoothing: $\lambda$ of the proposal.
        theta_scale: $P$, as for the other algorithms.
        decay_after: $n_0$, the number of steps after which theta's steps begin to shrink.
        decay_power: $\alpha$ in (1/2, 1].
        theta_optimizer: any optax transformation instead of this step for theta.
    """

    needs: ClassVar[tuple[str, ...]] = ("step_size", "smoothing")
    limited: ClassVar[bool] = False

    step_size: Array | None = eqx.field(converter=number, default=None)
    smoothing: Array | None = eqx.field(converter=number, default=None)
    theta_scale: PyTree = eqx.field(
        converter=lambda p: p if isinstance(p, str) else jax.tree.map(number, p),
        default="auto",
        kw_only=True,
    )
    decay_after: Array = eqx.field(converter=number, default=1000.0, kw_only=True)
    decay_power: Array = eqx.field(converter=number, default=0.7, kw_only=True)
    theta_optimizer: GradientTransformation | None = eqx.field(default=None, kw_only=True)
    name: str = eqx.field(static=True, default="MetropolisAdjusted", kw_only=True)

    def __check_init__(self) -> None:
        for name in ("step_size", "smoothing", "decay_after", "decay_power"):
            _checks.positive(name, getattr(self, name))
        _checks.theta_scale(self.theta_scale)
        check_optimizer(self.theta_optimizer)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> MetropolisState:  # type: ignore[override]
        optimizer = first_state(self.theta_optimizer, theta)
        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(particles)))
        return MetropolisState(theta, particles, optimizer, zero, zero)

    def step(  # type: ignore[override]
        self, key: Key[Array, ""], state: MetropolisState, model: Model
    ) -> tuple[MetropolisState, Info]:
        assert self.step_size is not None, "run() fills in what was left to tuning"
        propose_key, accept_key = jax.random.split(key)
        theta = state.theta
        base = self.step_size * jnp.exp(state.log_factor)
        step = jax.tree.map(
            lambda m: base * m,
            model.particle_scale(theta, state.particles),
        )
        here = self._evaluate(theta, state.particles, model)
        proposed = jax.tree.map(
            lambda x, g, h, xi: x - h * g + jnp.sqrt(2 * h) * xi,
            state.particles,
            here.slope,
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

        particles, slopes = jax.tree.map(
            choose, (there.particles, there.theta_slope), (here.particles, here.theta_slope)
        )
        slope = jax.tree.map(lambda g: jnp.mean(g, axis=0), slopes)
        moved, optimizer = self._theta_after(state, slope)
        steps = state.steps + 1
        rate = jnp.mean(jnp.exp(jnp.minimum(log_ratio, 0.0)))
        log_factor = state.log_factor + steps**-0.6 * (rate - TARGET_ACCEPTANCE)
        info = Info(slope, here.slope, jnp.zeros((), rate.dtype))
        return MetropolisState(moved, particles, optimizer, log_factor, steps), info

    def _evaluate(self, theta: PyTree, particles: PyTree, model: Model) -> Proposal:
        """The true potential, its slope in theta, the smoothed slope in x; at every particle."""

        assert self.smoothing is not None, "run() fills in what was left to tuning"
        smoothing = self.smoothing

        def one(x: PyTree) -> tuple[Array, PyTree, PyTree]:
            value, (theta_slope, slope) = jax.value_and_grad(model.smooth_value, argnums=(0, 1))(
                theta, x
            )
            return value, theta_slope, slope

        value, theta_slope, slope = jax.vmap(one)(particles)
        rough, rough_slope = jax.vmap(
            lambda x: jax.value_and_grad(model.nonsmooth.value)(theta, x)
        )(particles)
        lam = jax.tree.map(lambda m: smoothing * m, model.particle_scale(theta, particles))
        still = jax.tree.map(lambda t: jnp.zeros((), t.dtype), theta)
        warm = model.warm_start(theta, particles)
        point = model.solve(theta, particles, still, lam, warm)
        slope = jax.tree.map(lambda g, x, u, m: g + (x - u) / m, slope, particles, point.x, lam)
        theta_slope = jax.tree.map(jnp.add, theta_slope, rough_slope)
        return Proposal(particles, value + rough, slope, theta_slope)

    def _theta_after(self, state: MetropolisState, slope: PyTree) -> tuple[PyTree, PyTree]:
        if self.theta_optimizer is not None:
            return optimizer_step(self.theta_optimizer, slope, state.optimizer, state.theta)
        assert self.step_size is not None
        gain = self.step_size * (1 + state.steps / self.decay_after) ** -self.decay_power
        scales = jax.tree.broadcast(self.theta_scale, state.theta)
        moved = jax.tree.map(lambda t, p, g: t - gain * p * g, state.theta, scales, slope)
        return moved, None

    def check(self, theta: PyTree, particles: PyTree) -> None:
        for name in ("step_size", "smoothing"):
            _checks.single(name, getattr(self, name))
        if not isinstance(self.theta_scale, str):
            _checks.scale_like_theta(self.theta_scale, theta)

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        return Limits(
            jnp.asarray(jnp.inf, largest.dtype), None, "Metropolis adjustment: no condition"
        )


def _log_proposal(start: Proposal, end: Proposal, step: PyTree) -> Float[Array, " n"]:
    r"""$\log q(\text{end} \mid \text{start})$ up to a constant, for every particle."""

    def leaf(x: Array, g: Array, y: Array, h: Array) -> Array:
        residual = y - x + h * g
        return -jnp.sum(residual**2, axis=tuple(range(1, x.ndim))) / (4 * h)

    terms = jax.tree.map(leaf, start.particles, start.slope, end.particles, step)
    return sum(jax.tree.leaves(terms))  # type: ignore[return-value]
