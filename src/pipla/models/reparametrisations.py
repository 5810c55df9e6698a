r"""Changes of variables $x = T_\theta(z)$ that take theta out of a prior."""

from __future__ import annotations

import abc
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla._trees import ones_per_leaf, part, put_part
from pipla.prox._arguments import require_scalar
from pipla.prox.combine import On


class Bijector(eqx.Module):
    r"""A change of variables $x = T_\theta(z)$: `forward` is $T_\theta$, `inverse` its inverse."""

    @abc.abstractmethod
    def forward(self, theta: PyTree, z: PyTree) -> PyTree:
        """From z to x."""

    @abc.abstractmethod
    def inverse(self, theta: PyTree, x: PyTree) -> PyTree:
        """From x to z."""

    @abc.abstractmethod
    def remainder(self, theta: PyTree, z: PyTree) -> Float[Array, ""] | float:
        """What the change of variables adds to the smooth potential."""

    @abc.abstractmethod
    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        r"""$(dz/dx)^2$ for each leaf: a step $\gamma$ in x is a step $\gamma (dz/dx)^2$ in z.

        With it the stiffness that a step meets is that of x, and does not grow with theta.
        """

    def longest_step(self, unit: PyTree) -> PyTree:
        """For each leaf of z, the longest step size in the units of z.

        `unit` is the squared length scale of the plain term, one number for each leaf. Infinite
        where the metric does not depend on theta, and cannot make a step long.
        """
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), unit)

    def longest_move(self, theta: PyTree, otherwise: PyTree) -> PyTree:
        """For each leaf of theta, the longest step that is safe wherever it starts.

        Leaves that are not of this bijector keep what `otherwise` has for them.
        """
        return otherwise


class _Exact(Bijector):
    """Bijectors whose Jacobian cancels against the normaliser of the prior: no remainder."""

    def remainder(self, theta: PyTree, z: PyTree) -> float:
        return 0.0


class Shift(_Exact):
    r"""$x = \theta + z$."""

    def forward(self, theta: Array, z: Array) -> Array:
        return require_scalar("theta", theta, self) + z

    def inverse(self, theta: Array, x: Array) -> Array:
        return x - require_scalar("theta", theta, self)

    def metric(self, theta: Array, z: Array) -> Array:
        return jnp.ones((), z.dtype)

    def longest_move(self, theta: Array, otherwise: Array) -> Array:
        """Any: the potential is convex in a location, or nearly so."""
        return jnp.full_like(theta, jnp.inf)


class ExpScale(Bijector):
    r"""$x = e^{-r \theta} z$ for a term $e^{r\theta} R(x)$ with $R$ homogeneous.

    The Jacobian gives $+ r d \theta$ for the d elements of x, which cancels against the normaliser
    $- r d' \theta$ of the prior where there is one: $d' = d$ unless the term says otherwise.
    """

    rate: Array
    degrees: Array | None = None  # d'; `None` for d

    def forward(self, theta: Array, z: Array) -> Array:
        return jnp.exp(-self.rate.astype(z.dtype) * require_scalar("theta", theta, self)) * z

    def inverse(self, theta: Array, x: Array) -> Array:
        return jnp.exp(self.rate.astype(x.dtype) * require_scalar("theta", theta, self)) * x

    def remainder(self, theta: Array, z: Array) -> Float[Array, ""] | float:
        if self.degrees is None:
            return 0.0
        return self.rate.astype(z.dtype) * (z.size - self.degrees.astype(z.dtype)) * theta

    def metric(self, theta: Array, z: Array) -> Array:
        return jnp.exp(2 * self.rate.astype(z.dtype) * theta)

    def longest_step(self, unit: Array) -> Array:
        """A tenth of the plain term's unit.

        Where the prior is narrow the data say little about z, and a step that suits the likelihood
        would jump over the whole prior.
        """
        return 0.1 * unit

    def longest_move(self, theta: Array, otherwise: Array) -> Array:
        """A factor e of the scale."""
        return jnp.full_like(theta, 1 / jnp.abs(self.rate.astype(theta.dtype)))


