"""Files that are written next to their target and then put in its place in one step.

Temporary names are `.NAME.xxxxxxxx.tmp`. One process writes a file at a time: what it finds under
a temporary name was left by one that was killed.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO


def write_whole(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    """Write a file with `fill`, and replace an existing one in one step."""
    for name in os.listdir(path.parent):
        if is_temporary(name, path.name):
            with suppress(OSError):
                (path.parent / name).unlink()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w+b") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp makes files that only their owner can read
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def is_temporary(name: str, of: str) -> bool:
    """Whether `name` is a temporary name for the file `of`."""
    return re.fullmatch(rf"\.{re.escape(of)}\.\w{{8}}\.tmp", name) is not None


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it; a pipe or a device, on which one could wait forever, is an error."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path.name} is not a regular file")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_writable(folder: Path) -> None:
    """Raise an `OSError` if no file can be created in this folder."""
    with tempfile.TemporaryFile(dir=folder):
        pass
