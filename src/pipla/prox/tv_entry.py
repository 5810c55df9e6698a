r"""How XLA calls `pipla.prox.tv_kernel`: an FFI handler in machine code, without Python.

XLA hands over an `XLA_FFI_CallFrame` (xla/ffi/api/c_api.h of jaxlib), read here as machine words.
Nothing is copied, no lock is taken: it may run in any thread, on several devices at once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import types

from pipla.prox.tv_kernel import solve, value
from pipla.prox.tv_layout import Field, Form, Rows
from pipla.prox.tv_rows import compiled, moved, pointer


@compiled
def _words(address: Any, count: Any) -> Any:
    return numba.carray(pointer(address, np.intp(0)), (count,))


@compiled
def _particle(buffer: Any, which: Any, size: Any, like: Any) -> Any:
    """A particle's array in a buffer of all of them."""
    return moved(pointer(_words(buffer, 4)[3], like), which * size)


@compiled
def _field(table: Any, which: Any, form: Any, width: Any, zeros: Any) -> Any:
    """A particle's dual: the buffers from the second on are for the directions that there are."""
    depth = rows = cols = Rows(zeros, width, 0)
    size, like, buffer = form.total * width, zeros[0], 1
    if form.depth > 1:
        depth = Rows(_particle(table[buffer], which, size, like), width, -1)
        buffer += 1
    if form.rows > 1:
        rows = Rows(_particle(table[buffer], which, size, like), width, -1)
        buffer += 1
    if form.cols > 1:
        cols = Rows(_particle(table[buffer], which, size, like), width, -1)
    return Field(depth, rows, cols)


@compiled
def _serve(frame: Any, like: Any) -> Any:
    """The prox: operands x, the dual of each direction, shift, tolerance; results u, dual, gap.

    The dual is worked on in place: XLA gives it as operand and as result. The value has the operand
    x and a single result. Under `vmap` every buffer holds all particles.
    """
    words = _words(frame, 21)
    if words[1] != 0:  # XLA asks for the version of the interface: major 0, minor its own
        minor = _words(words[2], 5)[4] >> 32 if words[2] != 0 else 1
        _words(_words(words[1], 4)[3], 4)[3] = minor << 32
        return 0
    operands, results = _words(words[9], words[7]), _words(words[14], words[12])
    n = _words(_words(_words(words[20], 1)[0], 3)[2], 8)  # the only attribute: see `tv_native`
    form = Form(n[0] * n[1] * n[2], n[1], n[2], n[3], n[4], n[5], n[6], n[7])
    width = form.cols * form.inner
    size = form.total * width
    scalars = results[len(results) - 1]  # of values, or of gaps
    particles = 1
    for length in _words(_words(scalars, 6)[5], _words(scalars, 6)[4]):
        particles *= length
    if len(results) == 1:
        for which in range(particles):
            x = Rows(_particle(operands[0], which, size, like), width, -1)
            _particle(scalars, which, 1, like)[0] = value(x, form, like)
        return 0
    shifts, tolerances = operands[len(operands) - 2], operands[len(operands) - 1]
    nothing = np.zeros(2 * width, np.asarray(like).dtype)  # rows are read from -inner on
    zeros = moved(pointer(nothing.ctypes.data, like), width)
    for which in range(particles):
        gap = solve(
            Rows(_particle(operands[0], which, size, like), width, -1),
            _field(results, which, form, width, zeros),
            Rows(_particle(results[0], which, size, like), width, -1),
            zeros,
            form,
            _particle(shifts, which, 1, like)[0],
            _particle(tolerances, which, 1, like)[0],
        )
        _particle(scalars, which, 1, like)[0] = gap
    return np.intp(nothing[0])  # 0: no error; and it was alive until here


def address(dtype: np.dtype) -> int:
    """The address of the handler for arrays of `dtype`, compiled or from numba's cache."""
    # Numba's cache looks at the file of the entry and at what it encloses: enclose the others.
    others = (Path(__file__).with_name(f"tv_{name}.py") for name in ("kernel", "layout", "rows"))
    version = hashlib.sha256(b"".join(path.read_bytes() for path in others)).hexdigest()
    like = dtype.type(0)

    def enter(frame: int) -> int:
        return _serve(frame, like) if version else 0

    kind = types.intp(types.intp)
    try:
        handler: Any = numba.cfunc(kind, cache=True)(enter)
    except RuntimeError:  # there is no place for a cache
        handler = numba.cfunc(kind)(enter)
    _KEPT.append(handler)
    return handler.address


_KEPT: list[Any] = []  # machine code that XLA may still call
