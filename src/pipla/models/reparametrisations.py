r"""Changes of variables $x = T_\theta(z)$ that take theta out of a prior."""

from __future__ import annotations

import abc
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla._checks import require_scalar
from pipla._trees import part, put_part
from pipla.prox.combine import On


class Form(eqx.Module):
    r"""A change of variables: `to_x` is $T_\theta$, `to_z` its inverse, `rest` what is left."""

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
        r"""$(dz/dx)^2$ for each leaf: a step $\gamma$ in x is a step $\gamma (dz/dx)^2$ in z.

        With it the stiffness that a step meets is that of x, and does not grow with theta.
        """


class Exact(Form):
    """A form whose Jacobian cancels against the prior's normaliser: nothing is left over."""

    def rest(self, theta: PyTree, z: PyTree) -> float:
        return 0.0


class Shift(Exact):
    r"""$x = \theta + z$."""

    def to_x(self, theta: Array, z: Array) -> Array:
        return require_scalar("theta", theta, self) + z

    def to_z(self, theta: Array, x: Array) -> Array:
        return x - require_scalar("theta", theta, self)

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
        return jnp.exp(-self.rate.astype(z.dtype) * require_scalar("theta", theta, self)) * z

    def to_z(self, theta: Array, x: Array) -> Array:
        return jnp.exp(self.rate.astype(x.dtype) * require_scalar("theta", theta, self)) * x

    def rest(self, theta: Array, z: Array) -> Float[Array, ""] | float:
        if self.degrees is None:
            return 0.0
        return self.rate.astype(z.dtype) * (z.size - self.degrees.astype(z.dtype)) * theta

    def metric(self, theta: Array, z: Array) -> Array:
        return jnp.exp(2 * self.rate.astype(z.dtype) * theta)


class Multiply(Exact):
    r"""$x = \theta z$ with $|z_i| \le 1$: the uniform density on $[-\theta, \theta]$."""

    def to_x(self, theta: Array, z: Array) -> Array:
        return require_scalar("theta", theta, self) * z

    def to_z(self, theta: Array, x: Array) -> Array:
        return x / require_scalar("theta", theta, self)

    def metric(self, theta: Array, z: Array) -> Array:
        # Near theta = 0 the data say nothing about z; without the floor its steps would be endless.
        return 1 / jnp.maximum(theta**2, 0.01)


class Moved(Form):
    """A form about a fixed shift in x."""

    form: Form
    shift: PyTree

    def to_x(self, theta: PyTree, z: PyTree) -> PyTree:
        return self._moved(self.form.to_x(theta, z), 1)

    def to_z(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.form.to_z(theta, self._moved(x, -1))

    def _moved(self, x: PyTree, sign: int) -> PyTree:
        return jax.tree.map(lambda leaf, s: leaf + sign * jnp.asarray(s, leaf.dtype), x, self.shift)

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
