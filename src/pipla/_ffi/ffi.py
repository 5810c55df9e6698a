r"""Kernels compiled by numba in JAX programs on CPUs, through XLA's foreign function interface.

Numba and the kernels are imported when they are first needed. Without numba, on other platforms and
with a version of XLA whose call frame has another layout, the JAX twin does the work.

A kernel reads the call frame at fixed offsets (`pipla._ffi.frame`), so a change of layout
would corrupt memory. Therefore `layout_is_known` runs a probe first, once per process: a handler
that does nothing but compare the sizes that XLA writes into its structures.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import threading
import warnings
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# The structures of xla/ffi/api/c_api.h, field by field. Their first field is their size in bytes. #


class Extension(ctypes.Structure):
    """`XLA_FFI_Metadata_Extension`: a call that only asks for the handler's metadata."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("type", c_int),
        ("next", c_void_p),
        ("metadata", c_void_p),
    )


class Version(ctypes.Structure):
    """`XLA_FFI_Api_Version`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension_start", c_void_p),
        ("major", c_int),
        ("minor", c_int),
    )


class Metadata(ctypes.Structure):
    """`XLA_FFI_Metadata`."""

    _fields_ = (("struct_size", c_size_t), ("version", Version), ("traits", c_uint32))


class Interface(ctypes.Structure):
    """The beginning of `XLA_FFI_Api`."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension_start", c_void_p),
        ("version", Version),
    )


class Buffer(ctypes.Structure):
    """`XLA_FFI_Buffer`: an operand or a result."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension_start", c_void_p),
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    )


class Buffers(ctypes.Structure):
    """`XLA_FFI_Args` and `XLA_FFI_Rets`: the list of operands, and that of results."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension_start", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("entries", POINTER(c_void_p)),
    )


class Attributes(ctypes.Structure):
    """`XLA_FFI_Attrs`: the list of attributes."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension_start", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("names", POINTER(c_char_p)),
        ("entries", POINTER(c_void_p)),
    )


class ArrayAttribute(ctypes.Structure):
    """`XLA_FFI_Array`: an attribute that is an array. It has no size field."""

    _fields_ = (("dtype", c_int), ("size", c_size_t), ("data", POINTER(c_int64)))


class CallFrame(ctypes.Structure):
    """`XLA_FFI_CallFrame`: what XLA gives to a handler."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("extension_start", c_void_p),
        ("api", c_void_p),
        ("context", c_void_p),
        ("stage", c_int),
        ("operands", Buffers),
        ("results", Buffers),
        ("attributes", Attributes),
    )


#: The version whose layout this is: a new major one may rearrange it. A new minor one adds fields,
#: which the sizes show.
API_MAJOR = 0


def _expected(structure: type[ctypes.Structure]) -> int:
    """The size that XLA writes into a structure: up to its last field, without padding."""
    name = structure._fields_[-1][0]
    field = getattr(structure, name)
    return field.offset + field.size


#: The sizes that XLA must write for the layout to be the one above.
STRUCT_SIZES = {
    structure.__name__: _expected(structure)
    for structure in (Extension, Version, Metadata, Buffer, Buffers, Attributes, CallFrame)
}


class LayoutError(RuntimeError):
    """XLA's structures are not those that the kernels were written for."""


def _read(structure: Any, address: int | None) -> Any:
    """The structure at an address, if its size, which is always its first word, is as expected."""
    name = structure.__name__
    size = c_size_t.from_address(address).value if address else None
    if size != STRUCT_SIZES[name]:
        raise LayoutError(f"{name} has size {size}, not {STRUCT_SIZES[name]}")
    return structure.from_address(address)


def _check(name: str, got: Any, wanted: Any) -> None:
    if got != wanted:
        raise LayoutError(f"{name} is {got}, not {wanted}")


_SHAPE, _NUMBERS = (2, 3), (5, -7, 11)  # what the probe is given, and must find


