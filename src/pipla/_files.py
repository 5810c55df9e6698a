"""Atomic files and folders: written next to the target, then put in its place in one step.

Temporary names are `.NAME.xxxxxxxx.tmp`. A writer holds a lock on what it writes, so that the next
writer can tell the leftovers of a killed process from the work of a living one, and removes them.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows has no such locks, and refuses to remove a file that is open
    fcntl = None  # type: ignore[assignment]

#: How often a write is tried again when another process interferes.
_ATTEMPTS = 20
#: Where a file system has no locks, what is older than this many seconds was left behind.
_OLD = 86400.0


def checked_path(name: str, path: Any) -> Path:
    """`path` as a `Path`, or an error that names it."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"{name} must be a string or a pathlib.Path, got {type(path).__name__}.")
    if "\0" in os.fspath(path):
        raise FileNotFoundError(f"{name} contains a null character, which no path has.")
    return Path(path)


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
    with named_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        check_writable(target.parent)
    return target


@contextmanager
def named_errors(target: Path) -> Iterator[None]:
    """Errors of the operating system as a sentence that names the path."""
    try:
        yield
    except OSError as error:
        raise type(error)(
            f"path {str(target)!r} cannot be written: {error.strerror or error}; choose another."
        ) from error


def may_replace(target: Path, names: Collection[str]) -> bool:
    """Whether a folder is empty or holds exactly these files."""
    if target.is_symlink() or not target.is_dir():
        return False  # renaming would replace the link, not the folder it points to
    return {file.name for file in target.iterdir()} in (set(), set(names))


@contextmanager
def whole_folder(path: str | Path, names: Collection[str], what: str) -> Iterator[Path]:
    """A new folder to fill; it replaces `path` if the block ends without an error.

    Whatever happens, `path` is either unchanged or complete, with one exception: a process that
    is killed between the two renames that replace an existing folder leaves the earlier one under
    a hidden name. The next call for the same path puts it back first. Arguments and errors are
    those of `claim`, which is called before the block runs.

    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with whole_folder(Path(parent) / "out", {"note.txt"}, "a note") as fresh:
    ...         _ = (fresh / "note.txt").write_text("all there")
    ...     print((Path(parent) / "out" / "note.txt").read_text())
    all there
    """
    target = claim(path, names, what)
    for leftover in _leftovers(target):
        _put_back_or_remove(leftover, target, names)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    old = fresh.with_name(fresh.name.removesuffix(".tmp") + ".old")
    try:
        with _locked_folder(fresh):
            yield fresh
            fresh.chmod(0o755)  # mkdtemp makes folders that only their owner can read
            for file in fresh.rglob("*"):
                if file.is_file():
                    with suppress(PermissionError), file.open("rb+") as opened:
                        os.fsync(opened.fileno())
            if not target.exists():
                fresh.rename(target)
            else:
                claim(target, names, what)  # do not remove what others wrote in the meantime
                with _locked_folder(target):
                    target.rename(old)
                    try:
                        fresh.rename(target)
                    except BaseException:
                        old.rename(target)
                        raise
        sync_folder(target.parent)
    finally:
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)


def write_whole(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    """Write a file with `fill`, and replace an existing one in one step.

    Readers see the earlier file or the new one, never a mixture. Of several writers the last one
    wins. What writers that were killed left in the folder is removed.
    """
    for leftover in _leftovers(path):
        _if_abandoned(leftover, leftover.unlink)
    for _ in range(_ATTEMPTS):
        if _written(path, fill):
            sync_folder(path.parent)
            return
    raise OSError(f"{str(path)!r} cannot be written: another process removes its temporary files.")


def _written(path: Path, fill: Callable[[BinaryIO], Any]) -> bool:
    """One attempt; `False` if another process removed the temporary file."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w+b") as file:
            if not _lock(file.fileno(), Path(name)):
                return False
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(name, 0o644)
            if fcntl is not None:
                os.replace(name, path)  # still locked
                return True
        return _replaced_on_windows(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _replaced_on_windows(name: str, path: Path) -> bool:
    """Replace a file that others may have open for a moment, which Windows refuses."""
    for attempt in range(10 * _ATTEMPTS):
        try:
            os.replace(name, path)
            return True
        except FileNotFoundError:
            return False
        except PermissionError:
            if attempt + 1 == 10 * _ATTEMPTS:
                raise
            time.sleep(0.01)
    return False


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


def is_temporary(name: str, of: str) -> bool:
    """Whether `name` is a temporary name for the file or folder `of`."""
    return re.fullmatch(rf"\.{re.escape(of)}\.\w{{8}}\.(tmp|old)", name) is not None


def check_writable(folder: Path) -> None:
    """Raise an `OSError` if no file can be created in this folder."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut, where the system can."""
    with suppress(OSError):  # Windows cannot open folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Locks: who writes something still lives. #


def _leftovers(path: Path) -> list[Path]:
    """Temporary files and folders of this path, whether their writers live or not."""
    with suppress(OSError):
        return [
            path.parent / name for name in os.listdir(path.parent) if is_temporary(name, path.name)
        ]
    return []


def _lock(handle: int, path: Path) -> bool:
    """Lock a new file; `False` if another process took it for a leftover before, and removed it."""
    if fcntl is None:
        return True
    with suppress(OSError):  # a file system without locks: `_if_abandoned` goes by the age
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextmanager
def _locked_folder(folder: Path) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _if_abandoned(path: Path, action: Callable[[], Any]) -> None:
    """Do `action` with a leftover whose writer does not live any more."""
    if fcntl is None:
        with suppress(OSError):  # of a living writer: it is open
            action()
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            if time.time() - os.fstat(handle).st_mtime < _OLD:
                return
        with suppress(OSError):  # another process was faster
            action()
    finally:
        os.close(handle)


def _put_back_or_remove(leftover: Path, target: Path, names: Collection[str]) -> None:
    """What a killed `whole_folder` left: the earlier folder, if it is the only copy, or litter."""

    def act() -> None:
        if leftover.suffix == ".old" and not target.exists() and may_replace(leftover, names):
            leftover.rename(target)
        else:
            shutil.rmtree(leftover)

    if leftover.is_dir() and {file.name for file in leftover.iterdir()} <= set(names):
        _if_abandoned(leftover, act)
