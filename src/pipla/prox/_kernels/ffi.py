r"""What kernels by numba share: how they are compiled, and how XLA calls them, without Python.

XLA hands over an `XLA_FFI_CallFrame` (xla/ffi/api/c_api.h of jaxlib), read here as machine words.
Nothing is copied, no lock is taken: a kernel may run in any thread, on several devices at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic as typed_intrinsic

#: What may be rounded differently. Unlike all of fastmath, it leaves NaN and infinity alone.
LICENCE = {"contract", "reassoc", "nsz", "arcp"}
#: Nothing here is called from Python: wrappers for that would take a third of the time to compile.
OPTIONS: dict[str, Any] = {
    "fastmath": LICENCE,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
compiled = numba.njit(**OPTIONS)
inlined = numba.njit(**OPTIONS, forceinline=True)
intrinsic: Any = typed_intrinsic  # whose types do not know that the first argument is not given


@intrinsic
def pointer(_: Any, address: Any, like: Any) -> Any:
    """An address as a pointer to numbers of the type of `like`."""
    result = types.CPointer(like)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(address, like), generate


@intrinsic
def moved(_: Any, start: Any, places: Any) -> Any:
    """A pointer, some numbers further on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_data_type(start.dtype)
        return builder.gep(arguments[0], [arguments[1]], source_etype=number)

    return start(start, places), generate


#: Places in a call frame: what is asked besides a call, and where the three lists begin. A list is
#: its size in bytes, an extension, its length, the types and the addresses of its entries.
ASKED, OPERANDS, RESULTS, ATTRIBUTES = 1, 5, 10, 15
FRAME = 21


@compiled
def words(address: Any, count: Any) -> Any:
    """So many machine words from an address on."""
    return numba.carray(pointer(address, np.intp(0)), (count,))


@compiled
def _entries(frame: Any, start: Any) -> Any:
    """The addresses of the entries of a list."""
    place = words(frame, FRAME)
    return words(place[start + 4], place[start + 2])


@compiled
def operands(frame: Any) -> Any:
    """The addresses of the buffers that XLA gives."""
    return _entries(frame, OPERANDS)


@compiled
def results(frame: Any) -> Any:
    """The addresses of the buffers that XLA wants filled."""
    return _entries(frame, RESULTS)


@compiled
def attribute(frame: Any, count: Any) -> Any:
    """The numbers of the only attribute, an array of integers."""
    values = words(frame, FRAME)[ATTRIBUTES + 5]  # names come before them
    return words(words(words(values, 1)[0], 3)[2], count)


@compiled
def lengths(buffer: Any) -> Any:
    """The shape of a buffer."""
    buffer = words(buffer, 6)
    return words(buffer[5], buffer[4])


@compiled
def how_many(buffer: Any) -> Any:
    """The number of particles in a buffer that has one number for each."""
    count = 1
    for length in lengths(buffer):
        count *= length
    return count


@compiled
def particle(buffer: Any, which: Any, size: Any, like: Any) -> Any:
    """A particle's numbers, so many of them, in a buffer of all particles."""
    return moved(pointer(words(buffer, 4)[3], like), which * size)


@compiled
def only_asks(frame: Any) -> Any:
    """Whether XLA only asks for the version of the interface: major 0, minor its own."""
    place = words(frame, FRAME)
    if place[ASKED] == 0:
        return False
    interface = place[ASKED + 1]
    minor = words(interface, 5)[4] >> 32 if interface != 0 else 1
    words(words(place[ASKED], 4)[3], 4)[3] = minor << 32
    return True


def version(*modules: str) -> str:
    """What changes when one of these files does, or this one.

    Numba's cache looks at the file of the entry and at what it encloses: let it enclose this.
    """
    paths = (Path(__file__).with_name(f"{name}.py") for name in ("ffi", *modules))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def handler(entry: Callable[[int], int]) -> int:
    """The address of an entry for XLA, compiled or from numba's cache."""
    kind = types.intp(types.intp)
    try:
        code: Any = numba.cfunc(kind, cache=True)(entry)
    except RuntimeError:  # there is no place for a cache
        code = numba.cfunc(kind)(entry)
    _KEPT.append(code)
    return code.address


_KEPT: list[Any] = []  # machine code that XLA may still call
