r"""How XLA calls `pipla.prox.tv_kernel`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.prox._kernels.ffi import (
    attribute,
    compiled,
    handler,
    how_many,
    moved,
    only_asks,
    operands,
    particle,
    pointer,
    results,
    version,
)
from pipla.prox._kernels.tv_layout import Field, Form, Rows
from pipla.prox._kernels.tv_sweep import solve, value


@compiled
def _field(table: Any, which: Any, form: Any, width: Any, zeros: Any) -> Any:
    """A particle's dual: the buffers from the second on are for the directions that there are."""
    depth = rows = cols = Rows(zeros, width, 0)
    size, like, buffer = form.total * width, zeros[0], 1
    if form.depth > 1:
        depth = Rows(particle(table[buffer], which, size, like), width, -1)
        buffer += 1
    if form.rows > 1:
        rows = Rows(particle(table[buffer], which, size, like), width, -1)
        buffer += 1
    if form.cols > 1:
        cols = Rows(particle(table[buffer], which, size, like), width, -1)
    return Field(depth, rows, cols)


@compiled
def _serve(frame: Any, like: Any) -> Any:
    """The prox: operands x, the dual of each direction, shift, tolerance; results u, dual, gap.

    The dual is worked on in place: XLA gives it as operand and as result. The value has the operand
    x and a single result. Under `vmap` every buffer holds all particles.
    """
    if only_asks(frame):
        return 0
    given, wanted = operands(frame), results(frame)
    n = attribute(frame, 8)  # see `tv_native`
    form = Form(n[0] * n[1] * n[2], n[1], n[2], n[3], n[4], n[5], n[6], n[7])
    width = form.cols * form.inner
    size = form.total * width
    scalars = wanted[len(wanted) - 1]  # of values, or of gaps
    if len(wanted) == 1:
        for which in range(how_many(scalars)):
            x = Rows(particle(given[0], which, size, like), width, -1)
            particle(scalars, which, 1, like)[0] = value(x, form, like)
        return 0
    shifts, tolerances = given[len(given) - 2], given[len(given) - 1]
    nothing = np.zeros(2 * width, np.asarray(like).dtype)  # rows are read from -inner on
    zeros = moved(pointer(nothing.ctypes.data, like), width)
    for which in range(how_many(scalars)):
        gap = solve(
            Rows(particle(given[0], which, size, like), width, -1),
            _field(wanted, which, form, width, zeros),
            Rows(particle(wanted[0], which, size, like), width, -1),
            zeros,
            form,
            particle(shifts, which, 1, like)[0],
            particle(tolerances, which, 1, like)[0],
        )
        particle(scalars, which, 1, like)[0] = gap
    return np.intp(nothing[0])  # 0: no error; and it was alive until here


def address(dtype: np.dtype) -> int:
    """The address of the handler for arrays of `dtype`."""
    like, source = dtype.type(0), version("tv_sweep", "tv_layout", "tv_rows")

    def enter(frame: int) -> int:
        return _serve(frame, like) if source else 0

    return handler(enter)
