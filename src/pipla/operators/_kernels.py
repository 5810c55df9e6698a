r"""Products with a sparse matrix in machine code, for all particles in one pass over the matrix.

The matrix is a list of entries (value, row, column), sorted by row. While the kernel works, the
numbers of all particles that belong to the same row or column lie side by side: one entry of the
matrix then meets a few cache lines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla._ffi.frame import (
    attribute,
    batch_size,
    compiled,
    handler,
    is_metadata_query,
    operands,
    particle,
    results,
    source_hash,
)

#: Rows of the matrix that are read or written together: one cache line per particle.
BLOCK = 16


@compiled
def _apply(
    entries: Any, nonzeros: Any, x: Any, y: Any, rows: Any, cols: Any, count: Any, like: Any
) -> Any:
    """y = A x for `count` particles, whose numbers lie one particle after the other."""
    values, row_of, column_of = entries
    by_column = np.empty((cols, count), np.asarray(like).dtype)
    sums = np.empty((BLOCK, count), by_column.dtype)
    for i in range(count):
        for q in range(cols):
            by_column[q, i] = x[i * cols + q]
    k = 0
    for start in range(0, rows, BLOCK):
        height = min(BLOCK, rows - start)
        sums[:] = 0
        while k < nonzeros and row_of[k] < start + height:
            # Unsigned places: no code is made for negative ones, which count from the end. And no
            # function for this loop: called or inlined, it is not vectorised, and twice as slow.
            value, r, j = values[k], np.uint32(row_of[k] - start), np.uint32(column_of[k])
            for i in range(count):
                sums[r, i] += value * by_column[j, i]
            k += 1
        for i in range(count):
            for q in range(height):
                y[i * rows + start + q] = sums[q, i]


@compiled
def _adjoint(
    entries: Any, nonzeros: Any, x: Any, y: Any, rows: Any, cols: Any, count: Any, like: Any
) -> Any:
    """y = A' x for `count` particles."""
    values, row_of, column_of = entries
    by_column = np.zeros((cols, count), np.asarray(like).dtype)
    given = np.empty((BLOCK, count), by_column.dtype)
    k = 0
    for start in range(0, rows, BLOCK):
        height = min(BLOCK, rows - start)
        for i in range(count):
            for q in range(height):
                given[q, i] = x[i * rows + start + q]
        while k < nonzeros and row_of[k] < start + height:
            value, r, j = values[k], np.uint32(row_of[k] - start), np.uint32(column_of[k])
            for i in range(count):
                by_column[j, i] += value * given[r, i]
            k += 1
    for i in range(count):
        for q in range(cols):
            y[i * cols + q] = by_column[q, i]


@compiled
def _serve(frame: Any, like: Any) -> Any:
    """Operands values, rows, columns and x, of shape (particles, elements); result A x or A' x.

    The attribute holds rows, columns and non-zeros of the matrix, and whether it is transposed.
    """
    if is_metadata_query(frame):
        return 0
    given, wanted = operands(frame), results(frame)
    n = attribute(frame, 4)
    rows, cols, nonzeros, transposed = n[0], n[1], n[2], n[3]
    place = np.int32(0)
    entries = (
        particle(given[0], 0, 1, like),
        particle(given[1], 0, 1, place),
        particle(given[2], 0, 1, place),
    )
    x, y = particle(given[3], 0, 1, like), particle(wanted[0], 0, 1, like)
    if transposed:
        _adjoint(entries, nonzeros, x, y, rows, cols, batch_size(given[3]) // rows, like)
    else:
        _apply(entries, nonzeros, x, y, rows, cols, batch_size(given[3]) // cols, like)
    return 0


def address(dtype: np.dtype) -> int:
    """The address of the handler for arrays of `dtype`."""
    like, source = dtype.type(0), source_hash("pipla.operators._kernels")

    def enter(frame: int) -> int:
        return _serve(frame, like) if source else 0

    return handler(enter)
