r"""What every algorithm of the paper shares.

A step moves the particles (`move`, written by each scheme) and then theta. It is made for a
diagonal preconditioner $P$ of the theta block: drift times $P$, noise $\sqrt{2 \gamma P / N}$,
smoothing $\lambda_\theta = \lambda P$. That is a Langevin diffusion in another metric, so its
invariant law is the one without $P$ (PAPER.md, section 2). A model may bring such a metric $M$ for
the particles, too: there $\gamma$ and $\lambda$ become $\gamma M$ and $\lambda M$.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks, _trees
from pipla.algorithms._normals import normals_like, particle_normals
from pipla.algorithms.base import (
    Algorithm,
    Geometry,
    Info,
    Number,
    check_scale_like_theta,
    check_theta_scale,
    given,
    number,
    theta_scale,
)
from pipla.algorithms.interwoven import Curvature, interweave
from pipla.models.model import Gradients, Model
from pipla.prox.base import Solution

if TYPE_CHECKING:
    from optax import GradientTransformation

#: The key of a step, or those of two half steps whose noise it takes together.
Keys = tuple[Key[Array, ""], ...]
ThetaUpdate = Literal["prox", "gradient", "closed-form", "interwoven", "frozen"]


class State(NamedTuple):
    """What the next step needs, and nothing else."""

    theta: PyTree
    particles: PyTree
    warm: PyTree  # warm starts of an iterative prox, one per particle
    optimizer: PyTree  # the state of `theta_optimizer`
    reflected: PyTree = None  # the mirror images that carry the dynamics of a reflected flow
    surrogate: PyTree = None  # the Gaussian that a flow has in the place of the likelihood
    curvature: PyTree = None  # what an interwoven theta knows of its potential


class Scales(NamedTuple):
    """The diagonal metric: $P$ for each leaf of theta, $M$ for each leaf of x."""

    theta: PyTree
    particles: PyTree


class Noise(NamedTuple):
    """Scaled: $\\sqrt{2 \\gamma P / N}\\, \\xi^0$ and $\\sqrt{2 \\gamma M}\\, \\xi^i$."""

    theta: PyTree
    particles: PyTree


class Move(NamedTuple):
    """Where a scheme takes theta and the particles."""

    theta: PyTree
    particles: PyTree
    warm: PyTree
    gradients: Gradients
    gap: Float[Array, ""]
    reflected: PyTree = None
    surrogate: PyTree = None
    penalty: PyTree = None  # of `particles`, where they are proximal points


class Langevin(Algorithm[State]):
    """Fields and final methods of the family; a scheme adds `move`.

    Arguments:
        step_size: $\\gamma$, the time step.
        theta_scale: $P$: a number, a pytree of numbers like theta, or `"auto"`: 1/d of the block
            of x that the term couples each part of theta to, or, for a part that sits in the
            smooth potential only, the ratio of stiffnesses $\\min(L_x/L_\\theta, 1)$.
        theta_update: `"prox"` moves theta by the joint prox; `"gradient"` by the gradient of the
            whole potential, with the prox over x only (hybrid); `"closed-form"` to the best theta
            for the present particles, without step size or noise, where terms and likelihood
            have one; `"interwoven"` there, and then by a Newton step in non-centred coordinates,
            the particles moving along; `"frozen"` not at all (a sampler).
        theta_noise: whether theta gets noise of its own.
        theta_optimizer: an optax transformation that turns the scheme's displacement of theta,
            $(\\theta - \\theta_+)/\\gamma$, into its step; `optax.sgd(step_size)` changes nothing.
        num_moves: moves of the particles per step of theta, which then takes their mean
            displacement.
        antithetic: particles in pairs with opposite noise.
        name: what the preset is called.
    """

    swept: ClassVar[tuple[str, ...]] = ("step_size", "smoothing")

    step_size: Array | None = eqx.field(converter=number, default=None, kw_only=True)
    theta_scale: PyTree = eqx.field(converter=theta_scale, default=1.0, kw_only=True)
    theta_update: ThetaUpdate = eqx.field(static=True, default="prox", kw_only=True)
    theta_noise: bool = eqx.field(static=True, default=True, kw_only=True)
    theta_optimizer: GradientTransformation | None = eqx.field(default=None, kw_only=True)
    num_moves: int = eqx.field(static=True, default=1, kw_only=True)
    antithetic: bool = eqx.field(static=True, default=False, kw_only=True)
    name: str = eqx.field(static=True, default="", kw_only=True)

    def __check_init__(self) -> None:
        _checks.positive("step_size", self.step_size)
        _checks.choice("theta_update", self.theta_update, get_args(ThetaUpdate))
        _checks.integer("num_moves", self.num_moves, least=1)
        check_theta_scale(self.theta_scale)
        for name in ("theta_noise", "antithetic"):
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
                "PIPGLA with theta_noise=False, and not theta_update='frozen', "
                "'closed-form' or 'interwoven'."
            )

    @abc.abstractmethod
    def move(self, state: State, noise: Noise, scales: Scales, model: Model) -> Move:
        """Where theta (mean over the particles) and the particles go from here."""

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> State:
        optimizer = first_state(self.theta_optimizer, theta)
        state = State(theta, particles, model.warm_start(theta, particles), optimizer)
        if self.theta_update == "interwoven":
            state = state._replace(curvature=Curvature.unknown(theta))
        return state

    def step(self, key: Key[Array, ""] | Keys, state: State, model: Model) -> tuple[State, Info]:
        keys = key if isinstance(key, tuple) else (key,)
        if self.num_moves > 1:
            move = self._several_moves(keys, state, model)
        else:
            scales = self.scales(state, model)
            move = self.move(state, self._noise(keys, state, scales), scales, model)
        info = Info(move.gradients.theta, move.gradients.particles, move.gap)
        after = state._replace(
            particles=move.particles,
            warm=move.warm,
            reflected=move.reflected,
            surrogate=move.surrogate,
        )
        return self._learn(after, move.theta, move.penalty, model), info

    def coarse_step(
        self, keys: tuple[Key[Array, ""], Key[Array, ""]], state: State, model: Model
    ) -> tuple[State, Info]:
        return self.step(keys, state, model)

    def check(self, theta: PyTree, particles: PyTree) -> None:
        count = _trees.num_particles(particles)
        if self.antithetic and count % 2:
            raise ValueError(
                f"antithetic=True pairs the particles, so their number must be even; got {count}."
            )
        for name, value in self.numbers().items():
            if name in self.swept:
                _checks.single(name, value)
        if not isinstance(self.theta_scale, str):
            check_scale_like_theta(self.theta_scale, theta)

    def completed(self, geometry: Geometry) -> Self:
        completed = self
        if isinstance(self.theta_scale, str):
            completed = self.with_numbers(theta_scale=geometry.theta_scale())
        if self.step_size is not None and not self._lacks_smoothing:
            return completed
        return completed.with_numbers(**completed.suggested_numbers(geometry))

    def suggested_numbers(self, geometry: Geometry) -> dict[str, float]:
        """The step size, and the smoothing where it was left out."""
        smoothing = self.numbers().get("smoothing")
        # Over x alone the prox is convex, and any smoothing is stable.
        largest = geometry.largest_smoothing() if self.theta_update == "prox" else float("inf")
        suggested = geometry.curvature(self.moving_scale).suggest(smoothing, largest)
        numbers = {"step_size": suggested.step_size, "smoothing": suggested.smoothing}
        wanted = ["step_size"] if self.step_size is None else []
        wanted += ["smoothing"] if self._lacks_smoothing else []
        return {name: numbers[name] for name in wanted}

    def objections(self, model: Model) -> Sequence[str]:
        # What speaks against a term is its centred form; interwoven moves use the other one.
        return () if self.theta_update == "interwoven" else super().objections(model)

    def joint_smoothing(self) -> Array | None:
        if self.theta_update != "prox":
            return None
        return self.numbers().get("smoothing", self.step_size)

    def rescaled(self, factor: Number) -> Self:
        if self.step_size is None:
            raise ValueError("scheme needs a step_size of its own: give it a number.")
        return self.with_numbers(step_size=self.step_size * factor)

    def with_theta(self, state: State, theta: PyTree) -> State:
        return state._replace(theta=theta)

    @property
    def learns_theta(self) -> bool:
        return self.theta_update != "frozen"

    @property
    def label(self) -> str:
        return self.name or type(self).__name__

    # What the schemes build their moves from. #

    @property
    def gamma(self) -> Array:
        r"""The step size $\gamma$, which is given."""
        return given("step_size", self.step_size)

    @property
    def theta_drifts(self) -> bool:
        """Whether theta moves by steps of its own."""
        return self.theta_update in ("prox", "gradient")

    @property
    def moving_scale(self) -> PyTree:
        """`theta_scale`, or 0 where theta makes no steps: its curvature then limits none."""
        return self.theta_scale if self.theta_drifts else 0.0

    def scales(self, state: State, model: Model) -> Scales:
        """The metric at this state; for the particles at most $M = $ `longest_step` $/\\gamma$."""
        given("theta_scale", self.theta_scale)
        scale = model.particle_scale(state.theta, state.particles)
        if model.longest_step is not None:
            longest = model.longest_step(state.theta, _trees.first(state.particles))
            scale = jax.tree.map(lambda m, most: jnp.minimum(m, most / self.gamma), scale, longest)
        return Scales(jax.tree.broadcast(self.theta_scale, state.theta), scale)

    def gradients(self, state: State, model: Model) -> Gradients:
        """Gradients of g1; in hybrid schemes, theta's is that of the whole potential."""
        hybrid = self.theta_update == "gradient"
        return model.gradients(state.theta, state.particles, nonsmooth_theta=hybrid)

    def theta_step(self, theta: PyTree, gradient: PyTree, scales: Scales) -> PyTree:
        r"""$\theta - \gamma P \nabla$, or theta itself where it does not drift."""
        if not self.theta_drifts:
            return theta
        return jax.tree.map(lambda t, p, g: t - self.gamma * p * g, theta, scales.theta, gradient)

    def particle_step(self, particles: PyTree, gradient: PyTree, scales: Scales) -> PyTree:
        r"""$X - \gamma M \nabla$."""
        return jax.tree.map(
            lambda x, m, g: x - self.gamma * m * g, particles, scales.particles, gradient
        )

    def prox(
        self,
        theta: PyTree,
        particles: PyTree,
        smoothing: Array,
        scales: Scales,
        warm: PyTree,
        model: Model,
    ) -> Solution:
        r"""The prox with $\lambda_x = \lambda M$, $\lambda_\theta = \lambda P$, theta averaged.

        Where theta does not move by the prox, it is the prox over x alone.
        """
        lam_x = _trees.scale(smoothing, scales.particles)
        if self.theta_update != "prox":
            solution = model.solve(theta, particles, None, lam_x, warm)
        else:
            lam_theta = _trees.scale(smoothing, scales.theta)
            solution = model.solve(theta, particles, lam_theta, lam_x, warm)
            theta = _trees.mean(solution.theta)
        return solution._replace(theta=theta, gap=jnp.max(solution.gap))

    def refuse_joint_prox(self, model: Model, why: str) -> None:
        """For schemes whose particles do not move by a single prox."""
        if self.theta_update == "prox" and model.nonsmooth.uses_theta:
            raise ValueError(
                f"{why}, and theta must not move by the prox: use theta_update='gradient', "
                "'closed-form' or 'frozen', or `pipla.noncentred`."
            )

    @property
    def _lacks_smoothing(self) -> bool:
        return False

    def _noise(self, keys: Keys, state: State, scales: Scales) -> Noise:
        """The noise of this key, or of two added up and scaled to the same variance."""
        draws = [self._one_noise(key, state, scales) for key in keys]
        if len(draws) == 1:
            return draws[0]
        return jax.tree.map(lambda *each: sum(each) / len(each) ** 0.5, *draws)

    def _one_noise(self, key: Key[Array, ""], state: State, scales: Scales) -> Noise:
        theta_key, particle_key = jax.random.split(key)
        for_particles = jax.tree.map(
            lambda xi, m: jnp.sqrt(2 * self.gamma * m) * xi,
            particle_normals(particle_key, state.particles, antithetic=self.antithetic),
            scales.particles,
        )
        if not self.theta_noise or not self.theta_drifts:
            return Noise(_trees.zeros_like(state.theta), for_particles)
        count = _trees.num_particles(state.particles)
        for_theta = jax.tree.map(
            lambda xi, p: jnp.sqrt(2 * self.gamma * p / count) * xi,
            normals_like(theta_key, state.theta),
            scales.theta,
        )
        return Noise(for_theta, for_particles)

    def _several_moves(self, keys: Keys, state: State, model: Model) -> Move:
        """`num_moves` moves of the particles at a fixed theta; theta's target is their mean."""

        def body(state: State, keys: Keys) -> tuple[State, Any]:
            scales = self.scales(state, model)
            move = self.move(state, self._noise(keys, state, scales), scales, model)
            after = state._replace(
                particles=move.particles,
                warm=move.warm,
                reflected=move.reflected,
                surrogate=move.surrogate,
            )
            return after, (move.theta, move.gradients.theta, move.gap)

        each = tuple(jax.random.split(key, self.num_moves) for key in keys)
        after, (thetas, gradients, gaps) = jax.lax.scan(body, state, each)
        # The particles' gradients are not kept: nobody needs them between theta steps.
        mean = Gradients(_trees.mean(gradients), _trees.zeros_like(after.particles))
        return Move(
            _trees.mean(thetas),
            after.particles,
            after.warm,
            mean,
            jnp.max(gaps),
            after.reflected,
            after.surrogate,
        )

    def _learn(self, state: State, target: PyTree, penalty: PyTree, model: Model) -> State:
        """The state with theta after its move, for which the scheme proposes `target`."""
        if self.theta_update == "frozen":
            return state
        if self.theta_update == "closed-form":
            return state._replace(theta=model.closed_form(state.theta, state.particles, penalty))
        if self.theta_update == "interwoven":
            theta, particles, images, curvature = interweave(
                model, state.theta, state.particles, penalty, state.reflected, state.curvature
            )
            return state._replace(
                theta=theta, particles=particles, reflected=images, curvature=curvature
            )
        if self.theta_optimizer is None:
            return state._replace(theta=target)
        gradient = jax.tree.map(lambda t, new: (t - new) / self.gamma, state.theta, target)
        moved = optimizer_step(self.theta_optimizer, gradient, state.optimizer, state.theta)
        return state._replace(theta=moved[0], optimizer=moved[1])


# Theta driven by an optax transformation. Importing pipla does not import optax: its users do. #


def check_optimizer(optimizer: GradientTransformation | None) -> None:
    """`optimizer` is `None` or has what optax asks of a transformation."""
    if optimizer is not None and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(
            "theta_optimizer must be an optax transformation such as `optax.adam(0.01)`, got "
            f"{type(optimizer).__name__}."
        )


def first_state(optimizer: GradientTransformation | None, theta: PyTree) -> PyTree:
    """The optimiser's state before the first step."""
    return None if optimizer is None else optimizer.init(theta)


def optimizer_step(
    optimizer: GradientTransformation, gradient: PyTree, state: PyTree, theta: PyTree
) -> tuple[PyTree, PyTree]:
    """Theta and the optimiser's state after a step along `gradient`."""
    from optax import apply_updates

    updates, state = optimizer.update(gradient, state, theta)
    return apply_updates(theta, updates), state
