r"""The observed information of theta, from the particles of one run (Louis 1982).

With $U$ the potential, smooth in theta for fixed x,

$$ I = -\nabla^2 \log p_\theta(y) = E[\nabla_\theta^2 U] - \operatorname{Cov}[\nabla_\theta U] $$

over the posterior of x, in any coordinates that keep the data's density. Where the two terms nearly
cancel, their difference is mostly noise and bias of the step: as theta stands where the prior
dominates, and in non-centred coordinates, $x = T_\theta(z)$ with theta in the likelihood only,
where the data do. Both are ends of one family. For a strength of $R$ on d elements, with
$x = e^{-wr\theta} z$, and for a location, with $x = w\theta + z$, the score is
$w s_1 + (1-w) s_2$ and the Hessian $w^2 H_1 + (1-w)^2 H_2$, where 1 is the non-centred end. Of some
weights, the one with the least cancellation is taken.

A location is not smooth as it stands: the almost-everywhere second derivative of $|x - \theta|$ is
0, and the identity would give nonsense. There, $|x - \theta|$ is rounded off over a part of the
posterior's width.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from pipla import _trees
from pipla.diagnostics import monte_carlo_error
from pipla.models.model import Model
from pipla.models.noncentred import has_noncentred_form, noncentred_term
from pipla.prox.base import Term

#: Over which part of the posterior's sd a kink is rounded off.
ROUNDED = 0.25
#: Eigenvalues of the scaled information below this are 0: a flat direction.
FLAT = 1e-3
#: The largest standard error that is one, in units of theta: factors e of a scale.
WIDEST = 5.0
#: How far off variances over the particles may be, relative to them: twice that of their sds.
VARIANCES = 0.1
#: The weights w of the non-centred form that are tried for locations and strengths.
WEIGHTS = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1, 0.0)


class Scores(NamedTuple):
    """What the particles of one step say of theta's potential, in one of its forms."""

    covariance: Float[np.ndarray, "k k"]
    hessian: Float[np.ndarray, "k k"]


def scores_of(model: Model, theta: PyTree, particles: PyTree) -> list[Scores]:
    """What these particles say of theta, in each form that is known."""
    each = _scores_in_each_form(model, theta, particles)
    return [Scores(*(np.asarray(matrix, np.float64) for matrix in form)) for form in each]


@_trees.bounded_jit()
def _scores_in_each_form(
    fixed: Model, arrays: Model, theta: PyTree, particles: PyTree
) -> list[tuple[Array, Array]]:
    model = eqx.combine(fixed, arrays)
    terms = model.nonsmooth.summands()
    moves, in_both = zip(*map(_forms, terms), strict=True)
    spread = jax.tree.map(lambda leaf: jnp.std(leaf, axis=0), particles)
    first = _derivatives(model, terms, moves, False, theta, particles, spread)
    if not any(in_both) and model.scales is None:
        return [_scores(*first)]
    stays = tuple(move and not both for move, both in zip(moves, in_both, strict=True))
    second = _derivatives(model, terms, stays, True, theta, particles, spread)
    own = jax.tree.map(jnp.zeros_like, theta)
    for term, mine in zip(terms, in_both, strict=True):
        for path, _ in term.reach() if mine else ():
            ones = jax.tree.map(jnp.ones_like, _trees.part("theta", own, path))
            own = _trees.put_part(own, path, ones)
    mask = ravel_pytree(own)[0]
    if model.scales is not None:
        mask = jnp.maximum(mask, model.scales.own.astype(mask.dtype))
    return [_scores(*_mixed(weight, mask, first, second)) for weight in WEIGHTS]


def _forms(term: Term) -> tuple[bool, bool]:
    """Whether a term has a non-centred form, and whether theta may also stay as it stands.

    It may not in a constraint, whose value jumps as theta moves.
    """
    moves = term.uses_theta and has_noncentred_form(term)
    return moves, moves and term.finite


def _mixed(
    weight: float, mask: Array, first: tuple[Array, Array], second: tuple[Array, Array]
) -> tuple[Array, Array]:
    """The derivatives at weight w; `mask` is 1 in the parts of theta that have both forms."""
    one = jnp.where(mask > 0, weight, 1.0)
    two = jnp.where(mask > 0, 1 - weight, 0.0)
    gradients = one[None] * first[0] + two[None] * second[0]
    # Between such a part and another one of theta the Hessian is linear in the weight.
    hessian = one[:, None] * one[None] * first[1] + two[:, None] * two[None] * second[1]
    mixed = (mask[:, None] > 0) ^ (mask[None] > 0)
    linear = weight * first[1] + (1 - weight) * second[1]
    return gradients, jnp.where(mixed, linear, hessian)


