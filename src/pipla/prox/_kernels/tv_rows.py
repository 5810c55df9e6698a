r"""Rows of an image in memory, and loops over one row, for `pipla.prox._kernels.tv_sweep`.

An array is a list of rows: `depth` planes of `rows` rows of `cols` elements with `inner` numbers
each, once or several times. A direction of length 1 has no differences.

A row is a pointer: making one costs nothing, unlike a view of an array. It has `width` numbers, and
the right neighbour of a number is `inner` places further on (the channels of a colour image). So
that loops need no exceptions at the ends, there are `inner` extra numbers to the left of q (they
are 0) and to the right of u (they repeat the last ones, so that differences are 0).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.core.compiler import Flags
from numba.core.cpu_options import FastMathOptions

from pipla._ffi.frame import FASTMATH, compiled, inlined, intrinsic, offset

#: Where a row is: at the top or the bottom of its plane, in the first or the last plane.
TOP, BOTTOM, FRONT, BACK = 1, 2, 4, 8


class Field(NamedTuple):
    """One entry for each direction of differences."""

    depth: Any
    rows: Any
    cols: Any


class Rows(NamedTuple):
    """Row i is stored at `i & mask`: all rows (mask -1), a ring of the last 2^k, one row (0)."""

    start: Any
    stride: Any
    mask: Any


class Layout(NamedTuple):
    """Shape and options; `directions` also counts those of length 1."""

    total: Any
    depth: Any
    rows: Any
    cols: Any
    inner: Any
    directions: Any
    isotropic: Any
    max_iterations: Any


class Work(NamedTuple):
    """All that a sweep reads and writes; `levels` holds the u of each iteration's dual."""

    x: Any
    p: Any
    q: Any
    u: Any
    levels: Any
    factor: Any
    zeros: Any
    places: Any
    layout: Any
    width: Any
    lag: Any
    shift: Any
    rate: Any


@inlined
def row(rows: Any, i: Any) -> Any:
    """Row i."""
    return offset(rows.start, (i & rows.mask) * rows.stride)


@inlined
def rows_at(field: Any, i: Any) -> Any:
    """Row i in each direction."""
    return Field(row(field.depth, i), row(field.rows, i), row(field.cols, i))


@inlined
def rows_before(w: Any, field: Any, i: Any) -> Any:
    """The rows before row i in depth and above it, 0 where there are none."""
    above = w.zeros if w.places[i] & TOP else row(field.rows, i - 1)
    before = w.zeros if w.places[i] & FRONT else row(field.depth, i - w.lag)
    return Field(before, above, w.zeros)


@inlined
def rows_after(u: Any, i: Any, places: Any, lag: Any) -> Any:
    """The rows after row i in depth and below it; itself where there are none."""
    here = row(u, i)
    below = here if places[i] & BOTTOM else row(u, i + 1)
    deeper = here if places[i] & BACK else row(u, i + lag)
    return deeper, below


@compiled
def row_places(layout: Any) -> Any:
    """Where each row is."""
    places = np.zeros(layout.total, np.uint8)
    for first in range(0, layout.total, layout.rows):
        places[first] |= TOP
        places[first + layout.rows - 1] |= BOTTOM
    stack = layout.depth * layout.rows
    for first in range(0, layout.total, stack):
        for i in range(first, first + layout.rows):
            places[i] |= FRONT
            places[i + stack - layout.rows] |= BACK
    return places


# Loops over one row. #


