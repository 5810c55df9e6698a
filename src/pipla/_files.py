"""Files and folders that are whole or not there: written beside the target, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


def claim(path: str | Path, names: Collection[str], what: str) -> Path:
    """Before any work is done: make sure that a folder may and can be written.

    A folder that exists is replaced only if it is empty or holds exactly the files that we would
    write. Folders above it are made.

    Arguments:
        path: of the folder.
        names: of all files and folders in it, once it is written.
        what: the kind of folder, for the error: `"a pipla result"`.

    Raises:
        FileExistsError: something of somebody else's is there.
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
    """Whether a folder is empty or holds these files and nothing else."""
    if target.is_symlink() or not target.is_dir():
        return False  # a link would be replaced, not the folder that it points to
    return {file.name for file in target.iterdir()} in (set(), set(names))


@contextmanager
def whole_folder(path: str | Path, names: Collection[str], what: str) -> Iterator[Path]:
    """A fresh folder to fill; it takes the place of `path` if the block ends without an error.

    Whatever happens, `path` is as it was before or complete. Arguments and errors are those of
    `claim`.

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
        fresh.chmod(0o755)  # mkdtemp makes folders that nobody else can read
        if target.exists():
            claim(target, names, what)  # what came in the meantime is not ours to remove
            target.rename(old)
        try:
            fresh.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            raise
    finally:
        for rest in (fresh, old):
            shutil.rmtree(rest, ignore_errors=True)


def write_whole(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    """A file with what `fill` writes, in the place of one that may be there."""
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
    """An `OSError` if no file can be made in this folder."""
    with tempfile.TemporaryFile(dir=folder):
        pass
