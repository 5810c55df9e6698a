r"""Sparse matrices as operators, with products that are fast for many particles.

The product is a primitive of JAX of its own: linear in x, transposed by exchanging $A$ and
$A^\top$, batched by one product for all particles. So gradients, Hessian products, `vmap` and `jit`
work in any order. On CPUs a kernel compiled by numba does it (`pipla.operators._kernels`),
elsewhere and without numba a gather and a sum by segments (XLA). For 20 particles and a matrix of
10⁵ × 10⁴ with 10⁶ non-zeros, `benchmarks/sparse.py` compares both with SciPy.
"""

from __future__ import annotations

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, Int

from pipla import _checks
from pipla._ffi import ffi
from pipla.operators._arguments import operand
from pipla.operators.linear import Operator


class Sparse(Operator):
    """A sparse matrix, for an x with one axis.

    It is stored as a list of entries, sorted by row: 12 bytes per non-zero number in single
    precision, 16 in double precision. Its numbers are constants: there is no gradient with
    respect to them.

    Arguments:
        matrix: a sparse matrix or array of SciPy, or a `BCOO` or `BCSR` of
            `jax.experimental.sparse`, of shape (observations, elements of x). Entries that occur
            twice are added.
    """

    values: Float[Array, " nonzeros"]
    rows: Int[Array, " nonzeros"]
    columns: Int[Array, " nonzeros"]
    shape: tuple[int, int] = eqx.field(static=True)

    def __init__(self, matrix: Any) -> None:
        csr = _as_csr(matrix)
        rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
        self.values = jnp.asarray(csr.data, jnp.result_type(float))
        _checks.finite("matrix", self.values)
        self.rows = jnp.asarray(rows, jnp.int32)
        self.columns = jnp.asarray(csr.indices, jnp.int32)
        self.shape = (int(csr.shape[0]), int(csr.shape[1]))

    def apply(self, x: Array) -> Array:
        x = operand("x", x, self.shape[1:], (0,), 1)
        return self._product(x, transposed=False)

    def adjoint(self, y: Array) -> Array:
        y = operand("y", y, self.shape[:1], (0,), 1)
        return self._product(y, transposed=True)

    def whitened(self, noise: Array) -> Operator:
        return eqx.tree_at(lambda m: m.values, self, self.values / noise[self.rows])

    def with_entries(self, values: Array, rows: Array, columns: Array, count: int) -> Sparse:
        """A matrix of `count` rows and as many columns as this one; entries are sorted by row."""
        made: Sparse = object.__new__(Sparse)
        fields = {"values": values, "rows": rows, "columns": columns}
        for name, value in (fields | {"shape": (count, self.shape[1])}).items():
            object.__setattr__(made, name, value)
        return made

    def _product(self, x: Array, transposed: bool) -> Array:
        matrix = jax.lax.stop_gradient((self.values.astype(x.dtype), self.rows, self.columns))
        found = _product_p.bind(*matrix, x[None], shape=self.shape, transposed=transposed)
        return found[0]


def is_sparse(matrix: Any) -> bool:
    """Whether this is a sparse matrix of SciPy's, of JAX's or of our own kind."""
    return isinstance(matrix, Sparse) or _is_jax(matrix) or _is_scipy(matrix)


def _is_jax(matrix: Any) -> bool:
    # Whoever holds such a matrix has imported its module, which takes time; we need not.
    module = sys.modules.get("jax.experimental.sparse")
    return module is not None and isinstance(matrix, module.JAXSparse)


def _is_scipy(matrix: Any) -> bool:
    return type(matrix).__module__.startswith("scipy.sparse") and hasattr(matrix, "tocsr")


def _as_csr(matrix: Any) -> Any:
    """A SciPy matrix with compressed rows, sorted and without duplicates."""
    import scipy.sparse

    if _is_jax(matrix):
        if matrix.ndim != 2 or matrix.n_batch or matrix.n_dense:
            raise ValueError(
                "matrix must have two sparse axes and no batch or dense axes, got shape "
                f"{matrix.shape} with n_batch={matrix.n_batch} and n_dense={matrix.n_dense}."
            )
        parts = jax.tree.leaves(matrix)
        if any(isinstance(part, jax.core.Tracer) for part in parts):
            raise TypeError("matrix must be known when Sparse is made, not traced.")
        matrix = _from_jax(matrix)
    elif not _is_scipy(matrix):
        raise TypeError(
            "matrix must be a sparse matrix of SciPy or of jax.experimental.sparse, got "
            f"{type(matrix).__name__}; operators.Dense takes arrays."
        )
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"matrix must have two axes and entries, got shape {matrix.shape}.")
    if matrix.dtype.kind not in "bfiu":
        raise TypeError(f"matrix must hold real numbers, got dtype {matrix.dtype}.")
    csr = scipy.sparse.csr_array(matrix)
    if csr.nnz >= np.iinfo(np.int32).max:
        raise ValueError(f"matrix has {csr.nnz} non-zeros, but at most 2^31 - 2 are possible.")
    if not csr.has_canonical_format:
        csr = csr.copy()  # it may share its arrays with the user's
        csr.sum_duplicates()
    return csr