def disjoint(function: Any) -> Any:
    """Compile a function of rows, numbers, width and inner, promising that no two rows overlap.

    Without it LLVM would have to check every pair of rows, and gives up vectorising instead. Numba
    makes that promise for its own parallel loops but has no decorator for it. The function returns
    two numbers.
    """

    @intrinsic
    def call(_: Any, rows: Any, numbers: Any, width: Any, inner: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            flags: Any = Flags()
            flags.noalias = True
            flags.fastmath = FastMathOptions(FASTMATH)
            flags.error_model = "numpy"
            routine = context.compile_subroutine(builder, function, signature, flags=flags)
            return context.call_internal(builder, routine.fndesc, signature, arguments)

        result = types.UniTuple(numbers.dtype, 2)
        return result(rows, numbers, width, inner), generate

    return call


@numba.njit(fastmath={*FASTMATH, "nnan"}, error_model="numpy")
def clip(number: Any, one: Any) -> Any:
    """The nearest number between -1 and 1, in two instructions."""
    number = one if number > one else number
    return -one if number < -one else number


@disjoint
def advance(these: Any, numbers: Any, width: Any, inner: Any) -> Any:
    """One iteration at a row inside an image: the next row of u, then this row of p and q.

    `cols` and `rows` are the q of this row, `_after` of the next one, whose u is `following`.
    """
    following, u, x, cols_after, rows_after, cols, rows, p_cols, p_rows = these
    shift, rate, momentum = numbers
    one = type(rate)(1)
    for j in range(width):
        here, down = u[j], rows[j]
        below = x[j] + shift * ((cols_after[j] - cols_after[j - inner]) + (rows_after[j] - down))
        following[j] = below
        new = clip(cols[j] + rate * (u[j + inner] - here), one)
        cols[j] = new + momentum * (new - p_cols[j])
        p_cols[j] = new
        new = clip(down + rate * (below - here), one)
        rows[j] = new + momentum * (new - p_rows[j])
        p_rows[j] = new
    return rate, rate


@disjoint
def advance_isotropic(these: Any, numbers: Any, width: Any, inner: Any) -> Any:
    """`advance` with the isotropic projection."""
    following, u, x, cols_after, rows_after, cols, rows, p_cols, p_rows = these
    shift, rate, momentum = numbers
    one = type(rate)(1)
    for j in range(width):
        here, down = u[j], rows[j]
        below = x[j] + shift * ((cols_after[j] - cols_after[j - inner]) + (rows_after[j] - down))
        following[j] = below
        a, b = cols[j] + rate * (u[j + inner] - here), down + rate * (below - here)
        square = a * a + b * b
        factor = one / np.sqrt(one if square < one else square)
        a, b = a * factor, b * factor
        cols[j] = a + momentum * (a - p_cols[j])
        p_cols[j] = a
        rows[j] = b + momentum * (b - p_rows[j])
        p_rows[j] = b
    return rate, rate


@disjoint
def measure(these: Any, numbers: Any, width: Any, inner: Any) -> Any:
    """The next row of u and its squared separation, and the excess of this row."""
    following, u, x, cols_after, rows_after, rows, p_cols, p_rows, p_cols_after, p_rows_after = (
        these
    )
    shift, rate, isotropic = numbers
    zero = type(rate)(0)
    total, away = zero, zero
    for j in range(width):
        # To the left of a row of p is the end of the one before, which is 0.
        c, c_left, r, r_above = cols_after[j], cols_after[j - inner], rows_after[j], rows[j]
        below = x[j] + shift * ((c - c_left) + (r - r_above))
        following[j] = below
        part = (c - p_cols_after[j]) - (c_left - p_cols_after[j - inner])
        part += (r - p_rows_after[j]) - (r_above - p_rows[j])
        away += part * part
        c, r = u[j + inner] - u[j], below - u[j]
        length = np.sqrt(c * c + r * r) if isotropic > zero else abs(c) + abs(r)
        part = length - (p_cols[j] * c + p_rows[j] * r)
        total += zero if part < zero else part
    return total, away


# The same in pieces, for edges and for other numbers of directions. #


@compiled
def copy(to: Any, origin: Any, width: Any) -> None:
    """to = origin."""
    for j in range(width):
        to[j] = origin[j]


@compiled
def fill(
    u: Any, x: Any, shift: Any, cols: Any, rows: Any, above: Any, width: Any, inner: Any
) -> None:
    """u = x - shift Dᵀq within a plane."""
    for j in range(width):
        u[j] = x[j] + shift * ((cols[j] - cols[j - inner]) + (rows[j] - above[j]))


@compiled
def add(u: Any, shift: Any, here: Any, before: Any, width: Any) -> None:
    """u = u - shift Dᵀq between planes."""
    for j in range(width):
        u[j] += shift * (here[j] - before[j])


@compiled
def ascend(q: Any, p: Any, u: Any, beyond: Any, rate: Any, momentum: Any, width: Any) -> None:
    """One direction of an anisotropic iteration: gradient step, projection, momentum."""
    one = type(rate)(1)
    for j in range(width):
        new = clip(q[j] + rate * (beyond[j] - u[j]), one)
        q[j] = new + momentum * (new - p[j])
        p[j] = new


@compiled
def step(q: Any, u: Any, beyond: Any, rate: Any, width: Any) -> None:
    """The gradient step alone."""
    for j in range(width):
        q[j] += rate * (beyond[j] - u[j])


@compiled
def shrinkage(factor: Any, a: Any, b: Any, c: Any, rate: Any, width: Any) -> None:
    """The factor that brings the dual of each element back into the unit ball."""
    one = type(rate)(1)
    for j in range(width):
        square = a[j] * a[j] + b[j] * b[j] + c[j] * c[j]
        factor[j] = one / np.sqrt(one if square < one else square)


@compiled
def project(q: Any, p: Any, factor: Any, momentum: Any, width: Any) -> None:
    """The projection and the momentum."""
    for j in range(width):
        new = q[j] * factor[j]
        q[j] = new + momentum * (new - p[j])
        p[j] = new


# The gap. #


@compiled
def excess(
    isotropic: Any, p: Any, u: Any, deeper: Any, below: Any, rate: Any, width: Any, inner: Any
) -> Any:
    """The sum of |Du| - <p, Du>; no part is negative, so that nothing cancels."""
    total = zero = type(rate)(0)
    if isotropic:
        for j in range(width):
            d, r, c = deeper[j] - u[j], below[j] - u[j], u[j + inner] - u[j]
            part = np.sqrt(d * d + r * r + c * c) - (p.depth[j] * d + p.rows[j] * r + p.cols[j] * c)
            total += zero if part < zero else part
    else:
        for j in range(width):
            d, r, c = deeper[j] - u[j], below[j] - u[j], u[j + inner] - u[j]
            part = abs(d) + abs(r) + abs(c) - (p.depth[j] * d + p.rows[j] * r + p.cols[j] * c)
            total += zero if part < zero else part
    return total


@compiled
def variation(
    isotropic: Any, u: Any, deeper: Any, below: Any, rate: Any, width: Any, inner: Any
) -> Any:
    """The sum of |Du| for a row that has no extra numbers to the right of it."""
    total = type(rate)(0)
    if isotropic:
        for j in range(width - inner):
            d, r, c = deeper[j] - u[j], below[j] - u[j], u[j + inner] - u[j]
            total += np.sqrt(d * d + r * r + c * c)
        for j in range(width - inner, width):
            d, r = deeper[j] - u[j], below[j] - u[j]
            total += np.sqrt(d * d + r * r)
    else:
        for j in range(width - inner):
            total += abs(deeper[j] - u[j]) + abs(below[j] - u[j]) + abs(u[j + inner] - u[j])
        for j in range(width - inner, width):
            total += abs(deeper[j] - u[j]) + abs(below[j] - u[j])
    return total


@compiled
def separation(away: Any, p: Any, q: Any, p_before: Any, q_before: Any, width: Any) -> None:
    """-Dᵀ(q - p) between planes."""
    for j in range(width):
        away[j] = (q[j] - p[j]) - (q_before[j] - p_before[j])


@compiled
def squared_separation(
    p: Any, q: Any, p_above: Any, q_above: Any, away: Any, rate: Any, width: Any, inner: Any
) -> Any:
    """The sum of squares of Dᵀ(q - p), of which `away` is the part between planes."""
    p, q, p_rows, q_rows = p.cols, q.cols, p.rows, q.rows
    total = type(rate)(0)
    for j in range(inner):
        part = (q_rows[j] - p_rows[j]) - (q_above[j] - p_above[j]) + away[j]
        part += q[j] - p[j]
        total += part * part
    for j in range(inner, width):
        part = (q_rows[j] - p_rows[j]) - (q_above[j] - p_above[j]) + away[j]
        part += (q[j] - p[j]) - (q[j - inner] - p[j - inner])
        total += part * part
    return total


@compiled
def gather(x: Any, origin: Any, total: Any, squares: Any, rate: Any, width: Any) -> Any:
    """Adds x - origin and its square to the sums of each column; returns the sum of |x|."""
    size = type(rate)(0)
    for j in range(width):
        value = x[j] - origin[j]
        total[j] += value
        squares[j] += value * value
        size += abs(x[j])
    return size