class Information(NamedTuple):
    """The observed information, and how far off it may be."""

    matrix: Float[np.ndarray, "k k"]
    hessian: Float[np.ndarray, "k k"]  # from which the covariance of the score was subtracted
    each: Float[np.ndarray, "t k k"]  # at every look

    def bound(self, direction: Float[np.ndarray, " k"]) -> float:
        """How large the information along a direction may be, by noise and bias of this run."""
        along = np.einsum("tij,i,j->t", self.each, direction, direction)
        noise = monte_carlo_error(along[:, None])[0] if len(along) > 1 else np.inf
        bias = VARIANCES * abs(direction @ self.hessian @ direction)
        return float(abs(direction @ self.matrix @ direction) + 3 * noise + bias)


def information(scores: list[list[Scores]]) -> Information:
    """The observed information from the scores of several steps: the form that cancels least."""
    found = []
    for form in zip(*scores, strict=True):
        each = np.asarray([one.hessian - one.covariance for one in form])
        hessian, whole = np.mean([one.hessian for one in form], axis=0), np.mean(each, axis=0)
        left = np.diagonal(whole) / np.maximum(np.abs(np.diagonal(hessian)), 1e-300)
        found.append((float(np.min(left)), Information(whole, hessian, each)))
    return max(found, key=lambda pair: pair[0])[1]


def covariance_of(
    information: Float[np.ndarray, "k k"], units: Float[np.ndarray, " k"] | float = np.inf
) -> Float[np.ndarray, "k k"]:
    """The inverse; infinite variances in the parts that have no information of their own.

    Nor has a part whose standard error is several of its `units`: a scale that may as well be
    thousands of times larger or smaller.
    """
    scale, values, vectors = _spectrum(information)
    known = values > FLAT
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T / scale[:, None] / scale
    flat = (vectors[:, ~known] ** 2).sum(axis=1) > 0.01
    flat |= np.sqrt(np.diagonal(inverse)) > WIDEST * units
    inverse[flat], inverse[:, flat] = 0.0, 0.0
    inverse[flat, flat] = np.inf
    return inverse


def unmeasured(
    information: Information, lengths: Float[np.ndarray, " k"]
) -> Bool[np.ndarray, " k"]:
    """The parts without information of which nothing says that the likelihood is flat there.

    Their information is lost between two large numbers, or it is negative, so that something is
    wrong with it. A likelihood is flat along a direction if the most that its information can be
    leaves a standard error of several lengths of theta.
    """
    scale, values, vectors = _spectrum(information.matrix)
    found = np.zeros(len(scale), bool)
    for vector in vectors[:, values <= FLAT].T:
        direction = vector / scale
        longest = np.max(np.abs(direction) / (WIDEST * lengths))
        if information.bound(direction / longest) > 1:
            found |= vector**2 > 0.01
    return found


def _spectrum(
    information: Float[np.ndarray, "k k"],
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, "k k"]]:
    """The units in which its diagonal is ±1, and there its eigenvalues and eigenvectors."""
    scale = np.sqrt(np.abs(np.diagonal(information)))
    scale = np.where(scale > 0, scale, 1.0)
    return scale, *np.linalg.eigh(information / scale[:, None] / scale)


def _scores(gradients: Array, hessian: Array) -> tuple[Array, Array]:
    """The covariance of the score over the particles, and the mean Hessian."""
    centred = gradients - jnp.mean(gradients, axis=0, keepdims=True)
    return centred.T @ centred / (len(gradients) - 1), hessian


def _derivatives(
    model: Model,
    terms: tuple[Term, ...],
    moves: tuple[bool, ...],
    scales_stay: bool,
    theta: PyTree,
    particles: PyTree,
    spread: PyTree,
) -> tuple[Array, Array]:
    """The score of each particle and the mean Hessian.

    Terms that `moves` names are non-centred. Scales that the smooth part hides are so as the model
    stands; with `scales_stay`, what they scale is held fixed instead.
    """
    flat, unravel = ravel_pytree(theta)
    width = _trees.scale(ROUNDED, spread)
    scales = model.scales if scales_stay else None

    def potential(moved: Array, x: PyTree) -> Array:
        here, there = unravel(flat), unravel(moved)
        value = jnp.zeros((), flat.dtype)
        if scales is not None:
            x = scales.moved(moved - flat, x)
            value = value + scales.log_volume(moved - flat)
        for term, moving in zip(terms, moves, strict=True):
            if moving:  # z stays, x moves along
                bijector = noncentred_term(term)[0]
                z = bijector.inverse(here, x)
                x = bijector.forward(there, z)
                value = value + bijector.remainder(there, z)
        for term, moving in zip(terms, moves, strict=True):
            if not moving and (term.uses_theta or scales is not None):
                value = value + term.rounded_value(there, x, width)
        return value + model.smooth_value(there, x)

    gradients = jax.vmap(jax.grad(potential), in_axes=(None, 0))(flat, particles)
    hessians = jax.vmap(jax.hessian(potential), in_axes=(None, 0))(flat, particles)
    return gradients, jnp.mean(hessians, axis=0)
