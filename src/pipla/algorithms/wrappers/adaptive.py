r"""Steps that measure themselves: any scheme of the family, with its numbers from the curvature.

Along with each step one particle (another one every time) makes one power iteration on its Hessian
of $g_1$, which costs about 5/N of a step. So the step size follows the stiffness wherever theta
goes, and nobody has to know it beforehand.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks
from pipla.algorithms.base import Info, Limits, State
from pipla.algorithms.langevin import Langevin, number
from pipla.algorithms.noise import normals_like
from pipla.algorithms.wrappers.annealed import Driving, fraction
from pipla.models.model import Model, num_particles


class AdaptiveState(NamedTuple):
    """The inner state, and what is known of the curvature."""

    theta: PyTree
    particles: PyTree
    inner: PyTree  # warm starts and optimiser of the scheme
    direction: (
        PyTree  # unit vector near the stiffest direction of x, and one for each leaf of theta
    )
    stiffness: Float[Array, ""]  # of x: L_x
    theta_stiffness: PyTree  # of each leaf of theta: L_theta
    drift: PyTree  # running mean of theta's moves
    speed: Float[Array, ""]  # running mean of their squared length
    age: Float[Array, ""]  # steps since theta has arrived
    steps: Float[Array, ""]


class Adaptive(Driving):
    r"""A scheme whose `step_size` and `theta_scale` follow the curvature of $g_1$.

    $$ \gamma_n = \frac{f_n}{2 L_x}, \qquad P_n = \min\Bigl(\frac{L_x}{L_\theta}, 1\Bigr), \qquad
       f_n = f_\infty + \frac{f_0 - f_\infty}{(1 + n/n_0)^2} $$

    with $L_x$, $L_\theta$ the stiffnesses of the diagonal blocks. In the metric of $P$ the whole
    Hessian is at most $2 L_x$ where $g_1$ is convex, so $f \le 1$ is the condition of the theorems.
    The fraction starts at $f_0$, to travel, and ends at $f_\infty$, because the bias is
    proportional to the step. Here $n$ counts the steps since theta has arrived: a step adds
    $(1 - \rho)^2$ to it, where $\rho$ is the length of the running mean of theta's moves over their
    root mean square, 1 while theta travels and near 0 when it goes to and fro. Made for models
    with theta in their smooth part (`noncentred`).

    Arguments:
        scheme: which scheme; its `step_size` and `theta_scale` are replaced.
        first, last, change_after: $f_0$, $f_\infty$ and $n_0$.
    """

    limited: ClassVar[bool] = False

    first: Array = eqx.field(converter=number, default=1.0)
    last: Array = eqx.field(converter=number, default=0.0625)
    change_after: Array = eqx.field(converter=number, default=40.0)
    name: str = eqx.field(static=True, default="", kw_only=True)

    #: Theta's moves are averaged over about so many steps.
    window = 50.0
    #: A measured stiffness is forgotten at this rate a step unless measured again.
    memory = 0.98

    def __check_init__(self) -> None:
        for name in ("first", "last", "change_after"):
            _checks.positive(name, getattr(self, name))

    def missing(self) -> tuple[str, ...]:
        own = ("step_size", "theta_scale")
        return tuple(name for name in super().missing() if name not in own)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> AdaptiveState:  # type: ignore[override]
        inner = self._scheme(jnp.ones(()), jax.tree.map(lambda _: jnp.ones(()), theta)).init(
            model, theta, particles
        )
        one = jax.tree.map(lambda leaf: leaf[0], particles)
        direction = _unit_leaves(normals_like(jax.random.key(0), (theta, one)))
        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(particles)))
        blank = AdaptiveState(
            theta,
            particles,
            (inner.warm, inner.optimizer),
            direction,
            zero,
            jax.tree.map(lambda _: zero, theta),
            jax.tree.map(jnp.zeros_like, theta),
            zero,
            zero,
            zero,
        )
        # Twenty particles' worth of power iterations, so that the first step is not a guess.
        return jax.lax.fori_loop(0, 20, lambda i, state: self._measure(state, i, model), blank)

    def step(  # type: ignore[override]
        self, key: Key[Array, ""], state: AdaptiveState, model: Model
    ) -> tuple[AdaptiveState, Info]:
        state = self._measure(state, state.steps.astype(jnp.int32), model)
        share = fraction(state.age, self.first, self.last, self.change_after)
        step_size = share / (2 * _or_one(state.stiffness))
        scale = jax.tree.map(
            lambda s: jnp.minimum(_or_one(state.stiffness) / jnp.where(s > 0, s, jnp.inf), 1.0),
            state.theta_stiffness,
        )
        scale = jax.tree.map(lambda p: jnp.where(p > 0, p, 1.0), scale)
        scheme = self._scheme(step_size, scale)
        inner, info = scheme.step(key, State(state.theta, state.particles, *state.inner), model)
        theta = jax.tree.map(_within_reach, state.theta, inner.theta, state.theta_stiffness)
        state = self._grow_older(state, jax.tree.map(jnp.subtract, theta, state.theta))
        return (
            state._replace(
                theta=theta,
                particles=inner.particles,
                inner=(inner.warm, inner.optimizer),
                steps=state.steps + 1,
            ),
            info,
        )

    def _grow_older(self, state: AdaptiveState, move: PyTree) -> AdaptiveState:
        """A step older if theta went to and fro, no older if it travelled."""
        share = 1 / (1 + jnp.minimum(state.steps, self.window))
        drift = jax.tree.map(lambda old, new: old + share * (new - old), state.drift, move)
        speed = state.speed + share * (_norm(move) ** 2 - state.speed)
        straight = jnp.minimum(_norm(drift) / jnp.sqrt(_or_one(speed)), 1.0)
        return state._replace(drift=drift, speed=speed, age=state.age + (1 - straight) ** 2)

    def _scheme(self, step_size: Array, theta_scale: PyTree) -> Langevin:
        return eqx.tree_at(
            lambda a: (a.step_size, a.theta_scale),
            self.scheme,
            (step_size, theta_scale),
            is_leaf=lambda leaf: leaf is None,
        )

    def _measure(self, state: AdaptiveState, turn: Any, model: Model) -> AdaptiveState:
        """One power iteration for the block of x and for each leaf of theta, at one particle."""
        theta = state.theta
        which = turn % num_particles(state.particles)
        x = jax.tree.map(lambda leaf: leaf[which], state.particles)
        root = jax.tree.map(jnp.sqrt, model.particle_scale(theta, state.particles))

        def gradient(theta: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
            return jax.grad(model.smooth_value, argnums=(0, 1))(theta, x)

        _, hessian = jax.linearize(gradient, theta, x)
        theta_direction, x_direction = state.direction
        still_theta, still_x = jax.tree.map(jnp.zeros_like, (theta, x))
        curved = hessian(still_theta, jax.tree.map(jnp.multiply, root, x_direction))[1]
        curved = jax.tree.map(jnp.multiply, root, curved)
        leaves, structure = jax.tree.flatten(theta_direction)
        theta_curved = []
        for number_, leaf in enumerate(leaves):
            alone = [leaf if i == number_ else jnp.zeros_like(v) for i, v in enumerate(leaves)]
            out = hessian(jax.tree.unflatten(structure, alone), still_x)[0]
            theta_curved.append(jax.tree.leaves(out)[number_])
        lengths = [_norm(leaf) for leaf in theta_curved]
        new_theta = [
            jnp.where(n > 0, c / _or_one(n), old)
            for c, n, old in zip(theta_curved, lengths, leaves, strict=True)
        ]
        length = _norm(curved)
        new_x = jax.tree.map(
            lambda c, old: jnp.where(length > 0, c / _or_one(length), old), curved, x_direction
        )
        return state._replace(
            direction=(jax.tree.unflatten(structure, new_theta), new_x),
            stiffness=jnp.maximum(length, self.memory * state.stiffness),
            theta_stiffness=jax.tree.map(
                lambda n, old: jnp.maximum(n, self.memory * old),
                jax.tree.unflatten(structure, lengths),
                state.theta_stiffness,
            ),
        )

    def limits(self, largest: Float[Array, ""], smallest: Float[Array, ""]) -> Limits:
        return Limits(jnp.asarray(jnp.inf, largest.dtype), None, "the step follows the curvature")


def _within_reach(old: Array, new: Array, stiffness: Array) -> Array:
    r"""`new`, but no farther from `old` than $1/\sqrt{L_\theta}$.

    Far from the data a likelihood is steep and hardly curved, and a step of its curvature's size
    would overshoot by orders of magnitude.
    """
    move = new - old
    length = _norm(move)
    reach = 1 / jnp.sqrt(_or_one(stiffness))
    return old + move * jnp.minimum(1.0, reach / _or_one(length))


def _norm(tree: PyTree) -> Any:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


def _or_one(value: Array) -> Array:
    return jnp.where(value > 0, value, 1.0)


def _unit_leaves(pair: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
    """Theta's directions are of unit length leaf by leaf; that of x as a whole."""
    theta, x = pair
    size = _norm(x)
    return (
        jax.tree.map(lambda leaf: leaf / _norm(leaf), theta),
        jax.tree.map(lambda leaf: leaf / size, x),
    )
