"""Results on disk: a folder with one file, `result.pipla`. No code, nothing unpickled.

The file is replaced in one step, so that it is whole whenever a process is killed or reads while
another one saves; of several that save, the last one wins. `pipla.engine.archive` says what is
in the file. Folders of format 1 (`result.json` and `arrays.npz`, pipla 0.1) can still be read.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from pipla import _checks, _files, _trees
from pipla.engine import archive
from pipla.engine.archive import DamagedResultError
from pipla.engine.batches import COUNT, LargeParts
from pipla.engine.driver import refuse_after_fork
from pipla.engine.packing import Arrays, decode, encode, is_key, numbers_of
from pipla.engine.result import Result
from pipla.engine.sweep import SweepResult

FORMAT = 2
NAME = "result.pipla"
#: The files of format 1.
_OLD_NAMES = ("result.json", "arrays.npz")
#: The largest count of steps that a run can have.
_MOST_STEPS = 2**31 - 1


class _Kind(NamedTuple):
    """Where a kind of result is defined, each as `"module:name"`.

    Arguments:
        of: its class, a dataclass whose fields hold numbers, text and pytrees of arrays.
        check: a function that raises `DamagedResultError` where the fields of a loaded one
            contradict each other.
    """

    of: str
    check: str = "pipla.engine.storage:check_result"

    def load(self) -> tuple[type[Any], Callable[[Any], None]]:
        """The class and its check; their modules are imported, if they were not yet."""
        places = (place.split(":") for place in self)
        of, check = (getattr(importlib.import_module(module), name) for module, name in places)
        return of, check


#: The kinds of results, by their names in files. What a file names is imported when it is met, so
#: that it can be read in a process that has imported no more than `pipla`.
_KINDS = {
    "result": _Kind("pipla.engine.result:Result"),
    "sweep": _Kind("pipla.engine.sweep:SweepResult"),
    "fit": _Kind("pipla.fitting.result:Fit", "pipla.fitting.files:check_consistent"),
    "estimator": _Kind(
        "pipla.fitting.saved:SavedEstimator", "pipla.fitting.saved:check_consistent"
    ),
    "network": _Kind("pipla.networks.files:SavedNetwork", "pipla.networks.files:check_consistent"),
}


def save(result: Any, path: str | Path) -> Path:
    """Write a result to a folder of its own, in one step; an earlier result there is replaced.

    Raises:
        FileExistsError: the path exists and holds something that is not a result.
        OSError: the folder cannot be written.
        TypeError: the result has leaves that are not arrays of real numbers.
    """
    target = _files.checked_path("path", path)
    arrays: Arrays = {}
    kind = _kind_of(result)
    if kind is None:
        raise TypeError(
            f"result must be a pipla.Result, SweepResult or Fit, got {type(result).__name__}."
        )
    fields = encode(type(result), kind, result, arrays)
    content = {"format": FORMAT, "kind": kind, "fields": fields}
    _check_ours(target)
    with _files.named_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _files.check_writable(target.parent)
        made = not target.exists()
        target.mkdir(exist_ok=True)
    try:
        _files.write_whole(target / NAME, lambda file: archive.write(file, content, arrays))
    except BaseException as error:
        if made:
            with suppress(OSError):  # another process saves there, too
                target.rmdir()
        if isinstance(error, OSError):
            raise type(error)(
                f"the result was not saved to {str(target)!r}, and what was there is unchanged: "
                f"{error.strerror or error}."
            ) from error
        raise
    if made:
        _files.sync_folder(target.parent)
    for name in _OLD_NAMES:  # from now on `load` does not look at them
        (target / name).unlink(missing_ok=True)
    return target


def load(path: str | Path) -> Any:
    """Read what the `save` of a `Result`, a `SweepResult` or a `Fit` wrote, and return it.

    This is safe on files from strangers: nothing is executed or unpacked, and the memory it takes
    is about the size of the file.

    Raises:
        FileNotFoundError: there is no result in this folder.
        DamagedResultError: there is one, but it is incomplete, altered or not ours.
        ImportError: there is one whose optional dependencies are not installed.
        RuntimeError: this process was forked after JAX had started, where JAX hangs.
    """
    folder = _files.checked_path("path", path)
    refuse_after_fork()
    try:
        for _ in range(3):  # a save may replace the files of format 1 meanwhile
            if os.path.lexists(folder / NAME):
                with _files.open_regular(folder / NAME) as file:
                    content, arrays = archive.read(file)
                return _result_of(content, arrays)
            if not os.path.lexists(folder / _OLD_NAMES[0]):
                break
            try:
                return _result_of(*_read_format_1(folder))
            except FileNotFoundError:
                if not os.path.lexists(folder / NAME):
                    raise
    except ImportError:
        raise
    except Exception as error:  # damage shows as any error of json, zipfile, NumPy or JAX
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DamagedResultError(
            f"the result in {str(folder)!r} is damaged or not complete: {reason}"
        ) from error
    raise FileNotFoundError(
        f"{str(folder)!r} holds no pipla result (no {NAME} and no {_OLD_NAMES[0]} in it)."
    )


def load_result(path: str | Path) -> Result:
    """The result of a run; an error that says how to resume it if it is a sweep or a fit."""
    result = load(path)
    if not isinstance(result, Result):
        raise TypeError(
            f"{str(path)!r} holds a {_kind_of(result)}; resume it with "
            "`pipla.load(path).resume(model, ...)`."
        )
    return result


def stored_numbers(result: Result | str | Path) -> dict[str, Any]:
    """The numbers of the algorithm of a run, by name, whether the file holds the algorithm or not.

    An algorithm that holds code (an optimiser) or is not registered cannot be restored from a
    file, but its numbers can. Those of an algorithm inside another are a dict within the dict.
    """
    found = result if isinstance(result, Result) else load_result(result)
    return found.numbers if found.algorithm is None else numbers_of(found.algorithm)


def _kind_of(result: Any) -> str | None:
    name = f"{type(result).__module__}:{type(result).__name__}"
    return next((kind for kind, place in _KINDS.items() if place.of == name), None)


def _check_ours(target: Path) -> None:
    """An error if there is something that is not a result."""
    if not os.path.lexists(target):
        return
    names = set()
    if target.is_dir() and not target.is_symlink():
        names = {name for name in os.listdir(target) if not _files.is_temporary(name, NAME)}
        if not names or names == set(_OLD_NAMES) or NAME in names <= {NAME, *_OLD_NAMES}:
            return
    raise FileExistsError(
        f"path {str(target)!r} exists and holds something that is not a pipla result; "
        "choose another."
    )


def _read_format_1(folder: Path) -> tuple[Any, Arrays]:
    """The two files of pipla 0.1, as the content of one of today."""
    with _files.open_regular(folder / _OLD_NAMES[0]) as file:
        fields = archive.read_json(file)
    if type(fields) is dict and type(fields.get("format")) is int and fields["format"] == 1:
        fields = dict(fields)
        del fields["format"]
        content = {"format": FORMAT, "kind": "result", "fields": fields}
    else:
        raise DamagedResultError(f"{_OLD_NAMES[0]} is not of format 1.")
    with _files.open_regular(folder / _OLD_NAMES[1]) as file:
        return content, archive.read_npz(file)


def _result_of(content: Any, arrays: Arrays) -> Any:
    if type(content) is not dict or type(content.get("format")) is not int:
        raise DamagedResultError("it has no format.")
    if content["format"] != FORMAT:
        raise DamagedResultError(
            f"it has format {content['format']}, and this version of pipla reads 1 and {FORMAT}."
        )
    if set(content) != {"format", "kind", "fields"} or content["kind"] not in _KINDS:
        raise DamagedResultError("it is of an unknown kind.")
    of, check = _KINDS[content["kind"]].load()
    result = decode(of, "result", content["fields"], arrays)
    if arrays:
        raise DamagedResultError(f"it has arrays that nothing names: {sorted(arrays)[0]!r}.")
    check(result)
    return result


def check_result(result: Result | SweepResult) -> None:
    """What the methods of a result and `resume` rely on."""
    snapshot = result.snapshot
    counts = (result.num_steps, result.burn_in, snapshot.moments_every, snapshot.particles_every)
    if any(count is not None and not 0 <= count <= _MOST_STEPS for count in counts):
        raise DamagedResultError("num_steps, burn_in or a period is not a number of steps.")
    if 0 in (snapshot.moments_every, snapshot.particles_every):
        raise DamagedResultError("moments_every or particles_every is 0.")
    steps = max(result.num_steps, 1)
    sweep = () if isinstance(result, Result) else np.shape(result.finite)
    lead = (*sweep, steps)
    grid = len(lead) - 1
    if result.large is None or jax.tree.leaves(result.theta_trace):
        for leaf in _floats("theta_trace", result.theta_trace):
            if leaf.shape[: len(lead)] != lead:
                raise DamagedResultError("theta_trace does not have num_steps rows.")
    _check_places(result)
    if result.large is not None:
        _check_large(result.large, lead[:grid])
    leaves = jax.tree.leaves(result.particles)
    if "particles" in result.modules:  # which have settings, too
        leaves = list(filter(_checks.is_float, leaves))
    particles = _floats("particles", leaves)
    if len({leaf.shape[: grid + 1] for leaf in particles}) != 1 or particles[0].ndim <= grid:
        raise DamagedResultError("particles has leaves with different numbers of particles.")
    if any(leaf.shape[:grid] != lead[:grid] for leaf in particles):
        raise DamagedResultError("particles does not have the axes of the sweep.")
    moments = (result.x_mean, result.x_variance)
    if len({str(_trees.places(tree)) for tree in moments}) != 1:
        raise DamagedResultError("x_mean and x_variance have different structures.")
    if isinstance(result, Result):
        _check_saved(result, particles)
    else:
        for name, kind in {"finite": "b", "last_finite": "i", "prox_gap": "f"}.items():
            array = getattr(result, name)
            if np.shape(array) != lead[:2] or len(lead) != 3 or array.dtype.kind != kind:
                raise DamagedResultError(f"{name} does not have the axes of the sweep.")
        if not is_key(result.keys) or result.keys.shape != lead[1:2]:
            raise DamagedResultError("keys is not one random key per replicate.")
    if not all(isinstance(leaf, np.ndarray) for leaf in snapshot.leaves):
        raise DamagedResultError("the snapshot is not a tuple of arrays.")
    if snapshot.key().shape != ((math.prod(sweep),) if sweep else ()):
        raise DamagedResultError("the key of the snapshot has a wrong shape.")


def _check_saved(result: Result, particles: list[np.ndarray]) -> None:
    if type(result.numbers) is not dict:
        raise DamagedResultError("numbers is not a dict.")
    if result.saved_particles is None:
        return
    saved = _floats("saved_particles", result.saved_particles)
    if result.snapshot.particles_every is None:
        raise DamagedResultError("saved_particles is there, but particles_every is not.")
    rows = (result.num_steps // result.snapshot.particles_every, len(particles[0]))
    if any(leaf.shape[:2] != rows for leaf in saved):
        raise DamagedResultError("saved_particles does not have the particles of these steps.")
    shapes = [leaf.shape[1:] for leaf in saved]
    if not result.snapshot.has_quantity and shapes != [leaf.shape for leaf in particles]:
        raise DamagedResultError("saved_particles does not have the shape of the particles.")


def _check_places(result: Result | SweepResult) -> None:
    """Each leaf of theta is learned or fixed, and has a trace or has none."""
    trees = [result.theta_trace, result.fixed]
    if result.large is not None:
        trees += [result.large.last, result.large.batches, result.large.partial]
    given = [tree for tree in trees if tree is not None]
    if len({str(_trees.places(tree)) for tree in given}) > 1:
        raise DamagedResultError("theta_trace, large and fixed have different structures.")


def _check_large(large: LargeParts, grid: tuple[int, ...]) -> None:
    last = _floats("large.last", large.last)
    batches = _floats("large.batches", large.batches)
    count = batches[0].shape[len(grid)] if batches[0].ndim > len(grid) else COUNT
    expected = [(*grid, count, *leaf.shape[len(grid) :]) for leaf in last]
    shapes = [leaf.shape for leaf in last]
    if [leaf.shape for leaf in batches] != expected or count >= COUNT:
        raise DamagedResultError("large has batches of other shapes than theta.")
    if [leaf.shape for leaf in _floats("large.partial", large.partial)] != shapes or any(
        shape[: len(grid)] != grid for shape in shapes
    ):
        raise DamagedResultError("large has parts of other shapes than theta.")
    if not 0 <= large.seen <= large.length <= _MOST_STEPS or not large.length:
        raise DamagedResultError("large has a length or a number of steps that cannot be.")


def _floats(name: str, tree: PyTree) -> list[np.ndarray]:
    """The leaves of a tree of real numbers that has some."""
    leaves = jax.tree.leaves(tree)
    if not leaves or any(np.asarray(leaf).dtype.kind != "f" for leaf in leaves):
        raise DamagedResultError(f"{name} does not consist of real numbers.")
    return leaves
