r"""The total variation prox of `pipla.prox.total_variation` as machine code for CPUs, by numba.

The algorithm is that of the JAX form; what differs is the order of the work. An iteration at row i
needs the one before it up to row i + 1 only, so the iterations of a chunk follow each other down
the image, each one row behind, and memory is passed once for all of them: `_sweep`. In three
dimensions they are one plane apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.prox._kernels.ffi import compiled, inlined, moved, pointer
from pipla.prox._kernels.tv_layout import (
    BOTTOM,
    Field,
    Rows,
    Work,
    all_places,
    row,
    rows_after,
    rows_at,
    rows_before,
)
from pipla.prox._kernels.tv_rows import (
    add,
    advance,
    advance_isotropic,
    apart,
    climb,
    copy,
    excess,
    fill,
    gather,
    look,
    project,
    separation,
    shrinkage,
    step,
    variation,
)

#: So many numbers fill whole cache lines.
LINE = 16

#: Iterations between two looks at the duality gap: as in the JAX form.
CHUNK = 5


@inlined
def _primal(w: Any, u: Any, i: Any) -> None:
    """Row i of u = x - shift Dᵀq."""
    here, q, before = row(u, i), rows_at(w.q, i), rows_before(w, w.q, i)
    fill(here, row(w.x, i), w.shift, q.cols, q.rows, before.rows, w.width, w.form.inner)
    if w.form.depth > 1:
        add(here, w.shift, q.depth, before.depth, w.width)


@inlined
def _iterate(w: Any, u: Any, i: Any, momentum: Any) -> None:
    """Row i of one accelerated projected gradient step, given u."""
    form, rate, width = w.form, w.rate, w.width
    p, q, here = rows_at(w.p, i), rows_at(w.q, i), row(u, i)
    deeper, below = rows_after(u, i, w.places, w.lag)
    right = moved(here, form.inner)
    if form.isotropic:
        if form.cols > 1:
            step(q.cols, here, right, rate, width)
        if form.rows > 1:
            step(q.rows, here, below, rate, width)
        if form.depth > 1:
            step(q.depth, here, deeper, rate, width)
        shrinkage(w.factor, q.depth, q.rows, q.cols, rate, width)
        if form.cols > 1:
            project(q.cols, p.cols, w.factor, momentum, width)
        if form.rows > 1:
            project(q.rows, p.rows, w.factor, momentum, width)
        if form.depth > 1:
            project(q.depth, p.depth, w.factor, momentum, width)
    else:
        if form.cols > 1:
            climb(q.cols, p.cols, here, right, rate, momentum, width)
        if form.rows > 1:
            climb(q.rows, p.rows, here, below, rate, momentum, width)
        if form.depth > 1:
            climb(q.depth, p.depth, here, deeper, rate, momentum, width)


@inlined
def _both(w: Any, u: Any, i: Any, momentum: Any) -> None:
    """`_primal` of row i + 1 and `_iterate` of row i at once, where both are inside an image."""
    p, q, after = rows_at(w.p, i), rows_at(w.q, i), rows_at(w.q, i + 1)
    these = (
        row(u, i + 1), row(u, i), row(w.x, i + 1), after.cols, after.rows, q.cols, q.rows,
        p.cols, p.rows,
    )  # fmt: skip
    numbers = w.shift, w.rate, momentum
    if w.form.isotropic:
        advance_isotropic(these, numbers, w.width, w.form.inner)
    else:
        advance(these, numbers, w.width, w.form.inner)


@inlined
def _look(w: Any, u: Any, i: Any) -> Any:
    """`_primal` of row i + 1 and its `_apart`, and `_excess` of row i, inside an image."""
    p, q = rows_at(w.p, i), rows_at(w.q, i)
    p_after, q_after = rows_at(w.p, i + 1), rows_at(w.q, i + 1)
    these = (
        row(u, i + 1), row(u, i), row(w.x, i + 1), q_after.cols, q_after.rows, q.rows,
        p.cols, p.rows, p_after.cols, p_after.rows,
    )  # fmt: skip
    numbers = w.shift, w.rate, type(w.rate)(w.form.isotropic)
    return look(these, numbers, w.width, w.form.inner)


@inlined
def _excess(w: Any, u: Any, i: Any) -> Any:
    """What row i adds to |Du| - <p, Du>."""
    deeper, below = rows_after(u, i, w.places, w.lag)
    p, here = rows_at(w.p, i), row(u, i)
    return excess(w.form.isotropic, p, here, deeper, below, w.rate, w.width, w.form.inner)


@inlined
def _apart(w: Any, i: Any) -> Any:
    """What row i adds to |Dᵀ(q - p)|²."""
    p, q = rows_at(w.p, i), rows_at(w.q, i)
    p_before, q_before = rows_before(w, w.p, i), rows_before(w, w.q, i)
    away = w.zeros
    if w.form.depth > 1:
        away = w.factor
        separation(away, p.depth, q.depth, p_before.depth, q_before.depth, w.width)
    return apart(p, q, p_before.rows, q_before.rows, away, w.rate, w.width, w.form.inner)


@inlined
def _take(to: Any, origin: Any, i: Any, form: Any, width: Any) -> None:
    """Row i of a dual."""
    if form.cols > 1:
        copy(row(to.cols, i), row(origin.cols, i), width)
    if form.rows > 1:
        copy(row(to.rows, i), row(origin.rows, i), width)
    if form.depth > 1:
        copy(row(to.depth, i), row(origin.depth, i), width)


@compiled
def _sweep(w: Any, age: Any, iterations: Any, first: Any) -> Any:
    """Some iterations, and the gap after them. In the `first` sweep q starts from p."""
    total, lag, width, inner = w.form.total, w.lag, w.width, w.form.inner
    plane = w.form.depth == 1 and w.form.rows > 1 and w.form.cols > 1
    gap = 0.0
    for front in range(total + (iterations + 1) * lag):
        if first and front < total:
            _take(w.q, w.p, front, w.form, width)
        for level in range(iterations + 1):
            # Level l has the u of the l-th dual, and makes the next one a `lag` behind it.
            new = front - level * lag
            old = new - lag
            ring = (w.levels.mask + 1) * w.levels.stride
            u = Rows(moved(w.levels.start, level * ring), w.levels.stride, w.levels.mask)
            momentum = type(w.rate)((age + level) / (age + level + 3))
            inside = plane and old >= 0 and new < total and not w.places[old] & BOTTOM
            if inside and level < iterations:
                _both(w, u, old, momentum)
            elif inside:
                near, away = _look(w, u, old)
                gap += near + 0.5 * w.shift * away
            elif 0 <= new < total:
                _primal(w, u, new)
                if level == iterations:
                    gap += 0.5 * w.shift * _apart(w, new)
            if 0 <= new < total:
                here = row(u, new)
                copy(moved(here, width), moved(here, width - inner), inner)
                if level == iterations:
                    copy(row(w.u, new), here, width)
            if 0 <= old < total:
                if level < iterations and not inside:
                    _iterate(w, u, old, momentum)
                if level == iterations and not inside:
                    gap += _excess(w, u, old)
    return gap


@compiled
def _enough(w: Any, tolerance: Any) -> Any:
    """The gap at which to stop. Sums start from the first element, lest a large mean cancel."""
    form, width, inner = w.form, w.width, w.form.inner
    height = form.depth * form.rows
    size = spread = 0.0
    sums = np.empty(3 * width, np.asarray(w.rate).dtype)
    origin = pointer(sums.ctypes.data, w.rate)
    total, squares = moved(origin, width), moved(origin, 2 * width)
    for first in range(0, form.total, height):
        sums[:] = 0
        for j in range(width):
            sums[j] = row(w.x, first)[j % inner]
        for i in range(first, first + height):
            size += gather(row(w.x, i), origin, total, squares, w.rate, width)
        for c in range(inner):
            one = np.sum(sums[width + c : 2 * width : inner])
            two = np.sum(sums[2 * width + c :: inner])
            spread += two - one * one / (height * form.cols)
    scale = min(form.total * width * w.shift, 0.5 * spread * (4 * form.directions * w.rate))
    return tolerance * scale + form.directions * np.finfo(sums.dtype).eps * size


@compiled
def value(x: Any, form: Any, like: Any) -> Any:
    """The total variation of one particle. Rows are added up in double precision."""
    places, lag, total = all_places(form), _lag(form), 0.0
    width, inner = form.cols * form.inner, form.inner
    for i in range(form.total):
        deeper, below = rows_after(x, i, places, lag)
        total += variation(form.isotropic, row(x, i), deeper, below, like, width, inner)
    return type(like)(total)


@compiled
def _lag(form: Any) -> Any:
    """How many rows lie between a row and the one behind it, or below it in a single plane."""
    return form.rows if form.depth > 1 else 1


@compiled
def _capacity(rows: Any) -> Any:
    """The smallest power of 2 that is not smaller."""
    capacity = 1
    while capacity < rows:
        capacity *= 2
    return capacity


@compiled
def solve(x: Any, p: Any, u: Any, zeros: Any, form: Any, shift: Any, tolerance: Any) -> Any:
    """The prox of one particle: fills `u`, improves the dual `p` and returns the gap."""
    width, inner, number = form.cols * form.inner, form.inner, type(shift)
    lag = _lag(form)
    # All of the extrapolated dual is needed only from one chunk to the next.
    ring, window = _capacity(lag + 1), _capacity((CHUNK + 3) * lag + 1)
    full = form.max_iterations > CHUNK or window > form.total
    kept, mask = (form.total, -1) if full else (window, window - 1)
    # Rows start at cache lines (16 numbers or 8 of them), after what is to the left of them.
    margin = (inner + LINE - 1) // LINE * LINE
    stride = (width + LINE - 1) // LINE * LINE + margin
    # Rows that are used together must not lie multiples of 4096 bytes apart: caches have too few
    # places for such addresses.
    plane = kept * stride + 17 * LINE
    scratch = np.empty(((CHUNK + 1) * ring + 2) * stride + 3 * plane, np.asarray(shift).dtype)
    levels = pointer((scratch.ctypes.data + 63) // 64 * 64, shift)
    ahead = moved(levels, (CHUNK + 1) * ring * stride + margin)
    nothing = Rows(zeros, stride, 0)
    q = Field(
        Rows(ahead, stride, mask) if form.depth > 1 else nothing,
        Rows(moved(ahead, plane), stride, mask) if form.rows > 1 else nothing,
        Rows(moved(ahead, 2 * plane), stride, mask) if form.cols > 1 else nothing,
    )
    if form.cols > 1:
        for i in range(kept):
            for j in range(inner):
                q.cols.start[i * stride + j - inner] = 0
    floor = number(np.finfo(scratch.dtype).tiny ** 0.25)
    rate = number(1) / (number(4 * form.directions) * max(shift, floor))
    w = Work(
        x, p, q, u, Rows(levels, stride, ring - 1), moved(ahead, 3 * plane),
        zeros, all_places(form), form, width, lag, shift, rate,
    )  # fmt: skip
    gap, age, last = _sweep(w, 0.0, CHUNK, True), 0.0, np.inf
    if form.max_iterations > CHUNK:
        enough = _enough(w, tolerance)
        for _ in range(CHUNK, form.max_iterations, CHUNK):
            if not gap > enough:
                break
            # A rising gap means that the momentum has overshot: let it grow afresh.
            age = 0.0 if gap > last else age + CHUNK
            last, gap = gap, _sweep(w, age, CHUNK, False)
    scratch[0] = 0  # until here it was alive
    return gap
