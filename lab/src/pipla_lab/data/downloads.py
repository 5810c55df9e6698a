"""Data sets from the network: downloaded once, checked, and kept in the user's cache folder.

A file is looked for in the folder in `$PIPLA_DATA`, then in `pipla/data` in the user's cache
folder, and then downloaded with pooch. What arrives with another checksum is not kept. Archives
are read as bytes; nothing is unpickled.
"""

from __future__ import annotations

import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipla.problems.base import data_path as given_path
from pipla.problems.base import read_arrays
from pipla_lab import files

#: Seconds without an answer after which the network is given up, and until it is tried again.
TIMEOUT, PAUSE = 20.0, 300.0
#: When a download into a folder failed last, in seconds of the monotonic clock.
_FAILED: dict[Path, float] = {}


class Source(NamedTuple):
    """Where a file comes from.

    Attributes:
        url, checksum: of what is downloaded.
        convert: writes the file from what was downloaded; `None` where the two are the same.
    """

    url: str
    checksum: str
    convert: Callable[[Path, Path], None] | None = None


def vehicles_from_archive(archive: Path, target: Path) -> None:
    """Airplanes, automobiles, ships and trucks of CIFAR-10's binary archive, as arrays.

    The first 1500 training and 500 test images of each class, in the order of the archive: a
    record is the class in one byte, then 3 × 32 × 32 bytes.
    """
    arrays: dict[str, np.ndarray] = {"class_ids": np.array(VEHICLES, np.uint8)}
    arrays["class_names"] = np.array(VEHICLE_NAMES)
    batches = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
    with tarfile.open(archive, "r:gz") as tar:
        members = {Path(member.name).name: member for member in tar.getmembers()}
        for part, names in batches.items():
            blocks = []
            for name in names:
                file = tar.extractfile(members[f"{name}.bin"])
                assert file is not None  # a regular file of an archive whose checksum is known
                blocks.append(np.frombuffer(file.read(), np.uint8).reshape(-1, 3073))
            records = np.concatenate(blocks)
            first = [np.flatnonzero(records[:, 0] == c)[: MOST_VEHICLES[part]] for c in VEHICLES]
            kept = np.sort(np.concatenate(first))
            images = records[kept, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            arrays |= {f"x_{part}": images, f"y_{part}": records[kept, 0]}
    files.write_whole(target, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


VEHICLES = (0, 1, 8, 9)
VEHICLE_NAMES = ("airplane", "automobile", "ship", "truck")
MOST_VEHICLES = {"train": 1500, "test": 500}

SOURCES = {
    "mnist.npz": Source(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    ),
    "cifar10_vehicles.npz": Source(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        vehicles_from_archive,
    ),
}


def cache_folder() -> Path:
    """`pipla/data` in the user's cache folder."""
    import pooch

    return Path(pooch.os_cache("pipla")) / "data"


def find_data(name: str) -> dict[str, np.ndarray]:
    """The arrays of a data file; see `data_path`."""
    return read_arrays(data_path(name))


def data_path(name: str) -> Path:
    """The path of a data file: in `$PIPLA_DATA`, in the user's cache, or downloaded.

    Only the files in `SOURCES` are downloaded. An error says where else they may be.
    """
    try:
        return given_path(name)
    except FileNotFoundError:
        if name not in SOURCES:
            raise
    return fetch(name)


def fetch(name: str) -> Path:
    """The path of a file of `SOURCES`, which is downloaded unless the cache has it.

    Raises:
        FileNotFoundError: it cannot be downloaded; the sentence says what to do.
    """
    import pooch

    source, folder = SOURCES[name], cache_folder()
    path = folder / name
    if path.is_file():
        return path
    missing = (
        f"{name} is neither in the folder in PIPLA_DATA nor in {folder}, and {source.url} could "
        "not be downloaded"
    )
    if time.monotonic() - _FAILED.get(path, -PAUSE) < PAUSE:
        raise FileNotFoundError(f"{missing} a moment ago: put the file into one of them.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        arrived = Path(
            pooch.retrieve(
                source.url,
                known_hash=source.checksum,
                fname=name if source.convert is None else Path(source.url).name,
                path=folder,
                downloader=pooch.HTTPDownloader(timeout=TIMEOUT),
            )
        )
        if source.convert is not None:
            source.convert(arrived, path)
            arrived.unlink()  # many times the size of what is needed
    except Exception as error:  # whatever requests, pooch and tarfile raise
        _FAILED[path] = time.monotonic()
        said = f"{missing} ({type(error).__name__}): put the file into one of them."
        raise FileNotFoundError(said) from error
    return path
