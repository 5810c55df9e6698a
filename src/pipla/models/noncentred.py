r"""Non-centred models: $x = T_\theta(z)$ with z independent of theta a priori.

In a centred model theta and x are stiffly coupled through the prior, and theta moves slowly. With
$x = \theta + z$ or $x = e^{-r\theta} z$ the non-smooth term becomes a plain convex one in z alone,
theta moves into the smooth part, and what the change of variables adds to the potential is

$$ g_2(\theta, T_\theta(z)) - \log|\det T_\theta'(z)| = h(z) + \text{remainder}(\theta), $$

$h$ the plain term and the remainder 0 for a normalised prior: the marginal likelihood of theta is
the same function as before (of $|\theta|$ for the uniform density, where $x = \theta z$).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import _trees, prox
from pipla.models.likelihoods import Likelihood
from pipla.models.likelihoods.base import Forwarding
from pipla.models.model import Model, require_model
from pipla.models.reparametrisations import (
    At,
    Bijector,
    Chain,
    ExpScale,
    Identity,
    Offset,
    Scale,
    Shift,
)
from pipla.prox.base import Term
from pipla.prox.combine import On, Sum, Translated


@functools.singledispatch
def noncentred_term(term: Term) -> tuple[Bijector, Term]:
    """The change of variables for a term, and the plain term in z. Register your own terms here."""
    if term.uses_theta:
        raise TypeError(
            f"nonsmooth: no non-centred form is known for {type(term).__name__}; register one with "
            "`pipla.models.noncentred.noncentred_term.register`."
        )
    return Identity(), term


@noncentred_term.register
def _(term: prox.LaplaceLocation) -> tuple[Bijector, Term]:
    return Shift(), prox.L1(1 / term.scale)


@noncentred_term.register
def _(term: prox.GaussianLocation) -> tuple[Bijector, Term]:
    return Shift(), prox.SquaredL2(1 / term.scale**2)


@noncentred_term.register
def _(term: prox.UniformBox) -> tuple[Bijector, Term]:
    return Scale(), prox.Box(-1.0, 1.0)


@noncentred_term.register
def _(term: prox.UniformLogBox) -> tuple[Bijector, Term]:
    return ExpScale(jnp.asarray(-1.0)), prox.Box(-1.0, 1.0)


@noncentred_term.register
def _(term: prox.Strength) -> tuple[Bijector, Term]:
    homogeneous = prox.SoftThreshold | prox.TotalVariation | prox.SquaredL2
    if not isinstance(term.regulariser, homogeneous):
        raise TypeError(
            f"nonsmooth: the strength of {type(term.regulariser).__name__} has no non-centred form "
            "that is known, because it is not known to be homogeneous, R(c x) = |c|^k R(x)."
        )
    # With R of homogeneity k, e^{r theta} R(x) = R(e^{r theta/k} x).
    power = term.regulariser.homogeneity
    degrees = term.degrees if term.normalised else jnp.zeros(())
    return ExpScale(term.rate / power, None if degrees is None else power * degrees), (
        term.regulariser
    )


@noncentred_term.register
def _(term: Translated) -> tuple[Bijector, Term]:
    bijector, plain = noncentred_term(term.term)
    return Offset(bijector, term.shift), plain


@noncentred_term.register
def _(term: On) -> tuple[Bijector, Term]:
    bijector, plain = noncentred_term(term.term)
    return At(bijector, term), On(plain, x=term.x)


@noncentred_term.register
def _(term: Sum) -> tuple[Bijector, Term]:
    bijectors, plains = zip(*map(noncentred_term, term.terms), strict=True)
    return Chain(bijectors), Sum(plains)


def has_noncentred_form(term: Term) -> bool:
    """Whether `noncentred_term` knows one."""
    try:
        noncentred_term(term)
    except TypeError:
        return False
    return True


class Reparametrised(Forwarding):
    r"""$g_1(\theta, T_\theta(z))$ plus the remainder of the change of variables.

    The remainder belongs to the prior: it is neither taken apart nor scaled.
    """

    bijector: Bijector
    term: Term  # in x, from which the bijector takes theta

    def __call__(self, theta: PyTree, z: PyTree, data: PyTree = None) -> Float[Array, ""]:
        x = self.bijector.forward(theta, z)
        return self.likelihood(theta, x, data) + self.bijector.remainder(theta, z)

    def noncentring(self) -> tuple[Bijector, Term]:
        return self.bijector, self.term

    # In z, and with theta in the change of variables, these are others.
    bounded = Likelihood.bounded
    uses_theta = Likelihood.uses_theta
    flow = Likelihood.flow
    resolvent = Likelihood.resolvent
    stiffness = Likelihood.stiffness
    closed_form = Likelihood.closed_form
    gibbs = Likelihood.gibbs
    interwoven = Likelihood.interwoven
    surrogate = Likelihood.surrogate


class Metric(eqx.Module):
    """The metric of a bijector as a function, for `Model.metric`."""

    bijector: Bijector

    def __call__(self, theta: PyTree, z: PyTree) -> PyTree:
        return self.bijector.metric(theta, z)


class LongestStep(eqx.Module):
    """The longest step in z as a function, for `Model.longest_step`."""

    bijector: Bijector
    plain: Term

    def __call__(self, theta: PyTree, z: PyTree) -> PyTree:
        return self.bijector.longest_step(self.plain.time_unit(None, z))


class BackToX(eqx.Module):
    """The map back: `back(theta, z)` is x for one particle; `back.inverse(theta, x)` is z."""

    bijector: Bijector

    def __call__(self, theta: PyTree, z: PyTree) -> PyTree:
        return self.bijector.forward(theta, z)

    def inverse(self, theta: PyTree, x: PyTree) -> PyTree:
        """From x to z."""
        return self.bijector.inverse(theta, x)


class NonCentred(NamedTuple):
    """An ordinary model in z, and the map back to x."""

    model: Model
    back: BackToX

    def start(self, theta: PyTree, particles: PyTree) -> PyTree:
        """Particles for z from particles for x."""
        learned, fixed = _trees.split(particles)

        def one(x: PyTree) -> PyTree:
            return _trees.split(self.back.inverse(theta, _trees.combine(x, fixed)))[0]

        return _trees.combine(jax.vmap(one)(learned), fixed)


def noncentred(model: Model) -> NonCentred:
    """The model written in z, with theta in its smooth part and a plain convex prox.

    Example:
        >>> import jax.numpy as jnp, pipla
        >>> model, back = pipla.noncentred(pipla.problems.toy().model)
        >>> type(model.nonsmooth).__name__, back(jnp.asarray(-3.0), jnp.asarray(1.0)).item()
        ('L1', -2.0)

    Start the particles at `noncentred(model).start(theta, particles)`, and run with
    `Save(quantity=back)` to get the moments of x.
    """
    require_model(model)
    bijector, plain = noncentred_term(model.nonsmooth)
    in_z = Model(
        Reparametrised(model.smooth, bijector, model.nonsmooth),
        plain,
        model.data,
        metric=Metric(bijector),
        longest_step=LongestStep(bijector, plain),
    )
    return NonCentred(in_z, BackToX(bijector))
