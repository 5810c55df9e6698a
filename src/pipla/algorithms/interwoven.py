r"""Theta's interwoven move: the centred closed form, then a Newton step in non-centred coordinates.

Where the data dominate, x hardly feels theta, and theta is best set by the particles as they are:
the closed form of the centred model, such as $t = d/\overline{R(X)}$ for a strength. Where the
prior dominates that crawls, because x follows theta; there theta is best learned with
$z = T_\theta^{-1}(x)$ held fixed, the particles moving along. Each is slow where the other is fast,
and one after the other is fast in both (Yu and Meng 2011).

The Newton step is on $F(\theta) = \frac1N \sum_i g_1(\theta, T_\theta(z_i)) + \text{remainder}$,
half a step long, with a curvature averaged over steps and a bounded move. What theta does in the
likelihood alone (a noise level, anything) is learned by it, too.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from pipla._decompositions import eigh
from pipla.models.model import Model
from pipla.models.noncentred import Reparametrised, has_noncentred_form, noncentred_term
from pipla.models.reparametrisations import Bijector, Chain, Identity
from pipla.prox.base import Term

#: The most numbers in theta: their curvature is a matrix.
LARGEST_THETA = 200
#: The particles that the curvature is taken from.
MOST_PARTICLES = 4
#: The part of a Newton step.
DAMPING = 0.5
#: The steps over which the curvature is averaged.
MEMORY = 20
#: The first steps, in which theta waits for the particles.
WAIT = 20


class Curvature(NamedTuple):
    """Running averages over steps of the gradient and the Hessian of $F$."""

    gradient: Float[Array, " k"]
    hessian: Float[Array, "k k"]
    steps: Int[Array, ""]

    @classmethod
    def unknown(cls, theta: PyTree) -> Curvature:
        """Nothing measured yet."""
        flat = ravel_pytree(theta)[0]
        if flat.size > LARGEST_THETA:
            raise ValueError(
                f"theta has {flat.size} numbers, and theta_update='interwoven' takes at most "
                f"{LARGEST_THETA}, because their curvature is a matrix; use 'gradient' with a "
                "theta_optimizer."
            )
        square = jnp.zeros((flat.size, flat.size), flat.dtype)
        return cls(jnp.zeros_like(flat), square, jnp.zeros((), jnp.int32))

    def averaged(self, gradient: Array, hessian: Array) -> Curvature:
        """With the values of one more step."""
        share = jnp.maximum(1 / (self.steps + 1), 1 / MEMORY).astype(gradient.dtype)
        return Curvature(
            self.gradient + share * (gradient - self.gradient),
            self.hessian + share * (hessian - self.hessian),
            self.steps + 1,
        )

    def newton(self, gradient: Array, longest: Array) -> Array:
        """A damped, bounded Newton step, downhill whatever the signs of the curvature."""
        # A steady gradient is far from the answer, where the curvature says little.
        damped = self.hessian + jnp.diag(jnp.abs(self.gradient) / longest)
        size = jnp.sqrt(jnp.abs(jnp.diagonal(damped)))
        size = jnp.where(size > 0, size, 1.0)
        if size.size == 1:  # which costs a program with a decomposition less
            return jnp.clip(-DAMPING * gradient / size**2, -longest / 2, longest / 2)
        values, vectors = eigh(damped / size[:, None] / size[None])
        values = jnp.maximum(jnp.abs(values), 1e-3)
        step = -DAMPING * (vectors @ ((vectors.T @ (gradient / size)) / values)) / size
        return jnp.clip(step, -longest / 2, longest / 2)


class Interwoven(NamedTuple):
    """Where theta went, and what went along."""

    theta: PyTree
    particles: PyTree
    images: PyTree  # mirror images, or `None`
    curvature: Curvature


def interweave(
    model: Model,
    theta: PyTree,
    particles: PyTree,
    penalty: PyTree,
    images: PyTree,
    curvature: Curvature,
) -> Interwoven:
    """One move of theta for these particles, which move along with it.

    `penalty` is that of the `Solution` whose points they are, or `None`.
    """
    bijector = _bijector(model.nonsmooth)
    longest = longest_moves(model, theta)
    waiting = curvature.steps < WAIT

    # Infinite where all particles are at the kink; the bound makes it a step.
    centred = _closed_form(model, theta, particles, penalty)
    centred = jax.tree.map(
        lambda new, old, most: jnp.where(
            waiting | jnp.isnan(new), old, old + jnp.clip(new - old, -most, most)
        ),
        centred,
        theta,
        longest,
    )
    if model.scales is not None:
        centred, particles, images = _with_x_fixed(
            model, centred, particles, images, longest, waiting
        )

    coordinates = jax.vmap(bijector.inverse, in_axes=(None, 0))(centred, particles)
    gradient, hessian = _derivatives(model, bijector, centred, coordinates)
    after = curvature.averaged(gradient, hessian)
    flat, unravel = ravel_pytree(centred)
    step = after.newton(gradient, ravel_pytree(longest)[0])
    moved = unravel(jnp.where(waiting, flat, flat + step))

    forward = jax.vmap(bijector.forward, in_axes=(None, 0))
    if images is not None:
        images = forward(moved, jax.vmap(bijector.inverse, in_axes=(None, 0))(centred, images))
    return Interwoven(moved, forward(moved, coordinates), images, after)


def _with_x_fixed(
    model: Model,
    theta: PyTree,
    particles: PyTree,
    images: PyTree,
    longest: PyTree,
    waiting: Array,
) -> tuple[PyTree, PyTree, PyTree]:
    """The closed form of scales that are hidden in the smooth part, whose z moves along."""
    flat, unravel = ravel_pytree(theta)
    most = ravel_pytree(longest)[0]
    step = jnp.clip(model.scales.best_step(model, theta, particles), -most, most)
    step = jnp.where(waiting | jnp.isnan(step), 0.0, step)
    move = jax.vmap(model.scales.moved, in_axes=(None, 0))
    return (
        unravel(flat + step),
        move(step, particles),
        images if images is None else move(step, images),
    )


def longest_moves(model: Model, theta: PyTree) -> PyTree:
    """For each leaf of theta, the longest safe step.

    Parts that no term uses may be anything: logarithms move by 1 at most, large numbers by half of
    themselves.
    """
    plain = jax.tree.map(lambda leaf: jnp.maximum(1.0, 0.5 * jnp.abs(leaf)), theta)
    return _longest(model, theta, plain)


def prior_units(model: Model, theta: PyTree) -> PyTree:
    """For each leaf of theta, the change that makes another prior: a factor e of its scale.

    Infinite in locations, which have no such unit, and in parts that no term uses.
    """
    nothing = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), theta)
    return _longest(model, theta, nothing)


def _longest(model: Model, theta: PyTree, otherwise: PyTree) -> PyTree:
    """For scales a factor e, and so on; `otherwise` for what is none."""
    if model.scales is not None:
        otherwise = model.scales.units(otherwise)
    return _bijector(model.nonsmooth).longest_move(theta, otherwise)


def _bijector(term: Term) -> Bijector:
    """The change of variables of each term that has one; the others stay centred."""
    if has_noncentred_form(term):
        return noncentred_term(term)[0]
    if term.summands()[0] is not term:
        return Chain(tuple(map(_bijector, term.summands())))
    if not term.has_closed_form:
        raise TypeError(
            f"theta_update='interwoven' needs a {type(term).__name__} with a closed-form theta or "
            "a non-centred form; use theta_update='prox' or 'gradient'."
        )
    return Identity()


def _closed_form(model: Model, theta: PyTree, particles: PyTree, penalty: PyTree) -> PyTree:
    """The best theta for the particles in those parts where there is a closed form."""
    best = model.smooth.closed_form(theta, particles)
    best = theta if best is None else best
    terms = model.nonsmooth.summands()
    penalties: tuple[PyTree, ...] = (penalty,)
    if terms[0] is not model.nonsmooth:
        penalties = penalty if isinstance(penalty, tuple) else (None,) * len(terms)
    for term, one in zip(terms, penalties, strict=True):
        if term.uses_theta and term.has_closed_form:
            best = term.closed_form_at(best, particles, one)
    return best


def _derivatives(
    model: Model, bijector: Bijector, theta: PyTree, coordinates: PyTree
) -> tuple[Array, Array]:
    """The gradient of $F$ over all particles, and its Hessian over a few."""
    likelihood = Reparametrised(model.smooth, bijector, model.nonsmooth)
    flat, unravel = ravel_pytree(theta)

    def mean(flat: Array, coordinates: PyTree) -> Array:
        one = jax.vmap(lambda z: likelihood(unravel(flat), z, model.data))
        return jnp.mean(one(coordinates))

    few = jax.tree.map(lambda leaf: leaf[:MOST_PARTICLES], coordinates)
    gradient = jax.grad(mean)(flat, coordinates)
    return gradient, jax.hessian(mean)(flat, few)
