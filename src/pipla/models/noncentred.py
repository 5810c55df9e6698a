r"""Non-centred forms: write $x = T_\theta(z)$ so that the prior of z does not know theta.

In a centred model theta and x are stiffly coupled through the prior, and theta crawls. With
$x = \theta + z$ or $x = e^{-r\theta} z$ the non-smooth term becomes a plain convex one in z alone,
theta moves into the smooth part, and what the change of variables adds to the potential is

$$ g_2(\theta, T_\theta(z)) - \log|\det T_\theta'(z)| = h(z) + \text{rest}(\theta), $$

$h$ the plain term and the rest 0 for a normalised prior: the marginal likelihood of theta is the
same function as before (of $|\theta|$ for the uniform density: $x = \theta z$ knows no sign).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import prox
from pipla.models.model import Model, Smooth
from pipla.models.reparametrisations import (
    Each,
    Form,
    Moved,
    Multiply,
    OnPart,
    Same,
    Shift,
    Stretch,
)
from pipla.prox.base import Term
from pipla.prox.combine import On, Sum, Translated


@functools.singledispatch
def noncentred_term(term: Term) -> tuple[Form, Term]:
    """The change of variables for a term, and the plain term in z. Register your own terms here."""
    if term.uses_theta:
        raise TypeError(
            f"nonsmooth: no non-centred form is known for {type(term).__name__}; register one with "
            "`pipla.reparametrise.noncentred_term.register`."
        )
    return Same(), term


@noncentred_term.register
def _(term: prox.LaplaceLocation) -> tuple[Form, Term]:
    return Shift(), prox.L1(1 / term.scale)


@noncentred_term.register
def _(term: prox.GaussianLocation) -> tuple[Form, Term]:
    return Shift(), prox.SquaredL2(1 / term.scale**2)


@noncentred_term.register
def _(term: prox.UniformBox) -> tuple[Form, Term]:
    return Multiply(), prox.Box(-1.0, 1.0)


@noncentred_term.register
def _(term: prox.UniformLogBox) -> tuple[Form, Term]:
    return Stretch(jnp.asarray(-1.0)), prox.Box(-1.0, 1.0)


@noncentred_term.register
def _(term: prox.Strength) -> tuple[Form, Term]:
    if not isinstance(term.regulariser, prox.SoftThreshold | prox.TotalVariation):
        raise TypeError(
            f"nonsmooth: the strength of {type(term.regulariser).__name__} has no non-centred form "
            "that is known, because it is not known to be homogeneous, R(c x) = |c| R(x)."
        )
    degrees = term.degrees if term.normalised else jnp.zeros(())
    return Stretch(term.rate, degrees), term.regulariser


@noncentred_term.register
def _(term: Translated) -> tuple[Form, Term]:
    form, plain = noncentred_term(term.term)
    return Moved(form, term.shift), plain


@noncentred_term.register
def _(term: On) -> tuple[Form, Term]:
    form, plain = noncentred_term(term.term)
    return OnPart(form, term), On(plain, x=term.x)


@noncentred_term.register
def _(term: Sum) -> tuple[Form, Term]:
    forms, plains = zip(*map(noncentred_term, term.terms), strict=True)
    return Each(forms), Sum(plains)


class NonCentredSmooth(eqx.Module):
    r"""$g_1(\theta, T_\theta(z)) + \text{rest}(\theta)$."""

    smooth: Smooth | None
    form: Form

    def __call__(self, theta: PyTree, z: PyTree, data: PyTree) -> Float[Array, ""]:
        rest = self.form.rest(theta, z)
        if self.smooth is None:
            return rest + jnp.zeros((), jnp.result_type(*jax.tree.leaves(z)))
        return self.smooth(theta, self.form.to_x(theta, z), data) + rest


class Metric(eqx.Module):
    """The form's metric as a function of its own, for `Model.metric`."""

    form: Form

    def __call__(self, theta: PyTree, z: PyTree) -> PyTree:
        return self.form.metric(theta, z)


class BackToX(eqx.Module):
    """The map back: `back(theta, z)` is x for one particle; `back.inverse(theta, x)` is z."""

    form: Form

    def __call__(self, theta: PyTree, z: PyTree) -> PyTree:
        return self.form.to_x(theta, z)

    def inverse(self, theta: PyTree, x: PyTree) -> PyTree:
        """From x to z."""
        return self.form.to_z(theta, x)


class NonCentred(NamedTuple):
    """An ordinary model in z, and the map back to x."""

    model: Model
    back: BackToX


def noncentred(model: Model) -> NonCentred:
    """The model written in z, with theta in its smooth part and a plain convex prox.

    Example:
        >>> import jax.numpy as jnp, pipla
        >>> model, back = pipla.noncentred(pipla.problems.toy().model)
        >>> type(model.nonsmooth).__name__, back(jnp.asarray(-3.0), jnp.asarray(1.0)).item()
        ('L1', -2.0)

    Start the particles at `jax.vmap(back.inverse, (None, 0))(theta, x)`, and run with
    `Save(quantity=back)` to get the moments of x.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a pipla.Model, got {type(model).__name__}.")
    form, plain = noncentred_term(model.nonsmooth)
    smooth = NonCentredSmooth(model.smooth, form)
    return NonCentred(Model(smooth, plain, model.data, metric=Metric(form)), BackToX(form))