def _validate(address: int) -> bool:
    """Check a call frame against the layout; returns whether it is a call, not a metadata query."""
    frame = _read(CallFrame, address)
    # The other fields of the interface differ from version to version: only its head is read.
    version = Version(major=API_MAJOR, minor=1)
    if frame.api:
        version = _read(Version, frame.api + Interface.version.offset)
        _check("the major version of XLA's interface", version.major, API_MAJOR)
    if frame.extension_start:
        metadata = _read(Metadata, _read(Extension, frame.extension_start).metadata)
        answer = _read(Version, ctypes.addressof(metadata) + Metadata.version.offset)
        answer.major, answer.minor = version.major, version.minor
        return False
    for name in ("operands", "results"):
        buffers = _read(Buffers, address + getattr(CallFrame, name).offset)
        _check(f"the number of {name}", buffers.size, 1)
        buffer = _read(Buffer, buffers.entries[0])
        _check(f"the rank of the {name}", buffer.rank, len(_SHAPE))
        _check(f"the shape of the {name}", tuple(buffer.dims[: len(_SHAPE)]), _SHAPE)
    attributes = _read(Attributes, address + CallFrame.attributes.offset)
    _check("the number of attributes", attributes.size, 1)
    numbers = ArrayAttribute.from_address(attributes.entries[0])
    _check("the length of the attribute", numbers.size, len(_NUMBERS))
    _check("the attribute", tuple(numbers.data[: len(_NUMBERS)]), _NUMBERS)
    return True


_HANDLER = ctypes.CFUNCTYPE(c_void_p, c_void_p)
_PROBES = itertools.count()
_KEPT: list[Any] = []  # handlers that XLA may still call


def _probe() -> None:
    """Let XLA call a handler that only validates the call frame; raises what is wrong with it."""
    failures: list[Exception] = []
    calls: list[bool] = []

    def handle(address: int) -> None:
        try:
            calls.append(_validate(address))
        except Exception as error:  # must not pass through XLA
            failures.append(error)

    handler = _HANDLER(handle)
    _KEPT.append(handler)
    name = f"pipla_probe_{next(_PROBES)}"
    address = ctypes.cast(handler, c_void_p).value

    def run() -> None:
        try:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
            if failures:
                return
            # Integers: the result is never written, and a check for NaN must not stop it.
            result = jax.ShapeDtypeStruct(_SHAPE, np.int32)
            call = jax.ffi.ffi_call(name, result, has_side_effect=True)
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                x = jnp.zeros(_SHAPE, np.int32)
                jax.jit(lambda x: call(x, numbers=np.array(_NUMBERS)))(x).block_until_ready()
        except Exception as error:
            failures.append(error)

    # In a thread of its own: the caller may be tracing, which is a state of its thread.
    thread = threading.Thread(target=run, name="pipla-probe")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    if not any(calls):
        raise LayoutError("XLA did not call the probe")


@functools.cache
def layout_is_known() -> bool:
    """Whether XLA's call frame has the layout that kernels read; if not, a warning says so."""
    try:
        _probe()
    except Exception as error:
        warnings.warn(
            "pipla's machine code is off, and XLA's form is used instead, which is slower: this "
            f"version of jaxlib calls foreign functions differently ({error}).",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


_LOCK = threading.Lock()  # of what follows: several threads may need a kernel for the first time
_REGISTERED: set[str] = set()


def target(module: str, dtype: Any) -> str | None:
    """The name by which XLA calls the kernel in this module; `None` where there is none."""
    if dtype not in (np.float32, np.float64) or jax.default_backend() != "cpu":
        return None
    with _LOCK:
        return _registered(module, np.dtype(dtype))


def _registered(module: str, dtype: np.dtype) -> str | None:
    """The kernel's name. It is compiled now if it never was."""
    name = f"pipla_{module.rpartition('.')[2]}_{dtype.name}"
    try:
        kernel = importlib.import_module(module)
    except ImportError:  # no numba, or none for this version of NumPy
        return None
    if not layout_is_known():
        return None
    if name not in _REGISTERED:
        capsule = jax.ffi.pycapsule(kernel.address(dtype))
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        _REGISTERED.add(name)
    return name


def on_cpu(kernel: Callable[..., Any] | None, portable: Callable[..., Any], *at: Any) -> Any:
    """The kernel on CPUs, if there is one; its derivatives are those of the JAX form."""
    if kernel is None:
        return portable(*at)
    native = jax.custom_jvp(kernel)
    native.defjvp(lambda at, tangents: jax.jvp(portable, at, tangents))
    return jax.lax.platform_dependent(*at, cpu=native, default=portable)
