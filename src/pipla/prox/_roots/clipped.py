r"""The one number that is left of the joint prox of `pipla.prox.laplace`."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pipla.prox._kernels.native import on_cpu, target
from pipla.prox._roots.newton import increasing_root
from pipla.prox.base import Scalar
from pipla.prox.norms import add_up


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def clipped_root(native: bool, z: Float[Array, " d"], ratio: Float[Array, ""]) -> Array:
    r"""The root of the increasing $v - r \sum_i \operatorname{clip}(z_i - v, \pm 1)$.

    It is linear between the kinks: Newton's method is exact once it is in the right piece. By
    machine code where `native` and there is some, else by XLA.

    >>> round(float(clipped_root(False, jnp.array([0.5, 9.0]), jnp.asarray(1.0))), 6)
    0.75
    """
    name = target("laplace_kernel", z.dtype) if native else None
    number = jax.ShapeDtypeStruct((), z.dtype)
    kernel = jax.ffi.ffi_call(name, number, vmap_method="broadcast_all") if name else None
    return on_cpu(kernel, _newton, z, ratio)


@clipped_root.defjvp
def _derivative(
    native: bool, at: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    r"""That of the equation: with $m$ near terms, those with $|z_i - v| < 1$,

    $$ (1 + r m)\, \dot v
       = \dot r \sum_i \operatorname{clip}(z_i - v, \pm 1) + r \sum_{\text{near}} \dot z_i. $$
    """
    (z, ratio), (z_dot, ratio_dot) = at, tangents
    v = clipped_root(native, z, ratio)
    near = (jnp.abs(z - v) < 1).astype(z.dtype)
    change = ratio_dot * add_up(jnp.clip(z - v, -1, 1)) + ratio * add_up(near * z_dot)
    return v, change / (1 + ratio * add_up(near))


def _newton(z: Array, ratio: Array) -> Array:
    """The JAX form. `laplace_kernel` takes the same steps."""

    def pull(v: Array, window: Scalar | float) -> tuple[Array, Array]:
        """The sum, and how fast it falls with v on average over the window."""
        apart = z - v
        near = (jnp.abs(apart) < window).astype(z.dtype)
        return ratio * add_up(jnp.clip(apart, -1, 1)), ratio * add_up(near) / window

    def optimality(v: Array) -> tuple[Array, Array]:
        total, slope = pull(v, 1.0)
        return v - total, 1 + slope

    # The first step is the longest, about √d terms of random sign: its slope is that of so many.
    total, slope = pull(jnp.zeros_like(ratio), jnp.maximum(1, ratio * math.sqrt(z.size)))
    start, reach = total / (1 + slope), ratio * z.size
    return increasing_root(optimality, -reach, reach, start, resolution=1.0)
