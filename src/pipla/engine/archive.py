"""One file with JSON, arrays and a checksum; reading it is safe whoever wrote it.

The file is an uncompressed zip archive: `result.json`, and one `.npy` file per array, so that
`numpy.load` and any unzip program can open it. Its comment, the last 64 bytes, is the SHA-256 of
all bytes before it. A file that was cut, altered or put together from two is therefore noticed.

A checksum does not stop somebody who means harm, so nothing is believed: nothing is unpickled,
nothing is decompressed, and no array is read before its header, its size in the archive and the
size of the file agree. Reading takes about the memory of the file itself, whatever is in it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

JSON_NAME = "result.json"
#: The largest `result.json` that is written or read: about a hundred thousand arrays.
LARGEST_JSON = 8 * 2**20
#: At most this many arrays, which is what a zip archive without extensions can hold.
MOST_ARRAYS = 65_000
#: The fewest bytes that an array takes in an archive, with its headers and its name twice.
_LEAST_BYTES = 240
_DIGEST = 64
_BLOCK = 2**20


class DamagedResultError(ValueError):
    """A result that is incomplete, altered or not ours."""


def write(file: BinaryIO, content: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Write JSON, arrays and checksum to an empty file that is open for writing and reading."""
    text = json.dumps(content, indent=1, allow_nan=False).encode()
    if len(text) > LARGEST_JSON or len(arrays) > MOST_ARRAYS:
        raise ValueError(
            f"the result has {len(arrays)} arrays, which is more than a file can hold "
            f"({MOST_ARRAYS}); combine the leaves of theta and x into fewer, larger arrays."
        )
    parse(text)  # what cannot be read is not written
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = b"0" * _DIGEST
        archive.writestr(zipfile.ZipInfo(JSON_NAME), text)
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    file.flush()
    file.seek(-_DIGEST, os.SEEK_END)
    end = file.tell()
    digest = _digest(file, end)
    file.seek(end)
    file.write(digest)


def read(file: BinaryIO) -> tuple[Any, dict[str, np.ndarray]]:
    """The JSON and the arrays of a file that `write` wrote; an error for any other."""
    size = _size(file)
    if size < _DIGEST:
        raise DamagedResultError("the file is cut")
    file.seek(size - _DIGEST)
    if file.read() != _digest(file, size - _DIGEST):
        raise DamagedResultError("its checksum is wrong: the file was cut or altered")
    with _opened(file, size, _DIGEST) as archive:
        members = _stored_members(archive, size)
        if JSON_NAME not in members:
            raise DamagedResultError(f"there is no {JSON_NAME} in it")
        info = members.pop(JSON_NAME)
        if info.file_size > LARGEST_JSON:
            raise DamagedResultError(f"{JSON_NAME} is too large")
        content = parse(archive.read(info))
        return content, {_label(name): _array(archive, info) for name, info in members.items()}


def read_npz(file: BinaryIO, most_bytes: int = 0) -> dict[str, np.ndarray]:
    """The arrays of a file that `numpy.savez` wrote.

    Arguments:
        file: the file.
        most_bytes: compressed arrays are read if all arrays together take at most this many
            bytes; by default they are refused.
    """
    size = _size(file)
    with _opened(file, size, 0, bool(most_bytes)) as archive:
        members = _stored_members(archive, size, most_bytes)
        return {_label(name): _array(archive, info) for name, info in members.items()}


def read_json(file: BinaryIO) -> Any:
    """The content of a JSON file."""
    size = _size(file)
    if size > LARGEST_JSON:
        raise DamagedResultError(f"the JSON has more than {LARGEST_JSON} bytes")
    return parse(file.read(size))


def parse(text: bytes) -> Any:
    """JSON as `write` writes it: no NaN, no name twice, and long enough for its values."""
    # A value takes far more memory than a byte, and ours are at least as long as their names.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > 4096 + len(text) / 8:
        raise DamagedResultError("the JSON has too many values for its length")
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)


def _no_constant(name: str) -> None:
    raise DamagedResultError(f"the JSON contains {name}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise DamagedResultError("the JSON has a name twice in one object")
    return content


def _size(file: BinaryIO) -> int:
    """The size of a file, which must fit into the memory of this machine."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if 0 < memory < size:
            raise DamagedResultError(f"it has {size} bytes, more than the memory of this machine")
    return size


def _digest(file: BinaryIO, end: int) -> bytes:
    """The SHA-256 of the first `end` bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    file.seek(0)
    while end > 0:
        block = file.read(min(_BLOCK, end))
        if not block:
            raise DamagedResultError("the file is cut")
        digest.update(block)
        end -= len(block)
    return digest.hexdigest().encode()


def _opened(file: BinaryIO, size: int, comment: int, compressed: bool = False) -> zipfile.ZipFile:
    """The archive, after a look at the length of its table of contents."""
    record = struct.Struct("<4s4H2LH")  # the end of a zip archive
    locator = 20  # bytes before it, in archives of more than 2 GiB
    if size < record.size + comment:
        raise DamagedResultError("the file is cut")
    start = size - record.size - comment
    file.seek(max(start - locator, 0))
    before = file.read(min(start, locator))
    signature, _, _, _, count, table, _, length = record.unpack(file.read(record.size))
    extended = before.startswith(b"PK\6\7")
    if (
        signature != b"PK\5\6"
        or length != comment
        or count > MOST_ARRAYS + 1
        or table > 1024 * count
        or (_LEAST_BYTES * (count - 1) > size and not compressed)
        or (extended and size < zipfile.ZIP64_LIMIT)
    ):
        raise DamagedResultError("it is not a zip archive of arrays")
    file.seek(0)
    return zipfile.ZipFile(file)


def _stored_members(
    archive: zipfile.ZipFile, size: int, most_bytes: int = 0
) -> dict[str, zipfile.ZipInfo]:
    """The members, which are not compressed (or not larger than allowed) and have unique names."""
    infos = archive.infolist()
    members = {info.filename: info for info in infos}
    if len(members) != len(infos) or len(infos) > MOST_ARRAYS + 1:
        raise DamagedResultError("it has a name twice, or too many arrays")
    compressed = any(info.compress_type != zipfile.ZIP_STORED for info in infos)
    if compressed and not most_bytes:
        raise DamagedResultError("it is compressed, which results are not")
    if sum(info.file_size for info in infos) > (most_bytes if compressed else size):
        raise DamagedResultError("its arrays are larger than the file")
    return members


def _label(name: str) -> str:
    if not name.endswith(".npy"):
        raise DamagedResultError(f"{name!r} in it is not an array")
    return name.removesuffix(".npy")


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One array, read when its header agrees with its size."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise DamagedResultError(f"{info.filename} has an unknown version")
        (length,) = struct.unpack("<H", member.read(2))
        if length > 10_000:
            raise DamagedResultError(f"{info.filename} has a damaged header")
        header = ast.literal_eval(member.read(length).decode("latin1"))
        if type(header) is not dict or set(header) != {"descr", "fortran_order", "shape"}:
            raise DamagedResultError(f"{info.filename} has a damaged header")
        shape, descr = header["shape"], header["descr"]
        if type(descr) is not str or np.dtype(descr).kind not in "fiub":
            raise DamagedResultError(f"{info.filename} does not hold numbers (allow_pickle=False)")
        if type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape):
            raise DamagedResultError(f"{info.filename} has a damaged shape")
        dtype = np.dtype(descr)
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise DamagedResultError(f"{info.filename} has a size that does not fit its header")
    with archive.open(info) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))
