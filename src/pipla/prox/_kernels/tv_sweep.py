r"""The prox of `TotalVariation` as machine code for CPUs, compiled by numba.

The algorithm is that of the JAX form; what differs is the order of the work. An iteration at row i
needs the one before it up to row i + 1 only, so the iterations of a chunk follow each other down
the image, each one row behind, and memory is passed once for all of them: `_sweep`. In three
dimensions they are one plane apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla._ffi.frame import (
    attribute,
    batch_size,
    compiled,
    handler,
    inlined,
    is_metadata_query,
    offset,
    operands,
    particle,
    pointer,
    results,
    source_hash,
)
from pipla.prox._kernels.tv_rows import (
    BOTTOM,
    Field,
    Layout,
    Rows,
    Work,
    add,
    advance,
    advance_isotropic,
    ascend,
    copy,
    excess,
    fill,
    gather,
    measure,
    project,
    row,
    row_places,
    rows_after,
    rows_at,
    rows_before,
    separation,
    shrinkage,
    squared_separation,
    step,
    variation,
)

#: Numbers in a cache line of float32 (in two of float64): rows start at multiples of it.
LINE = 16

#: Iterations between two evaluations of the duality gap: as in the JAX form.
CHUNK = 5


@inlined
def _primal(w: Any, u: Any, i: Any) -> None:
    """Row i of u = x - shift Dᵀq."""
    here, q, before = row(u, i), rows_at(w.q, i), rows_before(w, w.q, i)
    fill(here, row(w.x, i), w.shift, q.cols, q.rows, before.rows, w.width, w.layout.inner)
    if w.layout.depth > 1:
        add(here, w.shift, q.depth, before.depth, w.width)


@inlined
def _iterate(w: Any, u: Any, i: Any, momentum: Any) -> None:
    """Row i of one accelerated projected gradient step, given u."""
    layout, rate, width = w.layout, w.rate, w.width
    p, q, here = rows_at(w.p, i), rows_at(w.q, i), row(u, i)
    deeper, below = rows_after(u, i, w.places, w.lag)
    right = offset(here, layout.inner)
    if layout.isotropic:
        if layout.cols > 1:
            step(q.cols, here, right, rate, width)
        if layout.rows > 1:
            step(q.rows, here, below, rate, width)
        if layout.depth > 1:
            step(q.depth, here, deeper, rate, width)
        shrinkage(w.factor, q.depth, q.rows, q.cols, rate, width)
        if layout.cols > 1:
            project(q.cols, p.cols, w.factor, momentum, width)
        if layout.rows > 1:
            project(q.rows, p.rows, w.factor, momentum, width)
        if layout.depth > 1:
            project(q.depth, p.depth, w.factor, momentum, width)
    else:
        if layout.cols > 1:
            ascend(q.cols, p.cols, here, right, rate, momentum, width)
        if layout.rows > 1:
            ascend(q.rows, p.rows, here, below, rate, momentum, width)
        if layout.depth > 1:
            ascend(q.depth, p.depth, here, deeper, rate, momentum, width)


@inlined
def _both(w: Any, u: Any, i: Any, momentum: Any) -> None:
    """`_primal` of row i + 1 and `_iterate` of row i at once, where both are inside an image."""
    p, q, after = rows_at(w.p, i), rows_at(w.q, i), rows_at(w.q, i + 1)
    these = (
        row(u, i + 1), row(u, i), row(w.x, i + 1), after.cols, after.rows, q.cols, q.rows,
        p.cols, p.rows,
    )  # fmt: skip
    numbers = w.shift, w.rate, momentum
    if w.layout.isotropic:
        advance_isotropic(these, numbers, w.width, w.layout.inner)
    else:
        advance(these, numbers, w.width, w.layout.inner)


@inlined
def _measure(w: Any, u: Any, i: Any) -> Any:
    """`_primal` and `_squared_separation` of row i + 1, `_excess` of row i, inside an image."""
    p, q = rows_at(w.p, i), rows_at(w.q, i)
    p_after, q_after = rows_at(w.p, i + 1), rows_at(w.q, i + 1)
    these = (
        row(u, i + 1), row(u, i), row(w.x, i + 1), q_after.cols, q_after.rows, q.rows,
        p.cols, p.rows, p_after.cols, p_after.rows,
    )  # fmt: skip
    numbers = w.shift, w.rate, type(w.rate)(w.layout.isotropic)
    return measure(these, numbers, w.width, w.layout.inner)


@inlined
def _excess(w: Any, u: Any, i: Any) -> Any:
    """The contribution of row i to |Du| - <p, Du>."""
    deeper, below = rows_after(u, i, w.places, w.lag)
    p, here = rows_at(w.p, i), row(u, i)
    return excess(w.layout.isotropic, p, here, deeper, below, w.rate, w.width, w.layout.inner)


@inlined
def _squared_separation(w: Any, i: Any) -> Any:
    """The contribution of row i to |Dᵀ(q - p)|²."""
    p, q = rows_at(w.p, i), rows_at(w.q, i)
    p_before, q_before = rows_before(w, w.p, i), rows_before(w, w.q, i)
    away = w.zeros
    if w.layout.depth > 1:
        away = w.factor
        separation(away, p.depth, q.depth, p_before.depth, q_before.depth, w.width)
    return squared_separation(
        p, q, p_before.rows, q_before.rows, away, w.rate, w.width, w.layout.inner
    )


@inlined
def _take(to: Any, origin: Any, i: Any, layout: Any, width: Any) -> None:
    """Copies row i of a dual."""
    if layout.cols > 1:
        copy(row(to.cols, i), row(origin.cols, i), width)
    if layout.rows > 1:
        copy(row(to.rows, i), row(origin.rows, i), width)
    if layout.depth > 1:
        copy(row(to.depth, i), row(origin.depth, i), width)


@compiled
def _sweep(w: Any, age: Any, iterations: Any, first: Any) -> Any:
    """A number of iterations, and the gap after them. In the `first` sweep q starts from p."""
    total, lag, width, inner = w.layout.total, w.lag, w.width, w.layout.inner
    plane = w.layout.depth == 1 and w.layout.rows > 1 and w.layout.cols > 1
    gap = 0.0
    for front in range(total + (iterations + 1) * lag):
        if first and front < total:
            _take(w.q, w.p, front, w.layout, width)
        for level in range(iterations + 1):
            # Level l holds the u of the l-th dual, and makes the next dual `lag` rows behind it.
            new = front - level * lag
            old = new - lag
            ring = (w.levels.mask + 1) * w.levels.stride
            u = Rows(offset(w.levels.start, level * ring), w.levels.stride, w.levels.mask)
            momentum = type(w.rate)((age + level) / (age + level + 3))
            inside = plane and old >= 0 and new < total and not w.places[old] & BOTTOM
            if inside and level < iterations:
                _both(w, u, old, momentum)
            elif inside:
                near, away = _measure(w, u, old)
                gap += near + 0.5 * w.shift * away
            elif 0 <= new < total:
                _primal(w, u, new)
                if level == iterations:
                    gap += 0.5 * w.shift * _squared_separation(w, new)
            if 0 <= new < total:
                here = row(u, new)
                copy(offset(here, width), offset(here, width - inner), inner)
                if level == iterations:
                    copy(row(w.u, new), here, width)
            if 0 <= old < total:
                if level < iterations and not inside:
                    _iterate(w, u, old, momentum)
                if level == iterations and not inside:
                    gap += _excess(w, u, old)
    return gap


@compiled
def _stopping_gap(w: Any, tolerance: Any) -> Any:
    """The gap at which to stop. x is taken relative to its first element, lest a mean cancel."""
    layout, width, inner = w.layout, w.width, w.layout.inner
    height = layout.depth * layout.rows
    size = variance = 0.0
    sums = np.empty(3 * width, np.asarray(w.rate).dtype)
    origin = pointer(sums.ctypes.data, w.rate)
    total, squares = offset(origin, width), offset(origin, 2 * width)
    for first in range(0, layout.total, height):
        sums[:] = 0
        for j in range(width):
            sums[j] = row(w.x, first)[j % inner]
        for i in range(first, first + height):
            size += gather(row(w.x, i), origin, total, squares, w.rate, width)
        for c in range(inner):
            one = np.sum(sums[width + c : 2 * width : inner])
            two = np.sum(sums[2 * width + c :: inner])
            variance += two - one * one / (height * layout.cols)
    scale = min(layout.total * width * w.shift, 0.5 * variance * (4 * layout.directions * w.rate))
    return tolerance * scale + layout.directions * np.finfo(sums.dtype).eps * size


@compiled
def value(x: Any, layout: Any, like: Any) -> Any:
    """The total variation of one particle. Rows are added up in double precision."""
    places, lag, total = row_places(layout), _lag(layout), 0.0
    width, inner = layout.cols * layout.inner, layout.inner
    for i in range(layout.total):
        deeper, below = rows_after(x, i, places, lag)
        total += variation(layout.isotropic, row(x, i), deeper, below, like, width, inner)
    return type(like)(total)


@compiled
def _lag(layout: Any) -> Any:
    """How many rows lie between a row and the one behind it, or below it in a single plane."""
    return layout.rows if layout.depth > 1 else 1


@compiled
def _capacity(rows: Any) -> Any:
    """The smallest power of 2 that is not smaller than `rows`."""
    capacity = 1
    while capacity < rows:
        capacity *= 2
    return capacity


@compiled
def solve(x: Any, p: Any, u: Any, zeros: Any, layout: Any, shift: Any, tolerance: Any) -> Any:
    """The prox of one particle: fills `u`, improves the dual `p` and returns the gap."""
    width, inner, number = layout.cols * layout.inner, layout.inner, type(shift)
    lag = _lag(layout)
    # All of the extrapolated dual is needed only from one chunk to the next.
    ring, window = _capacity(lag + 1), _capacity((CHUNK + 3) * lag + 1)
    full = layout.max_iterations > CHUNK or window > layout.total
    kept, mask = (layout.total, -1) if full else (window, window - 1)
    # Rows start at cache lines, after the extra numbers to the left of them.
    margin = (inner + LINE - 1) // LINE * LINE
    stride = (width + LINE - 1) // LINE * LINE + margin
    # Rows that are used together must not lie multiples of 4096 bytes apart: caches have too few
    # places for such addresses.
    plane = kept * stride + 17 * LINE
    scratch = np.empty(((CHUNK + 1) * ring + 2) * stride + 3 * plane, np.asarray(shift).dtype)
    levels = pointer((scratch.ctypes.data + 63) // 64 * 64, shift)
    ahead = offset(levels, (CHUNK + 1) * ring * stride + margin)
    nothing = Rows(zeros, stride, 0)
    q = Field(
        Rows(ahead, stride, mask) if layout.depth > 1 else nothing,
        Rows(offset(ahead, plane), stride, mask) if layout.rows > 1 else nothing,
        Rows(offset(ahead, 2 * plane), stride, mask) if layout.cols > 1 else nothing,
    )
    if layout.cols > 1:
        for i in range(kept):
            for j in range(inner):
                q.cols.start[i * stride + j - inner] = 0
    floor = number(np.finfo(scratch.dtype).tiny ** 0.25)
    rate = number(1) / (number(4 * layout.directions) * max(shift, floor))
    w = Work(
        x, p, q, u, Rows(levels, stride, ring - 1), offset(ahead, 3 * plane),
        zeros, row_places(layout), layout, width, lag, shift, rate,
    )  # fmt: skip
    gap, age, last = _sweep(w, 0.0, CHUNK, True), 0.0, np.inf
    if layout.max_iterations > CHUNK:
        enough = _stopping_gap(w, tolerance)
        for _ in range(CHUNK, layout.max_iterations, CHUNK):
            if not gap > enough:
                break
            # A rising gap means that the momentum has overshot: start it again from 0.
            age = 0.0 if gap > last else age + CHUNK
            last, gap = gap, _sweep(w, age, CHUNK, False)
    scratch[0] = 0  # keeps it alive until here
    return gap


# How XLA calls it. #


@compiled
def _field(table: Any, which: Any, layout: Any, width: Any, zeros: Any) -> Any:
    """A particle's dual: the buffers after the first, one for each direction longer than 1."""
    depth = rows = cols = Rows(zeros, width, 0)
    size, like, buffer = layout.total * width, zeros[0], 1
    if layout.depth > 1:
        depth = Rows(particle(table[buffer], which, size, like), width, -1)
        buffer += 1
    if layout.rows > 1:
        rows = Rows(particle(table[buffer], which, size, like), width, -1)
        buffer += 1
    if layout.cols > 1:
        cols = Rows(particle(table[buffer], which, size, like), width, -1)
    return Field(depth, rows, cols)


