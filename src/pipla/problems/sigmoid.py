r"""The logistic function and its integral, as a step of logistic regression needs them.

A step evaluates the logistic function once for every particle and observation, which is the most
that it does besides its matrix products. Around one half, $\sigma(z) - 1/2 = \tanh(z/2)/2$ is odd
and its integral even, and both take fewer operations than $\sigma$ and $\log(1 + e^z)$.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

#: From here on $\tanh(z/2)/2$ is 1/2 to about $10^{-7}$.
END = 16.0
#: $P$ and $Q$ in $\tanh(z/2)/2 = z P(z^2)/Q(z^2)$, powers ascending. Of the fits tried (least
#: squares on [0, END], reweighted to minimax) the shortest that is near rounding: its largest
#: error is $6.5 \cdot 10^{-8}$.
NUMERATOR = (0.24999984, 0.0080710259, 4.5919187e-05, 4.4180572e-08)
DENOMINATOR = (1.0, 0.11561685, 0.0014852393, 3.7035704e-06, 9.4681336e-10)


@jax.custom_jvp
def even_softplus(z: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\log(2 \cosh(z/2))$, the even part of $\log(1 + e^z)$; the odd part is $z/2$.

    JAX's derivative would go through the value, an exponential and a logarithm an element.
    """
    return jnp.logaddexp(0.5 * z, -0.5 * z)


@even_softplus.defjvp
def _even_softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (dz,) = primals, tangents
    return even_softplus(z), dz * odd_sigmoid(z)


def odd_sigmoid(z: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\sigma(z) - 1/2 = \tanh(z/2)/2$, to an absolute error of some $10^{-7}$ in float32.

    XLA's tanh takes more terms, for a relative error that a sum over observations has no use for,
    and cases for tiny and infinite arguments; a step of logistic regression notices.
    """
    if z.dtype != jnp.float32:
        return 0.5 * jnp.tanh(0.5 * z)
    z = jnp.clip(z, -END, END)
    square = z * z
    return z * _polynomial(NUMERATOR, square) / _polynomial(DENOMINATOR, square)


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    return reduce(lambda total, c: total * x + c, reversed(coefficients), jnp.zeros_like(x))
