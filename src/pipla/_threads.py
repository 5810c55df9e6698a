"""OpenBLAS's pool of threads under the SVDs of small matrices.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
