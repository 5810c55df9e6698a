r"""The kernel that every algorithm of the paper shares.

A step moves the cloud (a `Move`, written by each scheme) and then theta. The move is made for a
diagonal preconditioner $P$ of the theta block: drift times $P$, noise $\sqrt{2 \gamma P / N}$,
smoothing $\lambda_\theta = \lambda P$. That is a Langevin diffusion in another metric, so its
invariant law is the one without $P$ (PAPER.md, section 2). A model may bring such a metric $M$ for
the particle block, too: there $\gamma$ and $\lambda$ become $\gamma M$ and $\lambda M$.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks
from pipla.algorithms.base import Algorithm, Info, State
from pipla.algorithms.noise import cloud_normals, normals_like
from pipla.algorithms.optimizer import check_optimizer, first_state, optimizer_step
from pipla.models.model import Gradients, Model, num_particles
from pipla.prox.base import Solution
from pipla.prox.combine import coupled_sizes

if TYPE_CHECKING:
    from optax import GradientTransformation

ThetaUpdate = Literal["prox", "gradient", "closed-form", "frozen"]


class Noise(NamedTuple):
    """Scaled: $\\sqrt{2 \\gamma P / N}\\, \\xi^0$ and $\\sqrt{2 \\gamma M}\\, \\xi^i$."""

    theta: PyTree
    particles: PyTree


class Move(NamedTuple):
    """Where a scheme would take theta and the cloud."""

    theta: PyTree
    particles: PyTree
    warm: PyTree
    slope: Gradients
    gap: Float[Array, ""]


def number(value: Any) -> Any:
    """A hyperparameter as a floating array leaf; `None` leaves it to `pipla.tuning`."""
    if value is None or isinstance(value, bool):  # a truth value is no number: the check says so
        return value
    try:
        return jnp.asarray(value, jnp.result_type(float))
    except (TypeError, ValueError):
        return value  # the algorithm's check knows the name of it


def _scale(value: Any) -> Any:
    return value if isinstance(value, str) else jax.tree.map(number, value)


class Langevin(Algorithm):
    """Fields and final methods of the family; a scheme adds `move`.

    Arguments:
        step_size: $\\gamma$, the time step.
        theta_scale: $P$: a number, a pytree of numbers like theta, or `"auto"` (1/d of the block
            of x that each part of theta is coupled to).
        theta_update: `"prox"` moves theta by the joint prox; `"gradient"` by the gradient of the
            whole potential, with the prox over x only (hybrid); `"closed-form"` to the best theta
            for the particles there are, as homogeneous terms and a learned Gaussian noise have one,
            without step size or noise; `"frozen"` not at all (a sampler).
        theta_noise: whether theta gets noise of its own.
        theta_optimizer: an optax transformation that turns the scheme's displacement of theta,
            $(\\theta - \\theta_+)/\\gamma$, into its step; `optax.sgd(step_size)` changes nothing.
        num_moves: moves of the cloud per step of theta, which then takes their mean displacement.
        antithetic: particles in pairs with opposite noise.
        published: the paper's form where it is an erratum (E1, E3), to reproduce its tables.
        name: how the preset is called.
    """

    needs: ClassVar[tuple[str, ...]] = ("step_size",)

    step_size: Array | None = eqx.field(converter=number, default=None, kw_only=True)
    theta_scale: PyTree = eqx.field(converter=_scale, default=1.0, kw_only=True)
    theta_update: ThetaUpdate = eqx.field(static=True, default="prox", kw_only=True)
    theta_noise: bool = eqx.field(static=True, default=True, kw_only=True)
    theta_optimizer: GradientTransformation | None = eqx.field(default=None, kw_only=True)
    num_moves: int = eqx.field(static=True, default=1, kw_only=True)
    antithetic: bool = eqx.field(static=True, default=False, kw_only=True)
    published: bool = eqx.field(static=True, default=False, kw_only=True)
    name: str = eqx.field(static=True, default="", kw_only=True)

    def __check_init__(self) -> None:
        _checks.positive("step_size", self.step_size)
        _checks.choice("theta_update", self.theta_update, get_args(ThetaUpdate))
        _checks.integer("num_moves", self.num_moves, least=1)
        _checks.theta_scale(self.theta_scale)
        for name in ("theta_noise", "antithetic", "published"):
            _checks.boolean(name, getattr(self, name))
        if self.theta_noise and self.theta_drifts and self.num_moves > 1:
            raise ValueError(
                "theta_noise=True needs num_moves=1: averaging the displacement over several "
                "moves would average the noise away."
            )
        check_optimizer(self.theta_optimizer)
        if self.theta_optimizer is not None and (self.theta_noise or not self.theta_drifts):
            raise ValueError(
                "theta_optimizer drives a theta without noise: use MYPGD, PGD, PPGD or SOUL, or "
                "PIPGLA with theta_noise=False, and not theta_update='frozen' or 'closed-form'."
            )

    @abc.abstractmethod
    def move(
        self, theta: PyTree, particles: PyTree, warm: PyTree, noise: Noise, model: Model
    ) -> Move:
        """Where theta (mean over the cloud) and the particles go from here."""

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> State:
        optimizer = first_state(self.theta_optimizer, theta)
        return State(theta, particles, model.warm_start(theta, particles), optimizer)

    def step(self, key: Key[Array, ""], state: State, model: Model) -> tuple[State, Info]:
        move = self._moves(key, state, model)
        theta, optimizer = self._theta_after(state, move, model)
        info = Info(move.slope.theta, move.slope.particles, move.gap)
        return State(theta, move.particles, move.warm, optimizer), info

    def check(self, theta: PyTree, particles: PyTree) -> None:
        if self.antithetic and num_particles(particles) % 2:
            raise ValueError(
                "antithetic=True pairs the particles, so their number must be even; got "
                f"{num_particles(particles)}."
            )
        for name in ("step_size", "smoothing"):
            _checks.single(name, getattr(self, name, None))
        if not isinstance(self.theta_scale, str):
            _checks.scale_like_theta(self.theta_scale, theta)

    # What the schemes build their moves from. #

    def slopes(self, theta: PyTree, particles: PyTree, model: Model) -> Gradients:
        """Gradients of g1; in hybrid schemes, theta's is that of the whole potential."""
        hybrid = self.theta_update == "gradient"
        return model.gradients(theta, particles, nonsmooth_theta=hybrid)

    def descend(self, theta: PyTree, slope: PyTree) -> PyTree:
        r"""$\theta - \gamma P \nabla$, or theta itself where it does not drift."""
        if not self.theta_drifts:
            return theta
        return jax.tree.map(
            lambda t, p, g: t - self._gamma * p * g, theta, self._scales(theta), slope
        )

    def descend_particles(
        self, theta: PyTree, particles: PyTree, slope: PyTree, model: Model
    ) -> PyTree:
        r"""$X - \gamma M \nabla$."""
        metric = self.metric(theta, particles, model)
        return jax.tree.map(lambda x, m, g: x - self._gamma * m * g, particles, metric, slope)

    def metric(self, theta: PyTree, particles: PyTree, model: Model) -> PyTree:
        """$M$: one number for each leaf of x."""
        return model.particle_scale(theta, particles)

    def solve(
        self,
        theta: PyTree,
        particles: PyTree,
        smoothing: Array,
        warm: PyTree,
        model: Model,
        *,
        scale_point: bool = False,
    ) -> Solution:
        r"""The prox with $\lambda_x = \lambda M$, $\lambda_\theta = \lambda P$, theta averaged.

        `scale_point` is what the published code did instead (E1): the prox in the Euclidean
        metric, and P times the point (its parts that the term knows), which it mistook for a
        scaled displacement. Where theta does not move by the prox, $\lambda_\theta = 0$.
        """
        scales = self._scales(theta)
        if self.theta_update != "prox":
            lam_theta = jax.tree.map(lambda t: 0.0, theta)  # a number, so that the term sees it
        elif scale_point:
            lam_theta = jax.tree.map(lambda _: smoothing, theta)
        else:
            lam_theta = jax.tree.map(lambda p: smoothing * p, scales)
        metric = self.metric(theta, particles, model)
        lam_x = jax.tree.map(lambda m: smoothing * m, metric)
        solution = model.solve(theta, particles, lam_theta, lam_x, warm)
        if self.theta_update == "prox":
            theta = jax.tree.map(lambda t: jnp.mean(t, axis=0), solution.theta)
            if scale_point:
                one = jax.tree.map(lambda leaf: leaf[0], particles)
                theta = jax.tree.map(
                    lambda p, t, size: t if size is None else p * t,
                    scales,
                    theta,
                    coupled_sizes(model.nonsmooth, theta, one),
                )
        return solution._replace(theta=theta, gap=jnp.max(solution.gap))

    @property
    def _gamma(self) -> Array:
        assert self.step_size is not None, "run() fills in what was left to tuning"
        return self.step_size

    def _scales(self, theta: PyTree) -> PyTree:
        return jax.tree.broadcast(self.theta_scale, theta)

    def _noise(self, key: Key[Array, ""], theta: PyTree, particles: PyTree, model: Model) -> Noise:
        theta_key, cloud_key = jax.random.split(key)
        cloud = jax.tree.map(
            lambda xi, m: jnp.sqrt(2 * self._gamma * m) * xi,
            cloud_normals(cloud_key, particles, antithetic=self.antithetic),
            self.metric(theta, particles, model),
        )
        if not self.theta_noise or not self.theta_drifts:
            return Noise(jax.tree.map(jnp.zeros_like, theta), cloud)
        count = num_particles(particles)
        own = jax.tree.map(
            lambda xi, p: jnp.sqrt(2 * self._gamma * p / count) * xi,
            normals_like(theta_key, theta),
            self._scales(theta),
        )
        return Noise(own, cloud)

    def _moves(self, key: Key[Array, ""], state: State, model: Model) -> Move:
        """`num_moves` moves of the cloud at a fixed theta; theta's target is their mean."""

        def move(key: Key[Array, ""], particles: PyTree, warm: PyTree) -> Move:
            noise = self._noise(key, state.theta, particles, model)
            return self.move(state.theta, particles, warm, noise, model)

        if self.num_moves == 1:
            return move(key, state.particles, state.warm)

        def body(cloud: tuple[PyTree, PyTree], key: Key[Array, ""]) -> tuple[Any, Any]:
            result = move(key, *cloud)
            return (result.particles, result.warm), (result.theta, result.slope.theta, result.gap)

        keys = jax.random.split(key, self.num_moves)
        (particles, warm), history = jax.lax.scan(body, (state.particles, state.warm), keys)
        theta, slope = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), history[:2])
        # The last move's particle slopes are not kept: nobody needs them between theta steps.
        still = jax.tree.map(jnp.zeros_like, particles)
        return Move(theta, particles, warm, Gradients(slope, still), jnp.max(history[2]))

    @property
    def theta_drifts(self) -> bool:
        """Whether theta moves by steps of its own."""
        return self.theta_update in ("prox", "gradient")

    def _theta_after(self, state: State, move: Move, model: Model) -> tuple[PyTree, PyTree]:
        if self.theta_update == "closed-form":
            return model.closed_form(state.theta, move.particles), None
        if self.theta_update == "frozen":
            return state.theta, None
        if self.theta_optimizer is None:
            return move.theta, None
        slope = jax.tree.map(lambda t, new: (t - new) / self._gamma, state.theta, move.theta)
        return optimizer_step(self.theta_optimizer, slope, state.optimizer, state.theta)
