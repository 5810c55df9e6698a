"""Two switches for the whole process: a cache of compiled programs, and one thread per CPU device.

Importing pipla sets neither; the command line `pipla` sets both.

**The cache.** A first run spends most of its time compiling. JAX can keep compiled programs on
disk, where later processes find them. JAX itself names the files by the program, its options, the
versions of JAX and XLA and the CPU or accelerator, so that a wrong one is never taken.

**Threads.** A Langevin step is a sequence of many small operations. XLA hands them to the threads
of its pool, and handing over costs as much as a small operation itself. On a quiet machine a
program of small steps takes a little longer with the pool than without, and more CPU time; on a
busy one, where a thread may wait for its core, up to several times as long. `make bench` measures
the difference. Cores are better used by whole runs (`pipla.sweep` distributes replicates over
devices).

The pool belongs to the process. No compiler option of jaxlib 0.10 keeps a single program off it:
`xla_cpu_multi_thread_eigen`, `xla_cpu_scheduler_type`, `xla_cpu_experimental_ynn_fusion_type` and
`xla_cpu_use_xnnpack` were tried, alone and together, and the steps still moved between threads.
Large products need the pool. Call `one_thread_per_device()` before JAX touches a device.
GPUs and TPUs are not affected.
"""

from __future__ import annotations

import os
import stat
import sys
import warnings
from pathlib import Path
from typing import Any


def enable_cache(folder: str | Path | None = None) -> Path | None:
    """Keep compiled programs on disk, for this and later processes.

    It holds for all JAX code of this process from here on. The user's choice comes first: with
    `PIPLA_CACHE=0` nothing happens, and where JAX already has a folder
    (`JAX_COMPILATION_CACHE_DIR`, `jax_compilation_cache_dir`) that one stays.

    Arguments:
        folder: where; by default `pipla/programs` in the user's cache folder. It is made if it
            does not exist, for this user only (mode 0700). Files in it are programs that will be
            run: a folder that others may write to is refused. It may be deleted at any time, and
            nothing else limits its size.

    Returns:
        The folder in use, or `None` if there is none.

    Example:
        >>> import tempfile, pipla.config
        >>> pipla.config.enable_cache(tempfile.mkdtemp())  # doctest: +SKIP
    """
    if os.environ.get("PIPLA_CACHE") == "0":
        return None
    import jax

    config: Any = jax.config  # whose options no type checker sees
    if config.jax_compilation_cache_dir is not None:
        return Path(config.jax_compilation_cache_dir)
    folder = _private(Path(folder) if folder is not None else default_folder())
    config.update("jax_compilation_cache_dir", str(folder))
    # JAX leaves out what compiles in less than a second; a start is made of such programs.
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    _notice_new_folder()
    return folder


def default_folder() -> Path:
    """`pipla/programs` in the user's cache folder."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # the standard ignores relative ones
        caches = Path(given)
    elif sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path.home() / ".cache"
    return caches / "pipla" / "programs"


def _private(folder: Path) -> Path:
    """The folder, made if need be; an error where someone else could put programs into it."""
    folder = folder.expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"folder {folder} can be written to by other users, and what lies in it is run as "
                "a program: choose a folder of your own, or `chmod 700` it."
            )
    return folder


def _notice_new_folder() -> None:
    """Let JAX look at its settings again: it does so only once, when it first compiles."""
    from jax.experimental.compilation_cache import compilation_cache

    compilation_cache.reset_cache()


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
