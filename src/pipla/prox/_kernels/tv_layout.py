"""How arrays lie in memory, for `pipla.prox.tv_kernel`: rows, and their neighbours.

An array is a list of rows: `depth` planes of `rows` rows of `cols` elements with `inner` numbers
each, once or several times. A direction of length 1 has no differences.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipla.prox._kernels.ffi import compiled, inlined, moved

#: Where a row is: at the top or the bottom of its plane, in the first or the last plane.
TOP, BOTTOM, FRONT, BACK = 1, 2, 4, 8


class Field(NamedTuple):
    """Something for each direction of differences."""

    depth: Any
    rows: Any
    cols: Any


class Rows(NamedTuple):
    """Row i is number `i & mask`: all rows (mask -1), a ring of the last 2^k, the only one (0)."""

    start: Any
    stride: Any
    mask: Any


class Form(NamedTuple):
    """Shape and options; `directions` counts those of length 1, too."""

    total: Any
    depth: Any
    rows: Any
    cols: Any
    inner: Any
    directions: Any
    isotropic: Any
    max_iterations: Any


class Work(NamedTuple):
    """All that a sweep reads and writes; `levels` has the u of each iteration's dual."""

    x: Any
    p: Any
    q: Any
    u: Any
    levels: Any
    factor: Any
    zeros: Any
    places: Any
    form: Any
    width: Any
    lag: Any
    shift: Any
    rate: Any


@inlined
def row(rows: Any, i: Any) -> Any:
    """Row i."""
    return moved(rows.start, (i & rows.mask) * rows.stride)


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
def all_places(form: Any) -> Any:
    """Where each row is."""
    places = np.zeros(form.total, np.uint8)
    for first in range(0, form.total, form.rows):
        places[first] |= TOP
        places[first + form.rows - 1] |= BOTTOM
    stack = form.depth * form.rows
    for first in range(0, form.total, stack):
        for i in range(first, first + form.rows):
            places[i] |= FRONT
            places[i + stack - form.rows] |= BACK
    return places
