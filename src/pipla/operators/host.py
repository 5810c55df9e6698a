"""Operators whose functions are NumPy's, SciPy's or another library's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.operators._arguments import checked_shape, operand
from pipla.operators.linear import Operator


class FromNumPy(Operator):
    r"""$H$ from two functions of NumPy arrays: a projector of another library, a SciPy operator.

    Compiled programs call them back, once for all vectors that are ready together. A library that
    starts threads of its own (BLAS) may wait for cores that the program uses: hold it to one
    thread, by `OPENBLAS_NUM_THREADS=1`.

    Arguments:
        apply: $Hx$ for one x.
        adjoint: $H^\top y$ for one y.
        shape: the shape of x.

    Example:
        >>> import numpy as np, pipla
        >>> pairs = pipla.operators.FromNumPy(
        ...     lambda x: x[::2] + x[1::2], lambda y: np.repeat(y, 2), shape=(6,)
        ... )
        >>> pairs.apply(np.arange(6.0)).tolist()
        [1.0, 5.0, 9.0]
    """

    forward: Callable[[np.ndarray], Any] = eqx.field(static=True)
    back: Callable[[np.ndarray], Any] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    observed: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        apply: Callable[[np.ndarray], Any],
        adjoint: Callable[[np.ndarray], Any],
        shape: tuple[int, ...],
    ) -> None:
        for name, function in (("apply", apply), ("adjoint", adjoint)):
            if not callable(function):
                raise TypeError(f"{name} must be a function, got {type(function).__name__}.")
        self.forward, self.back = apply, adjoint
        self.shape = checked_shape(shape)
        made = np.asarray(apply(np.zeros(self.shape)))
        if made.dtype.kind not in "fiu":
            raise TypeError(
                f"apply must return real numbers, got {made.dtype}; stack real and imaginary parts."
            )
        self.observed = made.shape
        returned = np.shape(adjoint(np.zeros(made.shape)))
        if returned != self.shape:
            raise ValueError(
                f"adjoint must return an array of the shape of x, {self.shape}, got {returned}."
            )

    def apply(self, x: Array) -> Array:
        return _product(self, False, operand("x", x, self.shape, range(len(self.shape)), x.ndim))

    def adjoint(self, y: Array) -> Array:
        axes = range(len(self.observed))
        return _product(self, True, operand("y", y, self.observed, axes, len(axes)))

    def on_host(self, transposed: bool, v: Array) -> Array:
        """The product by a call of the function, on a batch of vectors where there is one."""
        function = self.back if transposed else self.forward
        before, after = self.shape, self.observed
        if transposed:
            before, after = after, before

        def each(batch: Any) -> np.ndarray:
            vectors = np.asarray(batch)
            lead = vectors.shape[: vectors.ndim - len(before)]
            made = [function(one) for one in vectors.reshape(-1, *before)]
            return np.asarray(made, vectors.dtype).reshape(*lead, *after)

        result = jax.ShapeDtypeStruct(after, v.dtype)
        return jax.pure_callback(each, result, v, vmap_method="broadcast_all")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _product(operator: FromNumPy, transposed: bool, v: Array) -> Array:
    """$Hv$ or $H^\\top v$; the derivative of one is the other."""
    return operator.on_host(transposed, v)


def _forward(operator: FromNumPy, transposed: bool, v: Array) -> tuple[Array, None]:
    return operator.on_host(transposed, v), None


def _backward(operator: FromNumPy, transposed: bool, _: None, cotangent: Array) -> tuple[Array]:
    return (_product(operator, not transposed, jnp.asarray(cotangent)),)


_product.defvjp(_forward, _backward)