@compiled
def _serve(frame: Any, like: Any) -> Any:
    """The prox: operands x, the dual of each direction, shift, tolerance; results u, dual, gap.

    The dual is updated in place: XLA gives it as operand and as result. The value has the operand x
    and a single result. Under `vmap` every buffer holds all particles.
    """
    if is_metadata_query(frame):
        return 0
    given, wanted = operands(frame), results(frame)
    n = attribute(frame, 8)  # see `tv.Kernel`
    layout = Layout(n[0] * n[1] * n[2], n[1], n[2], n[3], n[4], n[5], n[6], n[7])
    width = layout.cols * layout.inner
    size = layout.total * width
    scalars = wanted[len(wanted) - 1]  # of values, or of gaps
    if len(wanted) == 1:
        for which in range(batch_size(scalars)):
            x = Rows(particle(given[0], which, size, like), width, -1)
            particle(scalars, which, 1, like)[0] = value(x, layout, like)
        return 0
    shifts, tolerances = given[len(given) - 2], given[len(given) - 1]
    nothing = np.zeros(2 * width, np.asarray(like).dtype)  # rows are read from -inner on
    zeros = offset(pointer(nothing.ctypes.data, like), width)
    for which in range(batch_size(scalars)):
        gap = solve(
            Rows(particle(given[0], which, size, like), width, -1),
            _field(wanted, which, layout, width, zeros),
            Rows(particle(wanted[0], which, size, like), width, -1),
            zeros,
            layout,
            particle(shifts, which, 1, like)[0],
            particle(tolerances, which, 1, like)[0],
        )
        particle(scalars, which, 1, like)[0] = gap
    return np.intp(nothing[0])  # 0: no error; and it is kept alive until here


def address(dtype: np.dtype) -> int:
    """The address of the handler for arrays of `dtype`."""
    like, source = (
        dtype.type(0),
        source_hash("pipla.prox._kernels.tv_sweep", "pipla.prox._kernels.tv_rows"),
    )

    def enter(frame: int) -> int:
        return _serve(frame, like) if source else 0

    return handler(enter)
