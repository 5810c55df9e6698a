"""Atomic files and folders: written next to the target, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


def claim(path: str | Path, names: Collection[str], what: str) -> Path:
    """Check, before any work is done, that a folder may and can be written.

    An existing folder is replaced only if it is empty or holds exactly the files `names`. Missing
    parent folders are created.

    Arguments:
        path: the folder.
        names: all files and folders that it will hold.
        what: the kind of folder, for the error message: `"a pipla result"`.

    Raises:
        FileExistsError: the path exists and is not such a folder.
        OSError: the folder cannot be written.
    """
    target = Path(path)
    if os.path.lexists(target) and not may_replace(target, names):
        raise FileExistsError(
            f"path {str(target)!r} exists and holds something that is not {what}; choose another."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        check_writable(target.parent)
    except OSError as error:
        raise type(error)(
            f"path {str(target)!r} cannot be written: {error.strerror or error}; choose another."
        ) from error
    return target


def may_replace(target: Path, names: Collection[str]) -> bool:
    """Whether a folder is empty or holds exactly these files."""
    if target.is_symlink() or not target.is_dir():
        return False  # renaming would replace the link, not the folder it points to
    return {file.name for file in target.iterdir()} in (set(), set(names))


@contextmanager
def whole_folder(path: str | Path, names: Collection[str], what: str) -> Iterator[Path]:
    """A new folder to fill; it replaces `path` if the block ends without an error.

    Whatever happens, `path` is either unchanged or complete. Arguments and errors are those of
    `claim`, which is called before the block runs.

    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with whole_folder(Path(parent) / "out", {"note.txt"}, "a note") as fresh:
    ...         _ = (fresh / "note.txt").write_text("all there")
    ...     print((Path(parent) / "out" / "note.txt").read_text())
    all there
    """
    target = claim(path, names, what)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    old = fresh.with_name(f"{fresh.name}.old")
    try:
        yield fresh
        fresh.chmod(0o755)  # mkdtemp makes folders that only their owner can read
        if target.exists():
            claim(target, names, what)  # do not remove what others wrote in the meantime
            target.rename(old)
        try:
            fresh.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            raise
    finally:
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)


def write_whole(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    """Write a file with `fill`, and replace an existing one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def check_writable(folder: Path) -> None:
    """Raise an `OSError` if no file can be created in this folder."""
    with tempfile.TemporaryFile(dir=folder):
        pass
