"""Results on disk: `arrays.npz` and `result.json` in a folder. No code, nothing unpickled."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import _files
from pipla.algorithms.base import REGISTERED, Algorithm, file_name
from pipla.engine.result import Result, Snapshot, Status

FORMAT = 1
_FILES = {"arrays.npz", "result.json"}
_TREES = ("theta_trace", "particles", "x_mean", "x_variance", "saved_particles")
_NUMBERS = {
    "message": str,
    "num_steps": int,
    "burn_in": int,
    "seconds": float,
    "compile_seconds": float,
    "versions": dict,
}


class DamagedResultError(ValueError):
    """A result folder that is incomplete, altered or not ours."""


def save(result: Result, path: str | Path) -> Path:
    """Write a folder that is whole or not there."""
    target = _files.claim(path, _FILES, "a pipla result")
    arrays: dict[str, np.ndarray] = {}
    snapshot = result.snapshot
    content = {
        "format": FORMAT,
        "status": result.status.value,
        "warnings": list(result.warnings),
        **{name: getattr(result, name) for name in _NUMBERS},
        **{name: _pack(name, getattr(result, name), arrays) for name in _TREES},
        "prox_gap": _pack("prox_gap", result.prox_gap, arrays),  # may be inf, which JSON has not
        "algorithm": _pack_algorithm(result.algorithm, arrays),
        "snapshot": {
            "leaves": _pack("snapshot", list(snapshot.leaves), arrays),
            "key_data": _pack("key_data", snapshot.key_data, arrays),
            "key_kind": snapshot.key_kind,
            "moments_every": snapshot.moments_every,
            "particles_every": snapshot.particles_every,
            "has_quantity": snapshot.has_quantity,
        },
    }
    text = json.dumps(content, indent=1, allow_nan=False)
    with _files.whole_folder(target, _FILES, "a pipla result") as fresh:
        np.savez(fresh / "arrays.npz", **arrays)  # type: ignore[arg-type]
        (fresh / "result.json").write_text(text)
    return target


def load(path: str | Path) -> Result:
    """Read what `Result.save` wrote. Safe on files from strangers: nothing is executed."""
    folder = Path(path)
    if not (folder / "result.json").is_file():
        raise FileNotFoundError(f"{str(folder)!r} holds no pipla result (no result.json in it).")
    try:
        text = (folder / "result.json").read_text()
        content = json.loads(text, parse_constant=_refuse_constant)
        if content["format"] != FORMAT:
            raise DamagedResultError(
                f"it has format {content['format']!r}, and this version of pipla reads {FORMAT}."
            )
        with (
            (folder / "arrays.npz").open("rb") as raw,  # NumPy leaves it open when damaged
            np.load(raw, allow_pickle=False) as file,
        ):
            arrays = {name: file[name] for name in file.files}
        snapshot = content["snapshot"]
        result = Result(
            status=Status(content["status"]),
            **{name: _typed(content, name, kind) for name, kind in _NUMBERS.items()},
            **{name: _unpack(content[name], arrays) for name in _TREES},
            prox_gap=float(_unpack(content["prox_gap"], arrays)),
            algorithm=_unpack_algorithm(content["algorithm"], arrays),
            warnings=tuple(map(str, content.get("warnings", ()))),
            snapshot=Snapshot(
                leaves=tuple(_unpack(snapshot["leaves"], arrays)),
                key_data=_unpack(snapshot["key_data"], arrays),
                key_kind=_typed(snapshot, "key_kind", str),
                moments_every=_every(snapshot, "moments_every"),
                particles_every=_every(snapshot, "particles_every"),
                has_quantity=_typed(snapshot, "has_quantity", bool),
            ),
        )
        _check_consistent(result)
        return result
    except Exception as error:  # damage shows as any error of json, zipfile, NumPy or JAX
        raise DamagedResultError(
            f"the result in {str(folder)!r} is damaged or not complete: {error}"
        ) from error


def _refuse_constant(name: str) -> None:
    raise DamagedResultError(f"result.json contains {name}, which no result does.")


def _typed(content: dict[str, Any], name: str, kind: type) -> Any:
    value = content[name]
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        raise DamagedResultError(f"{name} is {value!r}.")
    return value


def _every(snapshot: dict[str, Any], name: str) -> int | None:
    return None if snapshot[name] is None else _typed(snapshot, name, int)


def _check_consistent(result: Result) -> None:
    """What `Result` and `resume` rely on."""
    steps = max(result.num_steps, 1)
    if any(len(leaf) != steps for leaf in jax.tree.leaves(result.theta_trace)):
        raise DamagedResultError("theta_trace does not have num_steps rows.")
    result.snapshot.key()


def _pack(name: str, tree: PyTree, arrays: dict[str, np.ndarray]) -> Any:
    """The structure of `tree` as JSON; its leaves go to `arrays`, numbered."""
    if tree is None:
        return None
    if type(tree) is dict:
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
    array = np.asarray(tree)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {array.dtype}; save understands real numbers only.")
    label = f"{name.split('.')[0]}-{len(arrays)}"  # keys of users' dicts would not be unique
    arrays[label] = array
    return {"array": label}


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
    raise DamagedResultError(f"it has an unknown structure {kind!r}.")


def _pack_algorithm(
    algorithm: Algorithm | None, arrays: dict[str, np.ndarray], prefix: str = "algorithm"
) -> Any:
    """Its numbers and choices; of one that is not registered, no more than its name."""
    if algorithm is None:
        return None
    packed: dict[str, Any] = {"kind": file_name(type(algorithm))}
    if REGISTERED.get(packed["kind"]) is not type(algorithm):
        return packed
    for field in dataclasses.fields(algorithm):
        value, name = getattr(algorithm, field.name), f"{prefix}.{field.name}"
        if isinstance(value, bool | int | str):
            packed[field.name] = value
        elif isinstance(value, Algorithm):  # one inside the other: `Adaptive(scheme)`
            packed[field.name] = _pack_algorithm(value, arrays, name)
        elif any(map(callable, jax.tree.leaves(value))):
            packed[field.name] = _CODE  # the user gives it again to resume
        else:
            packed[field.name] = _pack(name, value, arrays)
    return packed


#: Stands for a field that holds code, such as an optimiser.
_CODE = {"code": True}


def _unpack_algorithm(packed: Any, arrays: dict[str, np.ndarray]) -> Algorithm | None:
    """The algorithm, or `None` when it holds code or is not registered in this process."""
    kind = None if packed is None else REGISTERED.get(packed["kind"])
    if kind is None or _CODE in packed.values():
        return None
    known = {field.name for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in packed.items():
        if name not in known:
            continue
        if isinstance(value, bool | int | str):
            values[name] = value
        elif isinstance(value, dict) and "kind" in value:
            values[name] = _unpack_algorithm(value, arrays)
            if values[name] is None:
                return None
        else:
            values[name] = jax.tree.map(jnp.asarray, _unpack(value, arrays))
    return kind(**values)
