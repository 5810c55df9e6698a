r"""The observed information of theta, from the particles of one run (Louis 1982).

With $U$ the potential, smooth in theta for fixed x,

$$ I = -\nabla^2 \log p_\theta(y) = E[\nabla_\theta^2 U] - \operatorname{Cov}[\nabla_\theta U] $$

over the posterior of x. A strength is smooth in theta as it stands. A location is not: the
almost-everywhere second derivative of $|x - \theta|$ is 0, and the identity would give nonsense.
There it is used in non-centred coordinates, in which theta is in the likelihood only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from pipla.models.model import Model
from pipla.models.noncentred import noncentred_term
from pipla.models.reparametrisations import Bijector
from pipla.prox.base import Term
from pipla.prox.combine import On, Sum, Translated
from pipla.prox.strength import Strength


class Scores(NamedTuple):
    """What the particles of one step say of theta's potential."""

    mean: Float[np.ndarray, " k"]
    covariance: Float[np.ndarray, "k k"]
    hessian: Float[np.ndarray, "k k"]


def score_function(model: Model) -> Callable[[PyTree, PyTree], Scores]:
    """A compiled function of theta and particles: mean score, its covariance, mean Hessian."""
    pieces = [_smooth_form(term) for term in _terms(model.nonsmooth)]

    @eqx.filter_jit
    def scores(model: Model, theta: PyTree, particles: PyTree) -> tuple[Array, Array, Array]:
        flat, unravel = ravel_pytree(theta)

        def potential(moved: Array, x: PyTree) -> Array:
            here, there = unravel(flat), unravel(moved)
            value = jnp.zeros((), flat.dtype)
            for _, bijector in pieces:
                if bijector is not None:  # z stays, x moves along
                    z = bijector.inverse(here, x)
                    x = bijector.forward(there, z)
                    value = value + bijector.remainder(there, z)
            for term, bijector in pieces:
                if bijector is None:
                    value = value + term.value(there, x)
            return value + model.smooth_value(there, x)

        gradients = jax.vmap(jax.grad(potential), in_axes=(None, 0))(flat, particles)
        hessians = jax.vmap(jax.hessian(potential), in_axes=(None, 0))(flat, particles)
        centred = gradients - jnp.mean(gradients, axis=0)
        covariance = centred.T @ centred / (len(gradients) - 1)
        return jnp.mean(gradients, axis=0), covariance, jnp.mean(hessians, axis=0)

    def as_numbers(theta: PyTree, particles: PyTree) -> Scores:
        return Scores(*(np.asarray(each, np.float64) for each in scores(model, theta, particles)))

    return as_numbers


def information(scores: list[Scores]) -> Float[np.ndarray, "k k"]:
    """The observed information from the scores of several steps."""
    hessian = np.mean([each.hessian for each in scores], axis=0)
    covariance = np.mean([each.covariance for each in scores], axis=0)
    return hessian - covariance


def covariance_of(information: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """The inverse; infinite where the information is not positive."""
    size = len(information)
    scale = np.sqrt(np.abs(np.diagonal(information)))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(information / scale[:, None] / scale)
    known = values > 1e-6
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    flat = (vectors[:, ~known] ** 2).sum(axis=1) > 1e-3
    inverse[np.ix_(flat, flat)] = np.where(np.eye(size, dtype=bool)[np.ix_(flat, flat)], np.inf, 0)
    return inverse / scale[:, None] / scale


def _terms(term: Term) -> tuple[Term, ...]:
    return term.terms if isinstance(term, Sum) else (term,)


def _smooth_form(term: Term) -> tuple[Term, Bijector | None]:
    """The term, and the change of variables in which theta is smooth; `None` if it is already."""
    inner = term
    while isinstance(inner, On | Translated):
        inner = inner.term
    if not term.uses_theta or isinstance(inner, Strength):
        return term, None
    return term, noncentred_term(term)[0]
