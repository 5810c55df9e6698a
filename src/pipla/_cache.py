"""JAX's cache of compiled programs, in a folder of the user's own.

A first run spends most of its time compiling. JAX can keep compiled programs on disk, where later
processes find them. JAX itself names the files by the program, its options, the versions of JAX
and XLA and the CPU or accelerator, so that a wrong one is never taken. The command line `pipla`
uses the cache; a library has to be asked: `pipla.enable_cache()`.
"""

from __future__ import annotations

import os
import stat
import sys
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
        >>> import tempfile, pipla
        >>> pipla.enable_cache(tempfile.mkdtemp())  # doctest: +SKIP
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