def _from_jax(matrix: Any) -> Any:
    """A `BCOO` or `BCSR` as a SciPy matrix; padding beyond the shape is dropped."""
    import scipy.sparse

    coo = matrix.to_bcoo() if hasattr(matrix, "to_bcoo") else matrix
    values, indices = np.asarray(coo.data), np.asarray(coo.indices)
    inside = np.all(indices < np.asarray(coo.shape), axis=1)
    rows, columns = indices[inside].T
    return scipy.sparse.coo_array((values[inside], (rows, columns)), shape=coo.shape)


# The primitive: (values, rows, columns, x of shape (particles, elements)) -> A x or A' x. #

_product_p = Primitive("pipla_sparse_product")


def _portable(
    values: Array, rows: Array, columns: Array, x: Array, *, shape: Any, transposed: bool
) -> Array:
    """The product by XLA: gather, multiply, sum by segments."""
    seen, to = (rows, columns) if transposed else (columns, rows)
    terms = values[:, None] * x.T[seen]
    total = jax.ops.segment_sum(
        terms, to, shape[1] if transposed else shape[0], indices_are_sorted=not transposed
    )
    return total.T


def _native(
    values: Array, rows: Array, columns: Array, x: Array, *, shape: Any, transposed: bool
) -> Array:
    """The product by the kernel, where there is one."""
    target = ffi.target("pipla.operators._kernels", x.dtype)
    if target is None:
        return _portable(values, rows, columns, x, shape=shape, transposed=transposed)
    result = jax.ShapeDtypeStruct((x.shape[0], shape[1] if transposed else shape[0]), x.dtype)
    numbers = np.array([*shape, values.shape[0], transposed], np.int64)
    return jax.ffi.ffi_call(target, result)(values, rows, columns, x, layout=numbers)


def _result(values: Any, rows: Any, columns: Any, x: Any, *, shape: Any, transposed: bool) -> Any:
    return x.update(shape=(x.shape[0], shape[1] if transposed else shape[0]))


def _transpose_rule(cotangent: Any, *operands: Any, shape: Any, transposed: bool) -> Any:
    *matrix, x = operands
    if type(cotangent) is ad.Zero:
        return [None, None, None, ad.Zero(x.aval)]
    back = _product_p.bind(*matrix, cotangent, shape=shape, transposed=not transposed)
    return [None, None, None, back]


def _jvp_rule(primals: Any, tangents: Any, **options: Any) -> Any:
    *matrix, x = primals
    direction = ad.instantiate_zeros(tangents[-1])
    return _product_p.bind(*matrix, x, **options), _product_p.bind(*matrix, direction, **options)


def _batching_rule(operands: Any, axes: Any, **options: Any) -> Any:
    *matrix, x = operands
    if any(axis is not None for axis in axes[:-1]):
        # Several matrices of one shape: one product after the other.
        mapped = [axis is not None for axis in axes]
        moved = [
            jnp.moveaxis(operand, axis, 0) if is_mapped else operand
            for operand, axis, is_mapped in zip(operands, axes, mapped, strict=True)
        ]

        def one(batch: Any) -> Array:
            own = iter(batch)
            return _product_p.bind(
                *[next(own) if m else whole for m, whole in zip(mapped, moved, strict=True)],
                **options,
            )

        return jax.lax.map(one, [v for v, m in zip(moved, mapped, strict=True) if m]), 0
    x = jnp.moveaxis(x, axes[-1], 0)
    flat = _product_p.bind(*matrix, x.reshape(-1, x.shape[-1]), **options)
    return flat.reshape(*x.shape[:-1], flat.shape[-1]), 0


_product_p.def_abstract_eval(_result)
_product_p.def_impl(jax.jit(_product_p.bind, static_argnames=("shape", "transposed")))
ad.primitive_jvps[_product_p] = _jvp_rule
ad.primitive_transposes[_product_p] = _transpose_rule
batching.primitive_batchers[_product_p] = _batching_rule
mlir.register_lowering(_product_p, mlir.lower_fun(_portable, multiple_results=False))
mlir.register_lowering(_product_p, mlir.lower_fun(_native, multiple_results=False), platform="cpu")
