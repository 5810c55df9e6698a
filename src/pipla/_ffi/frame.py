r"""XLA's call frame, read in machine code: what all kernels compiled by numba share.

XLA hands over an `XLA_FFI_CallFrame`, whose layout is that of `pipla._ffi.ffi`, read here
as machine words. Nothing is copied and no lock is taken: a kernel may run in any thread, on several
devices at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic as typed_intrinsic

from pipla._ffi.ffi import (
    ArrayAttribute,
    Attributes,
    Buffer,
    Buffers,
    CallFrame,
    Extension,
    Interface,
    Metadata,
    Version,
)

#: Allowed changes of rounding. Unlike all of fastmath, they leave NaN and infinity alone.
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
#: Nothing here is called from Python: wrappers for that would take a third of the time to compile.
OPTIONS: dict[str, Any] = {
    "fastmath": FASTMATH,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
compiled = numba.njit(**OPTIONS)
inlined = numba.njit(**OPTIONS, forceinline=True)
intrinsic: Any = typed_intrinsic  # its type does not say that callers leave out the first argument


@intrinsic
def pointer(_: Any, address: Any, like: Any) -> Any:
    """An address as a pointer to numbers of the type of `like`."""
    result = types.CPointer(like)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(address, like), generate


@intrinsic
def offset(_: Any, start: Any, places: Any) -> Any:
    """A pointer to the number `places` after the one at `start`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_data_type(start.dtype)
        return builder.gep(arguments[0], [arguments[1]], source_etype=number)

    return start(start, places), generate


def _word(*path: Any) -> int:
    """The place of a field, in machine words; of a field within a field for a longer path."""
    place = sum(field.offset for field in path)
    assert place % 8 == 0
    return place // 8


# Places of the fields that are read. #
_WORDS = ctypes.sizeof(CallFrame) // 8
_EXTENSION, _API = _word(CallFrame.extension_start), _word(CallFrame.api)
_OPERANDS, _RESULTS = _word(CallFrame.operands), _word(CallFrame.results)
_LIST_SIZE, _LIST_ENTRIES = _word(Buffers.size), _word(Buffers.entries)
_ATTRIBUTES = _word(CallFrame.attributes, Attributes.entries)
_ARRAY_DATA = _word(ArrayAttribute.data)
_DATA, _RANK, _DIMS = _word(Buffer.data), _word(Buffer.rank), _word(Buffer.dims)
# Major and minor version share one word, the minor one being its upper half (little-endian).
_API_VERSION = _word(Interface.version, Version.major)
_METADATA = _word(Extension.metadata)
_METADATA_VERSION = _word(Metadata.version, Version.major)


@compiled
def read_words(address: Any, count: Any) -> Any:
    """The `count` machine words from an address on."""
    return numba.carray(pointer(address, np.intp(0)), (count,))


@compiled
def _read_word(address: Any, place: Any) -> Any:
    return read_words(address, place + 1)[place]


@compiled
def _entries(frame: Any, start: Any) -> Any:
    """The addresses of the entries of a list."""
    words = read_words(frame, _WORDS)
    return read_words(words[start + _LIST_ENTRIES], words[start + _LIST_SIZE])


@compiled
def operands(frame: Any) -> Any:
    """The addresses of the buffers that XLA gives."""
    return _entries(frame, _OPERANDS)


@compiled
def results(frame: Any) -> Any:
    """The addresses of the buffers that XLA wants filled."""
    return _entries(frame, _RESULTS)


@compiled
def attribute(frame: Any, count: Any) -> Any:
    """The `count` numbers of the only attribute, an array of integers."""
    first = _read_word(_read_word(frame, _ATTRIBUTES), 0)
    return read_words(_read_word(first, _ARRAY_DATA), count)


@compiled
def shape(buffer: Any) -> Any:
    """The shape of a buffer."""
    return read_words(_read_word(buffer, _DIMS), _read_word(buffer, _RANK))


@compiled
def batch_size(buffer: Any) -> Any:
    """The number of particles in a buffer that has one number for each."""
    count = 1
    for length in shape(buffer):
        count *= length
    return count


@compiled
def particle(buffer: Any, which: Any, size: Any, like: Any) -> Any:
    """The `size` numbers of one particle in a buffer of all particles."""
    return offset(pointer(_read_word(buffer, _DATA), like), which * size)


@compiled
def is_metadata_query(frame: Any) -> Any:
    """Whether XLA only asks for the version of the interface: major 0, minor its own."""
    extension, interface = _read_word(frame, _EXTENSION), _read_word(frame, _API)
    if extension == 0:
        return False
    minor = _read_word(interface, _API_VERSION) >> 32 if interface != 0 else 1
    metadata = _read_word(extension, _METADATA)
    read_words(metadata, _METADATA_VERSION + 1)[_METADATA_VERSION] = minor << 32
    return True


def source_hash(*modules: str) -> str:
    """A hash of the files of these modules, of this one and of the layout.

    Numba's cache depends on the file of the entry and on what the entry encloses: it encloses this.
    """
    names = ("pipla._ffi.ffi", __name__, *modules)
    paths = (Path(str(sys.modules[name].__file__)) for name in names)
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def handler(entry: Callable[[int], int]) -> int:
    """The address of an entry for XLA, compiled or from numba's cache."""
    kind = types.intp(types.intp)
    try:
        code: Any = numba.cfunc(kind, cache=True)(entry)
    except RuntimeError:  # no folder for a cache is writable
        code = numba.cfunc(kind)(entry)
    _KEPT.append(code)
    return code.address


_KEPT: list[Any] = []  # machine code that XLA may still call
