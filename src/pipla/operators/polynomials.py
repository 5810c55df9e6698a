r"""Functions of $H^\top H$ for an operator of which only `apply` and `adjoint` are known.

$f(H^\top H)\,v$ is a sum of Chebyshev polynomials, which takes one product with $H^\top H$ per
degree. Between 0 and a bound on the largest eigenvalue, which Lanczos' method finds, each
polynomial is at most 1, so the coefficients that are left out bound the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

#: The most terms of a sum, and the longest exponent $h a/\sigma^2$ of a flow: it takes 215 terms.
MOST_TERMS = 256
LONGEST_EXPONENT = 5000.0
#: The largest error of a flow, in posterior standard deviations per step. The bias of a step of
#: .03 is one to two percent.
TOLERANCE = 0.01
#: Products with $H^\top H$ from which its largest eigenvalue is found.
LANCZOS_STEPS = 30

#: A function of the eigenvalues, with the factor by which its errors count.
Weighted = tuple[Callable[[Array], Array], Array]


def largest_eigenvalue(
    times: Callable[[Array], Array], shape: tuple[int, ...], steps: int = LANCZOS_STEPS
) -> Float[Array, ""]:
    """A bound on the largest eigenvalue of a positive semidefinite map, by Lanczos' method.

    The largest Ritz value is below the eigenvalue; the last off-diagonal element, added to it,
    makes it a bound in practice (Zhou and Li 2011). A random start has a part in every direction.
    """
    steps = min(steps, int(np.prod(shape)))
    start = np.random.default_rng(0).standard_normal(shape)
    first = jnp.asarray(start / np.linalg.norm(start), jnp.result_type(float))

    def step(
        carry: tuple[Array, Array, Array], _: None
    ) -> tuple[tuple[Array, Array, Array], Array]:
        v, before, beta = carry
        image = times(v) - beta * before
        alpha = jnp.vdot(v, image)
        image = image - alpha * v
        size = jnp.sqrt(jnp.vdot(image, image))
        after = image / jnp.where(size > 0, size, 1.0)
        return (after, v, size), jnp.stack([alpha, size])

    zero = jnp.zeros((), first.dtype)
    _, found = jax.lax.scan(step, (first, jnp.zeros_like(first), zero), None, length=steps)
    alpha, beta = found.T
    matrix = jnp.diag(alpha) + jnp.diag(beta[:-1], 1) + jnp.diag(beta[:-1], -1)
    values, vectors = jnp.linalg.eigh(matrix)
    return values[-1] + beta[-1] * jnp.abs(vectors[-1, -1])


def applied(
    times: Callable[[Array], Array],
    largest: Array,
    functions: Sequence[Weighted],
    vectors: Sequence[Array],
) -> Array:
    r"""$f_i(A)\,v_i$ for a map $A$ with eigenvalues between 0 and `largest`, stacked.

    Each $f$ is interpolated at `MOST_TERMS` Chebyshev points. The sum ends at the first degree
    after which the remaining coefficients of every function add up to less than the tolerance,
    so that short steps take few products.
    """
    stacked = jnp.stack(list(vectors))
    dtype = stacked.dtype
    top = largest.astype(dtype)
    angles = np.pi * (np.arange(MOST_TERMS) + 0.5) / MOST_TERMS
    cosines = np.cos(np.outer(np.arange(MOST_TERMS), angles)) * (2 / MOST_TERMS)
    cosines[0] /= 2
    points = top * jnp.asarray((np.cos(angles) + 1) / 2, dtype)
    values = jnp.stack([function(points) for function, _ in functions], axis=1)
    coefficients = jnp.asarray(cosines, dtype) @ values
    weights = jnp.stack([weight.astype(dtype) for _, weight in functions])
    tails = jnp.cumsum(jnp.abs(coefficients[::-1]) * weights[None], axis=0)[::-1]
    degree = jnp.sum(jnp.any(tails > TOLERANCE, axis=1)) - 1

    def scaled(v: Array) -> Array:
        """The map with its eigenvalues between -1 and 1."""
        return (2 / top) * jax.vmap(times)(v) - v

    def coefficient(k: Array) -> Array:
        row = jax.lax.dynamic_index_in_dim(coefficients, k, keepdims=False)
        return row.reshape(-1, *(1,) * (stacked.ndim - 1))

    def body(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        one, two = carry
        return coefficient(degree - i) * stacked + 2 * scaled(one) - two, one

    zero = jnp.zeros_like(stacked)
    # Clenshaw's recurrence, whose first product is with 0.
    one = jnp.where(degree > 0, coefficient(degree) * stacked, zero)
    one, two = jax.lax.fori_loop(1, jnp.maximum(degree, 1), body, (one, zero))
    return coefficient(jnp.zeros_like(degree)) * stacked + scaled(one) - two
