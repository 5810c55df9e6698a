r"""The observed information of theta, from the particles of one run (Louis 1982).

With $U$ the potential, smooth in theta for fixed x,

$$ I = -\nabla^2 \log p_\theta(y) = E[\nabla_\theta^2 U] - \operatorname{Cov}[\nabla_\theta U] $$

over the posterior of x. A strength is smooth in theta as it stands. A location is not: the
almost-everywhere second derivative of $|x - \theta|$ is 0, and the identity would give nonsense.
There are two ways out, and both are taken: non-centred coordinates, in which theta is in the
likelihood only, and $|x - \theta|$ rounded off over a part of the posterior's width. The first is
accurate where the prior dominates, the second where the data do; elsewhere the two terms of the
identity nearly cancel. Of the two answers, the one with less cancellation is the better.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from pipla import _trees
from pipla.models.model import Model
from pipla.models.noncentred import noncentred_term
from pipla.prox.base import Term
from pipla.prox.combine import On, Sum, Translated
from pipla.prox.location import GaussianLocation, LaplaceLocation
from pipla.prox.strength import Strength

#: Over which part of the posterior's sd a kink is rounded off.
ROUNDED = 0.25
#: Eigenvalues of the scaled information below this are 0: a flat direction.
FLAT = 1e-3


class Scores(NamedTuple):
    """What the particles of one step say of theta's potential, in one of its forms."""

    covariance: Float[np.ndarray, "k k"]
    hessian: Float[np.ndarray, "k k"]

    def averaged(self, other: Scores) -> Scores:
        """The mean of both."""
        return Scores((self.covariance + other.covariance) / 2, (self.hessian + other.hessian) / 2)


def scores_of(model: Model, theta: PyTree, particles: PyTree) -> list[Scores]:
    """What these particles say of theta, in each form that is known."""
    each = _scores_in_each_form(model, theta, particles)
    return [Scores(*(np.asarray(matrix, np.float64) for matrix in form)) for form in each]


@_trees.bounded_jit()
def _scores_in_each_form(
    fixed: Model, arrays: Model, theta: PyTree, particles: PyTree
) -> list[tuple[Array, Array]]:
    model = eqx.combine(fixed, arrays)
    terms = model.nonsmooth.terms if isinstance(model.nonsmooth, Sum) else (model.nonsmooth,)
    inner = [_inner(term) for term in terms]
    is_location = [isinstance(term, LaplaceLocation | GaussianLocation) for term in inner]
    forms = [tuple(not _is_smooth(term) for term in inner)]
    if any(is_location):
        forms.append(
            tuple(move and not own for move, own in zip(forms[0], is_location, strict=True))
        )
    spread = jax.tree.map(lambda leaf: jnp.std(leaf, axis=0), particles)
    return [_scores(model, terms, form, theta, particles, spread) for form in forms]


def information(scores: list[list[Scores]]) -> Float[np.ndarray, "k k"]:
    """The observed information from the scores of several steps: the form that cancels least."""
    found = []
    for form in zip(*scores, strict=True):
        hessian = np.mean([each.hessian for each in form], axis=0)
        whole = hessian - np.mean([each.covariance for each in form], axis=0)
        left = np.diagonal(whole) / np.maximum(np.abs(np.diagonal(hessian)), 1e-300)
        found.append((float(np.min(left)), whole))
    return max(found, key=lambda pair: pair[0])[1]


def covariance_of(information: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """The inverse; infinite variances in the parts that have no information of their own."""
    scale = np.sqrt(np.abs(np.diagonal(information)))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(information / scale[:, None] / scale)
    known = values > FLAT
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    flat = (vectors[:, ~known] ** 2).sum(axis=1) > 0.01
    inverse[flat], inverse[:, flat] = 0.0, 0.0
    inverse[flat, flat] = np.inf
    return inverse / scale[:, None] / scale


def _scores(
    model: Model,
    terms: tuple[Term, ...],
    moves: tuple[bool, ...],
    theta: PyTree,
    particles: PyTree,
    spread: PyTree,
) -> tuple[Array, Array]:
    """Covariance of the score and mean Hessian; the terms that `moves` names are non-centred."""
    flat, unravel = ravel_pytree(theta)

    def potential(moved: Array, x: PyTree) -> Array:
        here, there = unravel(flat), unravel(moved)
        value = jnp.zeros((), flat.dtype)
        for term, moving in zip(terms, moves, strict=True):
            if moving:  # z stays, x moves along
                bijector = noncentred_term(term)[0]
                z = bijector.inverse(here, x)
                x = bijector.forward(there, z)
                value = value + bijector.remainder(there, z)
        for term, moving in zip(terms, moves, strict=True):
            if not moving and term.uses_theta:
                value = value + _rounded_value(term, there, x, spread)
        return value + model.smooth_value(there, x)

    gradients = jax.vmap(jax.grad(potential), in_axes=(None, 0))(flat, particles)
    hessians = jax.vmap(jax.hessian(potential), in_axes=(None, 0))(flat, particles)
    centred = gradients - jnp.mean(gradients, axis=0, keepdims=True)
    covariance = centred.T @ centred / (len(gradients) - 1)
    return covariance, jnp.mean(hessians, axis=0)


def _rounded_value(term: Term, theta: PyTree, x: PyTree, spread: PyTree) -> Array:
    """The value of a term, with the kink of a location rounded off (Huber)."""
    inner = _inner(term)
    if not isinstance(inner, LaplaceLocation):
        return term.value(theta, x)
    while isinstance(term, On | Translated):
        if isinstance(term, On):
            theta, x = _trees.part("theta", theta, term.theta), _trees.part("x", x, term.x)
            spread = _trees.part("x", spread, term.x)
        else:
            x = jax.tree.map(jnp.subtract, x, term.shift)
        term = term.term
    width = jnp.maximum(ROUNDED * spread, jnp.finfo(x.dtype).tiny)
    distance = jnp.abs(x - theta)
    rounded = jnp.where(distance < width, distance**2 / (2 * width) + width / 2, distance)
    return jnp.sum(rounded) / inner.scale.astype(x.dtype)


def _inner(term: Term) -> Term:
    while isinstance(term, On | Translated):
        term = term.term
    return term


def _is_smooth(term: Term) -> bool:
    """Whether the value is a smooth function of theta."""
    return not term.uses_theta or isinstance(term, Strength)