class Scale(_Exact):
    r"""$x = \theta z$ with $|z_i| \le 1$: the uniform density on $[-\theta, \theta]$."""

    def forward(self, theta: Array, z: Array) -> Array:
        return require_scalar("theta", theta, self) * z

    def inverse(self, theta: Array, x: Array) -> Array:
        return x / require_scalar("theta", theta, self)

    def metric(self, theta: Array, z: Array) -> Array:
        # Near theta = 0 the data say nothing about z; without the floor its steps would diverge.
        return 1 / jnp.maximum(theta**2, 0.01)

    def longest_move(self, theta: Array, otherwise: Array) -> Array:
        """Half of the width."""
        return 0.5 * jnp.abs(theta)


class Offset(Bijector):
    """Another bijector, followed by a fixed shift in x."""

    inner: Bijector
    shift: PyTree

    def forward(self, theta: PyTree, z: PyTree) -> PyTree:
        return self._moved(self.inner.forward(theta, z), 1)

    def inverse(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.inner.inverse(theta, self._moved(x, -1))

    def _moved(self, x: PyTree, sign: int) -> PyTree:
        return jax.tree.map(lambda leaf, s: leaf + sign * jnp.asarray(s, leaf.dtype), x, self.shift)

    def remainder(self, theta: PyTree, z: PyTree) -> Float[Array, ""] | float:
        return self.inner.remainder(theta, z)

    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        return self.inner.metric(theta, z)

    def longest_step(self, unit: PyTree) -> PyTree:
        return self.inner.longest_step(unit)

    def longest_move(self, theta: PyTree, otherwise: PyTree) -> PyTree:
        return self.inner.longest_move(theta, otherwise)


class At(Bijector):
    """A bijector on the parts that a term addresses."""

    inner: Bijector
    address: On  # only its addresses are used

    def _theta(self, theta: PyTree) -> PyTree:
        return part("theta", theta, self.address.theta)

    def forward(self, theta: PyTree, z: PyTree) -> PyTree:
        inner = self.inner.forward(self._theta(theta), part("x", z, self.address.x))
        return put_part(z, self.address.x, inner)

    def inverse(self, theta: PyTree, x: PyTree) -> PyTree:
        inner = self.inner.inverse(self._theta(theta), part("x", x, self.address.x))
        return put_part(x, self.address.x, inner)

    def remainder(self, theta: PyTree, z: PyTree) -> Float[Array, ""] | float:
        return self.inner.remainder(self._theta(theta), part("x", z, self.address.x))

    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        inner = self.inner.metric(self._theta(theta), part("x", z, self.address.x))
        return put_part(ones_per_leaf(z), self.address.x, inner)

    def longest_step(self, unit: PyTree) -> PyTree:
        inner = self.inner.longest_step(part("x", unit, self.address.x))
        return put_part(super().longest_step(unit), self.address.x, inner)

    def longest_move(self, theta: PyTree, otherwise: PyTree) -> PyTree:
        inner = self.inner.longest_move(self._theta(theta), self._theta(otherwise))
        return put_part(otherwise, self.address.theta, inner)


class Chain(Bijector):
    """Bijectors on disjoint parts, applied one after the other."""

    bijectors: tuple[Bijector, ...]

    def forward(self, theta: PyTree, z: PyTree) -> PyTree:
        return functools.reduce(lambda tree, each: each.forward(theta, tree), self.bijectors, z)

    def inverse(self, theta: PyTree, x: PyTree) -> PyTree:
        return functools.reduce(lambda tree, each: each.inverse(theta, tree), self.bijectors, x)

    def remainder(self, theta: PyTree, z: PyTree) -> Float[Array, ""] | float:
        return sum(each.remainder(theta, z) for each in self.bijectors)

    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        # The parts are disjoint: at each leaf all factors but one are 1.
        each = (each.metric(theta, z) for each in self.bijectors)
        return functools.reduce(lambda a, b: jax.tree.map(jnp.multiply, a, b), each)

    def longest_step(self, unit: PyTree) -> PyTree:
        each = (each.longest_step(unit) for each in self.bijectors)
        return functools.reduce(lambda a, b: jax.tree.map(jnp.minimum, a, b), each)

    def longest_move(self, theta: PyTree, otherwise: PyTree) -> PyTree:
        for each in self.bijectors:
            otherwise = each.longest_move(theta, otherwise)
        return otherwise


class Identity(_Exact):
    """$x = z$, for terms that do not depend on theta."""

    def forward(self, theta: PyTree, z: PyTree) -> PyTree:
        return z

    def inverse(self, theta: PyTree, x: PyTree) -> PyTree:
        return x

    def metric(self, theta: PyTree, z: PyTree) -> PyTree:
        return ones_per_leaf(z)
