r"""Non-centred forms: write $x = T_\theta(z)$ so that the prior of z does not know theta.

In a centred model theta and x are stiffly coupled through the prior, and theta crawls. With
$x = \theta + z$ or $x = e^{-r\theta} z$ the non-smooth term becomes a plain convex one in z alone,
theta moves into the smooth part, and what the change of variables adds to the potential is

$$ g_2(\theta, T_\theta(z)) - \log|\det T_\theta'(z)| = h(z) + \text{rest}(\theta), $$

$h$ the plain term and the rest 0 for a normalised prior: the marginal likelihood of theta is the
same function as before.
"""

from __future__ import annotations

import abc
import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import prox
from pipla.model import Model, Smooth
from pipla.prox.base import Term
from pipla.prox.calculus import On, Sum, Translated, part, put_part


class Form(eqx.Module):
    r"""A change of variables: `to_x` is $T_\theta$, `to_z` its inverse, `rest` what is left over."""

    @abc.abstractmethod
    def to_x(self, theta: PyTree, z: PyTree) -> PyTree:
        """From z to x."""

    @abc.abstractmethod
    def to_z(self, theta: PyTree, x: PyTree) -> PyTree:
        """From x to z."""

    @abc.abstractmethod
    def rest(self, theta: PyTree, z: PyTree) -> Float[Array, ""] | float:
        """What the change of variables adds to the smooth potential."""

    @abc.abstractmethod
    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        r"""$(dz/dx)^2$ for each leaf of z: a step of $\gamma$ in x is one of $\gamma (dz/dx)^2$ in z.

        With it the stiffness that a step meets is that of x, and does not grow with theta.
        """


class Exact(Form):
    """A form whose Jacobian cancels against the prior's normaliser: nothing is left over."""

    def rest(self, theta: PyTree, z: PyTree) -> float:
        return 0.0


class Shift(Exact):
    r"""$x = \theta + z$."""

    def to_x(self, theta: Array, z: Array) -> Array:
        return theta + z

    def to_z(self, theta: Array, x: Array) -> Array:
        return x - theta

    def metric(self, theta: Array, z: Array) -> Array:
        return jnp.ones((), z.dtype)


class Stretch(Form):
    r"""$x = e^{-r \theta} z$ for a term $e^{r\theta} R(x)$ with $R$ homogeneous.

    The Jacobian gives $+ r d \theta$ for the d elements of x, which cancels against the normaliser
    $- r d' \theta$ of the prior where there is one: $d' = d$ unless the term says otherwise.
    """

    rate: Array
    degrees: Array | None = None  # d'; `None` for d

    def to_x(self, theta: Array, z: Array) -> Array:
        return jnp.exp(-self.rate.astype(z.dtype) * theta) * z

    def to_z(self, theta: Array, x: Array) -> Array:
        return jnp.exp(self.rate.astype(x.dtype) * theta) * x

    def rest(self, theta: Array, z: Array) -> Float[Array, ""] | float:
        if self.degrees is None:
            return 0.0
        return self.rate.astype(z.dtype) * (z.size - self.degrees.astype(z.dtype)) * theta

    def metric(self, theta: Array, z: Array) -> Array:
        return jnp.exp(2 * self.rate.astype(z.dtype) * theta)


class Multiply(Exact):
    r"""$x = \theta z$ with $|z_i| \le 1$: the uniform density on $[-\theta, \theta]$."""

    def to_x(self, theta: Array, z: Array) -> Array:
        return theta * z

    def to_z(self, theta: Array, x: Array) -> Array:
        return x / theta

    def metric(self, theta: Array, z: Array) -> Array:
        # Near theta = 0 the data say nothing about z; without the floor its steps would be endless.
        return 1 / jnp.maximum(theta**2, 0.01)


class Moved(Form):
    """A form about a fixed shift in x."""

    form: Form
    shift: PyTree

    def to_x(self, theta: PyTree, z: PyTree) -> PyTree:
        return jax.tree.map(jnp.add, self.form.to_x(theta, z), self.shift)

    def to_z(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.form.to_z(theta, jax.tree.map(jnp.subtract, x, self.shift))

    def rest(self, theta: PyTree, z: PyTree) -> Float[Array, ""] | float:
        return self.form.rest(theta, z)

    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        return self.form.metric(theta, z)


class OnPart(Form):
    """A form on the parts that a term addresses."""

    form: Form
    address: On  # only its addresses are used

    def _theta(self, theta: PyTree) -> PyTree:
        return part("theta", theta, self.address.theta)

    def to_x(self, theta: PyTree, z: PyTree) -> PyTree:
        inner = self.form.to_x(self._theta(theta), part("x", z, self.address.x))
        return put_part(z, self.address.x, inner)

    def to_z(self, theta: PyTree, x: PyTree) -> PyTree:
        inner = self.form.to_z(self._theta(theta), part("x", x, self.address.x))
        return put_part(x, self.address.x, inner)

    def rest(self, theta: PyTree, z: PyTree) -> Float[Array, ""] | float:
        return self.form.rest(self._theta(theta), part("x", z, self.address.x))

    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        inner = self.form.metric(self._theta(theta), part("x", z, self.address.x))
        return put_part(_ones(z), self.address.x, inner)


class Each(Form):
    """Forms on disjoint parts, one after the other."""

    forms: tuple[Form, ...]

    def to_x(self, theta: PyTree, z: PyTree) -> PyTree:
        return functools.reduce(lambda tree, form: form.to_x(theta, tree), self.forms, z)

    def to_z(self, theta: PyTree, x: PyTree) -> PyTree:
        return functools.reduce(lambda tree, form: form.to_z(theta, tree), self.forms, x)

    def rest(self, theta: PyTree, z: PyTree) -> Float[Array, ""] | float:
        return sum(form.rest(theta, z) for form in self.forms)

    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        # The parts are disjoint: at each leaf all factors but one are 1.
        each = (form.metric(theta, z) for form in self.forms)
        return functools.reduce(lambda a, b: jax.tree.map(jnp.multiply, a, b), each)


class Same(Exact):
    """A term that does not know theta stays as it is."""

    def to_x(self, theta: PyTree, z: PyTree) -> PyTree:
        return z

    def to_z(self, theta: PyTree, x: PyTree) -> PyTree:
        return x

    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        return _ones(z)


def _ones(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.ones((), leaf.dtype), tree)


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
    form, plain = noncentred_term(model.nonsmooth)
    smooth = NonCentredSmooth(model.smooth, form)
    return NonCentred(Model(smooth, plain, model.data, metric=Metric(form)), BackToX(form))
