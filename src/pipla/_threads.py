"""Threads: XLA's pool for programs of many small steps, and OpenBLAS's pool under their SVDs.

A Langevin step is a sequence of many small operations. XLA hands them to the threads of its pool,
and handing over costs as much as a small operation itself. On a quiet machine a program of small
steps takes a little longer with the pool than without, and more CPU time; on a busy one, where a
thread may wait for its core, up to several times as long. `make bench` measures the difference.
Cores are better used by whole runs (`pipla.sweep` distributes replicates over devices).

The pool belongs to the process. No compiler option of jaxlib 0.10 keeps a single program off it:
`xla_cpu_multi_thread_eigen`, `xla_cpu_scheduler_type`, `xla_cpu_experimental_ynn_fusion_type` and
`xla_cpu_use_xnnpack` were tried, alone and together, and the steps still moved between threads.
Large products need the pool. Therefore importing pipla sets no environment variable. Call
`one_thread_per_device()` yourself, before JAX touches a device; the command line `pipla` does so.
GPUs and TPUs are not affected.

JAX's SVD and eigh on the CPU call LAPACK in the OpenBLAS that comes with SciPy, which has a pool of
its own and splits even small matrices over it. `one_blas_thread()` limits that while a chunk runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def one_thread_per_device() -> bool:
    """Ask XLA for one thread per CPU device, unless the user has chosen otherwise.

    This sets `PJRT_NPROC=1` for this process and its children, for all JAX code in them. XLA reads
    the variable when JAX first touches a device; a later call has no effect, and warns. The user's
    choice comes first: with `PIPLA_THREADS=all`, or with `PJRT_NPROC` already set, the environment
    stays as it is.

    Returns:
        Whether XLA uses one thread per CPU device.
    """
    if os.environ.get("PIPLA_THREADS") == "all":
        return False
    if "PJRT_NPROC" in os.environ:
        return os.environ["PJRT_NPROC"] == "1"
    if _jax_has_started():
        warnings.warn(
            "one_thread_per_device() has no effect: JAX has already started its CPU client. Call "
            "it before the first JAX computation, or set PJRT_NPROC=1 before starting Python.",
            stacklevel=2,
        )
        return False
    os.environ["PJRT_NPROC"] = "1"
    return True


def _jax_has_started() -> bool:
    """Whether JAX has created its devices; `False` where this JAX does not tell."""
    try:
        # The public questions (`jax.devices()`) would themselves start JAX.
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return False
    return backends_are_initialized()


#: Variables by which a user chooses the threads of OpenBLAS.
_CHOSEN = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "GOTO_NUM_THREADS")
_lock = threading.Lock()
_inside: list[Any] = []  # one entry per block that is open; the first holds what to restore


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread for the OpenBLAS under JAX's SVD and eigh, as long as the block lasts.

    The setting belongs to the process: code in other threads that calls SciPy meanwhile has one
    thread, too. NumPy has an OpenBLAS of its own, which is left alone. Nothing happens where the
    user has chosen a number (`OPENBLAS_NUM_THREADS`, `OMP_NUM_THREADS`), or where no such library
    is loaded.
    """
    pool = None if any(name in os.environ for name in _CHOSEN) else _openblas()
    if pool is None:
        yield
        return
    read, write = pool
    with _lock:
        _inside.append(read())
        write(1)
    try:
        yield
    finally:
        with _lock:
            # Blocks in several threads may end in any order: the last one restores the first.
            first = _inside[0]
            _inside.pop()
            if not _inside:
                write(first)


def _openblas() -> tuple[Any, Any] | None:
    """How to read and write the number of threads of SciPy's OpenBLAS, if it is loaded."""
    noload = getattr(os, "RTLD_NOLOAD", None)  # not on Windows
    if noload is None:
        return None
    for path in _openblas_files():
        # Only if something has loaded it: what makes no decomposition does not need it.
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(path, mode=noload)
            return (
                library.scipy_openblas_get_num_threads,
                library.scipy_openblas_set_num_threads,
            )
    return None


@functools.cache
def _openblas_files() -> tuple[str, ...]:
    spec = importlib.util.find_spec("scipy")
    if spec is None or spec.origin is None:
        return ()
    package = Path(spec.origin).parent
    folders = (package.parent / "scipy.libs", package / ".dylibs")
    return tuple(str(file) for folder in folders for file in folder.glob("libscipy_openblas*"))
