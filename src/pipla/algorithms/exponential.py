"""The flow of the likelihood, exact or of a Gaussian near it, then a (reflected) prox: RPL."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla import _trees
from pipla.algorithms.base import register
from pipla.algorithms.forward_backward import mirror_images
from pipla.algorithms.langevin import Langevin, Move, Noise, Scales, State
from pipla.algorithms.surrogate import LARGEST_MATRIX, Surrogate
from pipla.models.model import Gradients, Model
from pipla.operators.polynomials import LONGEST_EXPONENT


@register
class ExponentialFlow(Langevin):
    r"""The likelihood's own diffusion, and the prior by its prox.

    With $h = \gamma \tau$, where $\tau$ is the prior's own unit of time ($e^{-2\theta}$ for a
    strength $e^\theta$),

    $$ Y = \text{flow}_h(X_n), \qquad
       M_{n+1} = \operatorname{prox}^{h/2}_{g_2}(Y), \qquad X_{n+1} = 2 M_{n+1} - Y. $$

    The flow is exact where the likelihood knows it (`Likelihood.flow`), and that of a Gaussian
    near it elsewhere (`pipla.algorithms.surrogate`). So no stiffness limits the step: $\gamma$ is
    a pure number, the same for every image and every noise. The particles reported are the
    midpoints $M_{n+1}$, from which theta is learned (beside a Gaussian near the likelihood, in its
    stiff directions, points nearer to $Y$: `Surrogate.balanced`); the mirror images $X_{n+1}$ carry
    the dynamics. The bias is of order $\gamma$.

    Arguments:
        reflected: reflect at the proximal point; without it $X_{n+1} = \operatorname{prox}^h(Y)$,
            the exponential form of PIPGLA.
    """

    reflected: bool = eqx.field(static=True, default=True, kw_only=True)

    def init(self, model: Model, theta: PyTree, particles: PyTree) -> State:
        state = super().init(model, theta, particles)
        if not _has_flow(model, theta, particles):
            start = jnp.zeros((), jnp.int32)
            surrogate = Surrogate.measured(model, theta, particles, start)
            state = state._replace(surrogate=surrogate)
        return state._replace(reflected=particles) if self.reflected else state

    def scales(self, state: State, model: Model) -> Scales:
        """In x, also times the prior's unit of time."""
        scales = super().scales(state, model)
        if state.surrogate is not None:
            unit = state.surrogate.scale(model, state.theta, state.particles)
        else:
            one = _trees.first(state.particles)
            unit = jax.tree.map(
                lambda own: jnp.where(jnp.isfinite(own), own, _typical(model, state.theta, one)),
                model.nonsmooth.time_unit(state.theta, one),
            )
            unit = self._resolved(unit, model, state.theta, one)
        return scales._replace(particles=_trees.multiply(scales.particles, unit))

    def move(self, state: State, noise: Noise, scales: Scales, model: Model) -> Move:
        self.refuse_joint_prox(model, "the flow of the likelihood moves x alone")
        theta = state.theta
        start = state.reflected if self.reflected else state.particles
        time = _trees.scale(self.gamma, scales.particles)
        gradients = Gradients(*_trees.zeros_like((theta, start)))
        surrogate = state.surrogate
        if surrogate is None:
            free = _exact_flow(model, theta, start, time, noise)
        else:
            gradients = model.gradients(theta, start)
            free = surrogate.flow(start, gradients.particles, time, noise.particles)
            surrogate = surrogate.refreshed(model, theta, state.particles)
        smoothing = 0.5 * self.gamma if self.reflected else self.gamma
        point = self.prox(theta, free, smoothing, scales, state.warm, model)
        if self.theta_update == "gradient":
            gradients = self.gradients(state._replace(particles=point.x), model)
        images = mirror_images(theta, free, point.x, model) if self.reflected else None
        at_point = images is None or model.nonsmooth.finite
        particles = point.x if at_point else images
        if surrogate is not None and images is not None and at_point:
            particles = state.surrogate.balanced(free, point.x, time)
        return Move(
            theta=_trees.add(self.theta_step(theta, gradients.theta, scales), noise.theta),
            particles=particles,
            warm=point.warm,
            gradients=gradients,
            gap=point.gap,
            reflected=images,
            surrogate=surrogate,
            penalty=point.penalty if at_point else None,
        )

    def _resolved(self, unit: PyTree, model: Model, theta: PyTree, x: PyTree) -> PyTree:
        """Units of time so short that polynomials can follow a flow that has no eigenbasis."""
        stiffness = model.smooth.stiffness(theta)
        if stiffness is None or model.smooth.surrogate(theta, x) is not None:
            return unit
        longest = LONGEST_EXPONENT / (self.gamma * stiffness.astype(self.gamma.dtype))
        return jax.tree.map(lambda own: jnp.minimum(own, longest.astype(own.dtype)), unit)

    def alike(self, fine: State, coarse: State) -> State:
        # One surrogate for both: with two, their paths and their biases would differ by them.
        if coarse.surrogate is None:
            return fine
        return fine._replace(surrogate=dataclasses.replace(coarse.surrogate, held=True))


def _has_flow(model: Model, theta: PyTree, particles: PyTree) -> bool:
    """Whether the exact flow of the likelihood is known, and suits the prior.

    Near a constraint the step must be shorter than the layer in which the data press x against it,
    which a surrogate measures. Where the Hessian is a small matrix without a known eigenbasis, the
    surrogate has that basis, and needs no polynomials.
    """
    x = _trees.first(particles)
    known = jax.eval_shape(model.smooth.surrogate, theta, x) is not None
    if _trees.size(x) <= LARGEST_MATRIX and not (known and model.nonsmooth.finite):
        return False
    return jax.eval_shape(model.smooth.flow, theta, x, _trees.ones_per_leaf(x), x) is not None


def _typical(model: Model, theta: PyTree, x: PyTree) -> Array:
    """The inverse of the likelihood's mean curvature, for a prior without a length of its own.

    Of its largest, if that is all that is known.
    """
    basis = model.smooth.surrogate(theta, x)
    if basis is None:
        largest = model.smooth.stiffness(theta)
        one = jnp.ones((), _trees.dtype(x))
        return one if largest is None else 1 / largest.astype(one.dtype)
    return 1 / jnp.mean(basis.eigenvalues)


def _exact_flow(model: Model, theta: PyTree, start: PyTree, time: PyTree, noise: Noise) -> PyTree:
    """The particles after `time`: vectors together, which makes their rotations one product.

    Images one after the other: a Fourier transform fills a core, and works in its cache.
    """
    if _trees.first(start).ndim <= 1:
        flow = jax.vmap(model.smooth.flow, in_axes=(None, 0, None, 0))
        return flow(theta, start, time, noise.particles)

    def one(i: Array, particles: Array) -> Array:
        x, push = (
            jax.lax.dynamic_index_in_dim(leaf, i, keepdims=False)
            for leaf in (particles, noise.particles)
        )
        after = model.smooth.flow(theta, x, time, push)
        return jax.lax.dynamic_update_index_in_dim(particles, after, i, axis=0)

    return jax.lax.fori_loop(0, _trees.num_particles(start), one, start)
