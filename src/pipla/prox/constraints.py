r"""Constraints on x: 0 inside, infinite outside; the prox is the Euclidean projection."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla.prox._arguments import (
    Hyperparameter,
    check_ordered,
    check_positive,
    hyperparameter,
    require_floating,
)
from pipla.prox.base import Fixed, Scalar
from pipla.prox.regularity import Regularity


class Constraint(Fixed):
    """The indicator of a closed convex set."""

    def regularity(self, theta: PyTree, x: Array) -> Regularity:
        return Regularity(True, None)


class Box(Constraint):
    r"""`lower` $\le x_i \le$ `upper`: numbers, or arrays of the shape of x; infinite for no bound.

    >>> print(Box(0.0, 1.0).prox(None, jnp.array([-0.2, 0.5, 7.0]), None, 1.0)[1])
    [0.  0.5 1. ]
    """

    lower: Hyperparameter = hyperparameter()
    upper: Hyperparameter = hyperparameter()

    def __check_init__(self) -> None:
        shapes = {self.lower.shape, self.upper.shape} - {()}
        if len(shapes) > 1:
            raise ValueError(
                "lower and upper must be numbers or arrays of one shape, "
                f"got shapes {self.lower.shape} and {self.upper.shape}."
            )
        check_ordered("lower", self.lower, "upper", self.upper)

    def penalty(self, x: Array) -> Scalar:
        lower, upper = self._bounds(x)
        return _indicator(jnp.all((x >= lower) & (x <= upper)), x)

    def shrink(self, x: Array, lam: Scalar) -> Array:
        lower, upper = self._bounds(x)
        return jnp.minimum(jnp.maximum(x, lower), upper)

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        """The variance of a uniform law between the nearest two bounds, a twelfth of the square."""
        lower, upper = self._bounds(require_floating("x", x, self))
        return jnp.min(upper - lower) ** 2 / 12

    def _bounds(self, x: Array) -> tuple[Array, Array]:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound.shape not in ((), x.shape):
                raise ValueError(
                    f"{name} must be a number or have the shape of x, "
                    f"but its shape is {bound.shape} and that of x is {x.shape}."
                )
        return self.lower.astype(x.dtype), self.upper.astype(x.dtype)


class NonNegative(Constraint):
    r"""$x_i \ge 0$."""

    def penalty(self, x: Array) -> Scalar:
        return _indicator(jnp.all(x >= 0), x)

    def shrink(self, x: Array, lam: Scalar) -> Array:
        return jnp.maximum(x, 0)


class Simplex(Constraint):
    r"""$x_i \ge 0$ and $\sum_i x_i = $ `total`, over all elements of x.

    The sum is met up to rounding: `value` is 0 where it is within $4 d\,\varepsilon$ of `total`
    relatively, $\varepsilon$ being the spacing of floats at 1.

    >>> _, x = Simplex().prox(None, jnp.array([0.5, 0.9, -3.0]), None, 1.0)
    >>> print([f"{u:.3f}" for u in x])
    ['0.300', '0.700', '0.000']
    """

    total: Hyperparameter = hyperparameter(default=1.0)

    def __check_init__(self) -> None:
        check_positive("total", self.total)

    def penalty(self, x: Array) -> Scalar:
        total = self.total.astype(x.dtype)
        slack = 4 * x.size * jnp.finfo(x.dtype).eps * total
        return _indicator(jnp.all(x >= 0) & (jnp.abs(jnp.sum(x) - total) <= slack), x)

    def shrink(self, x: Array, lam: Scalar) -> Array:
        r"""$(x - \tau)_+$, where $\tau$ solves $\sum_i (x_i - \tau)_+ = $ total.

        The left side is convex and decreasing, so Newton's method from the left of the root
        climbs to it monotonically and in finitely many steps (Michelot 1986).
        """
        total = self.total.astype(x.dtype)
        # Relative to the largest element, the only scale left is the total itself.
        below = x - jnp.max(x)

        def step(level: Array) -> Array:
            active = below > level
            # The largest element, 0, is active at every level below the root, which is negative.
            number = jnp.maximum(jnp.sum(active.astype(x.dtype)), 1)
            return (jnp.sum(jnp.where(active, below, 0)) - total) / number

        def climbing(state: tuple[Array, Array]) -> Array:
            level, previous = state
            return level > previous

        def climb(state: tuple[Array, Array]) -> tuple[Array, Array]:
            level, _ = state
            return jnp.maximum(step(level), level), level

        start = jnp.maximum((jnp.sum(below) - total) / x.size, -total)
        level, _ = jax.lax.while_loop(climbing, climb, (start, jnp.full_like(start, -jnp.inf)))
        return jnp.maximum(below - level, 0)

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        """The square of an element's mean, its variance under the uniform law on the simplex."""
        x = require_floating("x", x, self)
        return (self.total.astype(x.dtype) / x.size) ** 2


def _indicator(inside: Array, x: Array) -> Scalar:
    return jnp.where(inside, 0.0, jnp.inf).astype(x.dtype)
