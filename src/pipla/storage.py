"""Results on disk: `arrays.npz` and `result.json` in a folder. No code in it, nothing unpickled."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import algorithms
from pipla.algorithms.base import Algorithm

if TYPE_CHECKING:
    from pipla.result import Result

FORMAT = 1
_TREES = ("theta_trace", "particles", "x_mean", "x_variance", "saved_particles")
_NUMBERS = ("message", "num_steps", "burn_in", "prox_gap", "seconds", "compile_seconds", "versions")
_KINDS = {
    kind.__name__: kind
    for kind in (
        algorithms.Euler,
        algorithms.EnvelopeEuler,
        algorithms.ForwardBackward,
        algorithms.FullProx,
    )
}


class DamagedResultError(ValueError):
    """A result folder that is missing, incomplete or not ours."""


def save(result: Result, path: str | Path) -> Path:
    """Write beside the target first and rename, so that a folder is whole or not there."""
    target = Path(path)
    if target.exists() and not (target / "result.json").is_file() and any(target.iterdir()):
        raise FileExistsError(
            f"path {str(target)!r} exists and holds something that is not a pipla result; "
            "choose another."
        )
    arrays: dict[str, np.ndarray] = {}
    snapshot = result.snapshot
    content = {
        "format": FORMAT,
        "status": result.status.value,
        **{name: getattr(result, name) for name in _NUMBERS},
        **{name: _pack(name, getattr(result, name), arrays) for name in _TREES},
        "algorithm": _pack_algorithm(result.algorithm, arrays),
        "snapshot": {
            "leaves": _pack("snapshot", list(snapshot.leaves), arrays),
            "key_data": _pack("key_data", snapshot.key_data, arrays),
            "key_kind": snapshot.key_kind,
            "moments_every": snapshot.moments_every,
            "particles_every": snapshot.particles_every,
        },
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        np.savez(fresh / "arrays.npz", allow_pickle=False, **arrays)
        (fresh / "result.json").write_text(json.dumps(content, indent=1))
        fresh.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def load(path: str | Path) -> Result:
    """Read a folder that `save` wrote, or say what is wrong with it."""
    from pipla.result import Result, Snapshot, Status

    folder = Path(path)
    if not (folder / "result.json").is_file():
        raise FileNotFoundError(f"{str(folder)!r} holds no pipla result (no result.json in it).")
    try:
        content = json.loads((folder / "result.json").read_text())
        if content["format"] != FORMAT:
            raise DamagedResultError(
                f"{str(folder)!r} has result format {content['format']!r}; this version of pipla "
                f"reads format {FORMAT}."
            )
        with np.load(folder / "arrays.npz", allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        snapshot = content["snapshot"]
        return Result(
            status=Status(content["status"]),
            **{name: content[name] for name in _NUMBERS},
            **{name: _unpack(content[name], arrays) for name in _TREES},
            algorithm=_unpack_algorithm(content["algorithm"], arrays),
            snapshot=Snapshot(
                leaves=tuple(_unpack(snapshot["leaves"], arrays)),
                key_data=_unpack(snapshot["key_data"], arrays),
                key_kind=str(snapshot["key_kind"]),
                moments_every=snapshot["moments_every"],
                particles_every=snapshot["particles_every"],
            ),
        )
    except DamagedResultError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
        raise DamagedResultError(
            f"the result in {str(folder)!r} is damaged or not complete: {error}"
        ) from error


def _pack(name: str, tree: PyTree, arrays: dict[str, np.ndarray]) -> Any:
    """The structure of `tree` as JSON; its leaves go to `arrays` under `name`."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        if not all(isinstance(key, str) for key in tree):
            raise TypeError(f"{name} has keys that are not strings; save needs strings.")
        return {"dict": {key: _pack(f"{name}.{key}", tree[key], arrays) for key in sorted(tree)}}
    if type(tree) in (list, tuple):
        kind = type(tree).__name__
        return {kind: [_pack(f"{name}.{i}", leaf, arrays) for i, leaf in enumerate(tree)]}
    if not isinstance(tree, np.ndarray | np.generic | jax.Array | float | int):
        raise TypeError(
            f"{name} is a {type(tree).__name__}; save understands arrays in dicts, lists and "
            "tuples. Convert it, for example to a dict, to keep it in a file."
        )
    arrays[name] = np.asarray(tree)
    return {"array": name}


def _unpack(packed: Any, arrays: dict[str, np.ndarray]) -> PyTree:
    if packed is None:
        return None
    ((kind, value),) = packed.items()
    if kind == "array":
        return arrays[value]
    if kind == "dict":
        return {key: _unpack(child, arrays) for key, child in value.items()}
    if kind in ("list", "tuple"):
        children = [_unpack(child, arrays) for child in value]
        return children if kind == "list" else tuple(children)
    raise DamagedResultError(f"unknown structure {kind!r} in a result.")


def _pack_algorithm(algorithm: Algorithm, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    packed: dict[str, Any] = {"kind": type(algorithm).__name__}
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.name == "theta_optimizer":
            packed[field.name] = value is not None  # code: the user gives it again at resume
        elif isinstance(value, bool | int | str):
            packed[field.name] = value
        else:
            packed[field.name] = _pack(f"algorithm.{field.name}", value, arrays)
    return packed


def _unpack_algorithm(packed: dict[str, Any], arrays: dict[str, np.ndarray]) -> Algorithm | None:
    """The algorithm, or `None` when it holds code (an optimiser) or is not one of ours."""
    kind = _KINDS.get(packed["kind"])
    if kind is None or packed.get("theta_optimizer"):
        return None
    known = {field.name for field in dataclasses.fields(kind)}
    values = {}
    for name, value in packed.items():
        if name in known and name != "theta_optimizer":
            plain = isinstance(value, bool | int | str)
            values[name] = value if plain else jax.tree.map(jnp.asarray, _unpack(value, arrays))
    return kind(**values)
