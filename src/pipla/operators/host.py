"""Operators whose functions are NumPy's, SciPy's or another library's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from pipla.operators._arguments import checked_shape, operand
from pipla.operators.linear import Operator


class FromNumPy(Operator):
    r"""$H$ from two functions of NumPy arrays: a projector of another library, a SciPy operator.

    Compiled programs call them back, once for all vectors that are ready together, and may
    differentiate and batch them like any linear map. `restore` takes functions of $H^\top H$ by
    polynomials: with 600 observations of 32 x 32 pixels, that is 34 000 calls in 300 steps.
    Where H is a matrix that fits in memory, `Dense` takes it without any call. A library that
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
        """The product with vectors along any leading axes, by calls of the function."""
        function = self.back if transposed else self.forward
        before, after = self.shapes(transposed)
        lead = v.shape[: v.ndim - len(before)]

        def each(batch: Any) -> np.ndarray:
            vectors = np.asarray(batch)
            made = [function(one) for one in vectors.reshape(-1, *before)]
            return np.asarray(made, vectors.dtype).reshape(*lead, *after)

        return jax.pure_callback(each, jax.ShapeDtypeStruct((*lead, *after), v.dtype), v)

    def shapes(self, transposed: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of a vector and of its product."""
        return (self.observed, self.shape) if transposed else (self.shape, self.observed)


# A primitive of JAX, which knows of it that it is linear: callbacks have no derivatives, and JAX's
# own linear calls no batches.
_product_p = Primitive("pipla_product_on_host")


def _product(operator: FromNumPy, transposed: bool, v: Array) -> Array:
    """$Hv$ or $H^\\top v$, of vectors along any leading axes."""
    return _product_p.bind(v, operator=operator, transposed=transposed)


@functools.partial(jax.jit, static_argnames=("operator", "transposed"))
def _called(v: Array, *, operator: FromNumPy, transposed: bool) -> Array:
    return operator.on_host(transposed, v)


def _abstract(v: Any, *, operator: FromNumPy, transposed: bool) -> ShapedArray:
    before, after = operator.shapes(transposed)
    return ShapedArray((*v.shape[: v.ndim - len(before)], *after), v.dtype)


def _transposed(cotangent: Array, _: Any, *, operator: FromNumPy, transposed: bool) -> tuple[Array]:
    return (_product(operator, not transposed, cotangent),)


def _batched(
    args: tuple[Array], axes: tuple[int], *, operator: FromNumPy, transposed: bool
) -> tuple[Array, int]:
    (v,), (axis,) = args, axes
    return _product(operator, transposed, jnp.moveaxis(v, axis, 0)), 0


_product_p.def_impl(_called)
_product_p.def_abstract_eval(_abstract)
ad.deflinear2(_product_p, _transposed)
batching.primitive_batchers[_product_p] = _batched
mlir.register_lowering(_product_p, mlir.lower_fun(_called, multiple_results=False))
