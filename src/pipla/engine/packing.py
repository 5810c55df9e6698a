"""The fields of a result as JSON and arrays, and back. No code.

Fields are written and read by their annotations, so that a new field of `Result` or `SweepResult`
needs nothing here as long as it holds numbers, text or pytrees of arrays. Reading believes nothing:
names, types and structures that `encode` would not have written raise `DamagedResultError`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla import _trees
from pipla.algorithms.base import REGISTERED, Algorithm, Both, file_name
from pipla.engine.archive import DamagedResultError

_SCALARS = (bool, int, float, str)
#: Stands for a field that holds code, such as an optimiser.
_CODE = {"code": True}

Arrays = dict[str, np.ndarray]


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    names = kind._fields if _is_named_tuple(kind) else [f.name for f in dataclasses.fields(kind)]
    return {name: hints[name] for name in names}


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _has_fields(kind: Any) -> bool:
    return _is_named_tuple(kind) or (isinstance(kind, type) and dataclasses.is_dataclass(kind))


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`X` for `X | None`, and whether `None` was allowed."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1:
            return rest[0], len(get_args(hint)) == 2
    return hint, False


def _is(hint: Any, kind: type[Any]) -> bool:
    hint = get_origin(hint) or hint
    return isinstance(hint, type) and issubclass(hint, kind)


def _items(hint: Any) -> Any:
    """The type of the items of a list, tuple or dict of plain values; `None` for all others.

    The items may be such lists and tuples themselves.
    """
    arguments, origin = get_args(hint), get_origin(hint)
    if origin is dict and arguments[0] is str and _is_plain(arguments[1]):
        return arguments[1]
    one_type = arguments[1:] == (...,) or all(each == arguments[0] for each in arguments)
    if origin in (list, tuple) and one_type and _is_plain(arguments[0]):
        return arguments[0]
    return None


def _is_plain(hint: Any) -> bool:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):  # a finding, for example
        return all(of in _SCALARS or _is(of, enum.Enum) for of in _hints(hint).values())
    return hint in _SCALARS or _items(hint) is not None


def encode(hint: Any, name: str, value: Any, arrays: Arrays) -> Any:
    """A field as JSON; its arrays go to `arrays`."""
    hint, _ = _without_none(hint)
    if value is None:
        return None
    if hint in _SCALARS:
        if hint is float and not math.isfinite(value):
            return {"float": repr(float(value))}  # JSON has no infinity
        return hint(value)
    if _is(hint, enum.Enum):
        return value.value
    if _is(hint, Algorithm):
        return _pack_algorithm(value, arrays)
    if _has_fields(hint):
        hints = _hints(hint)
        return {key: encode(of, key, getattr(value, key), arrays) for key, of in hints.items()}
    item = _items(hint)
    if item is not None and get_origin(hint) is dict:
        return {key: encode(item, key, child, arrays) for key, child in value.items()}
    if item is not None:
        return [encode(item, name, child, arrays) for child in value]
    return _pack(name, value, arrays)


def decode(hint: Any, name: str, packed: Any, arrays: Arrays) -> Any:
    """The inverse of `encode`; an error where the JSON does not fit the annotation."""
    hint, optional = _without_none(hint)
    if packed is None and optional:
        return None
    if hint in _SCALARS:
        return _scalar(hint, name, packed, arrays)
    if _is(hint, enum.Enum):
        return hint(packed)
    if _is(hint, Algorithm):
        return _unpack_algorithm(packed, arrays)[0]
    if _has_fields(hint):
        return _decode_fields(hint, name, packed, arrays)
    item = _items(hint)
    if item is not None:
        container: Any = get_origin(hint)
        if container is dict and type(packed) is dict:
            return {key: decode(item, name, child, arrays) for key, child in packed.items()}
        if container is not dict and type(packed) is list:
            return container(decode(item, name, child, arrays) for child in packed)
        raise DamagedResultError(f"{name} is {_brief(packed)}.")
    tree = _unpack(packed, arrays)
    return tuple(tree) if get_origin(hint) is tuple and type(tree) is list else tree


def _decode_fields(kind: Any, name: str, packed: Any, arrays: Arrays) -> Any:
    if type(packed) is not dict:
        raise DamagedResultError(f"{name} is {_brief(packed)}.")
    hints = _hints(kind)
    _refuse_unknown(name, packed, hints)
    values: dict[str, Any] = {}
    for key, hint in hints.items():
        if key in packed:
            if _is(_without_none(hint)[0], Algorithm):
                values[key], numbers = _unpack_algorithm(packed[key], arrays)
                if numbers and "numbers" in hints:
                    values["numbers"] = numbers
            elif key != "numbers" or packed[key] != {"dict": {}}:
                values[key] = decode(hint, key, packed[key], arrays)
    if "modules" in hints:
        lost = {"theta": ("fixed", "theta_trace", "theta"), "particles": ("particles",)}
        for name, sources in lost.items():
            for code in filter(None, (lost_code(packed.get(source)) for source in sources)):
                values["modules"] = {name: code} | values.get("modules", {})
    return kind(**values)  # a field that is missing and has no default is an error


def _refuse_unknown(name: str, packed: dict[str, Any], known: Any) -> None:
    unknown = sorted(set(packed) - set(known))
    if unknown:
        raise DamagedResultError(
            f"{name} has an unknown field {unknown[0]!r}: altered, or of a newer version of pipla."
        )


def _scalar(kind: type[Any], name: str, value: Any, arrays: Arrays) -> Any:
    if kind is float:
        if type(value) is dict and set(value) == {"float"} and type(value["float"]) is str:
            return float(value["float"])
        if type(value) is dict:  # as format 1 wrote the gap
            return float(_unpack(value, arrays).reshape(()))
        if type(value) is int:
            return float(value)
    if type(value) is not kind or (kind is int and value < 0):
        raise DamagedResultError(f"{name} is {_brief(value)}.")
    return value


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


# Pytrees. #


def is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of random keys."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _pack(name: str, tree: PyTree, arrays: Arrays) -> Any:
    """The structure of `tree` as JSON; its leaves go to `arrays`, numbered."""
    if tree is None:
        return None
    if type(tree) is dict:
        if not all(isinstance(key, str) for key in tree):
            raise TypeError(f"{name} has keys that are not strings; save needs strings.")
        return {"dict": {key: _pack(f"{name}.{key}", tree[key], arrays) for key in sorted(tree)}}
    if isinstance(tree, Both):
        return {"both": [_pack(name, one, arrays) for one in tree]}
    if type(tree) in (list, tuple):
        kind = type(tree).__name__
        return {kind: [_pack(f"{name}.{i}", leaf, arrays) for i, leaf in enumerate(tree)]}
    if is_key(tree):
        data = _pack(name, np.asarray(jax.random.key_data(tree)), arrays)
        return {"key": {"kind": str(jax.random.key_impl(tree)), "data": data}}
    if isinstance(tree, bool | int | str):
        return {"value": tree}
    if type(tree) is float and math.isfinite(tree):  # a setting of a module; numbers are arrays
        return {"value": tree}
    if not isinstance(tree, np.ndarray | np.generic | jax.Array | float):
        return _pack_code(name, tree, arrays)
    array = np.asarray(tree)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {array.dtype}; save understands real numbers only.")
    label = f"{name.split('.')[0]}-{len(arrays)}"  # keys of users' dicts would not be unique
    arrays[label] = array
    return {"array": label}


def _pack_code(name: str, tree: PyTree, arrays: Arrays) -> Any:
    """What is code: of a module its leaves by name, of a function no more than its name."""
    children, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)
    if len(children) == 1 and not children[0][0]:  # a leaf
        return {"code": str(getattr(tree, "__name__", type(tree).__name__))}
    named = {_trees.path_keys(path)[0]: child for path, child in children}
    parts = {str(key): _pack(f"{name}.{key}", child, arrays) for key, child in named.items()}
    return {"module": {"name": type(tree).__name__, "parts": parts}}


def lost_code(packed: Any) -> str | None:
    """The name of a module or a function in the packed tree, which comes back as a dict or `None`.

    Of several, the outermost.
    """
    if type(packed) is not dict or len(packed) != 1:
        return None
    ((kind, value),) = packed.items()
    if kind in ("code", "module"):
        return str(value["name"] if kind == "module" else value)
    if kind in ("dict", "list", "tuple", "both"):
        children = value.values() if type(value) is dict else value
        return next(filter(None, map(lost_code, children)), None)
    return None


def _unpack(packed: Any, arrays: Arrays) -> PyTree:
    """The inverse of `_pack`. It takes the arrays away, so that each is used once."""
    if packed is None:
        return None
    ((kind, value),) = packed.items()
    if kind == "array":
        if value not in arrays:
            raise DamagedResultError(f"the array {_brief(value)} is missing or used twice.")
        return arrays.pop(value)
    if kind == "dict":
        return {key: _unpack(child, arrays) for key, child in value.items()}
    if kind in ("list", "tuple"):
        children = [_unpack(child, arrays) for child in value]
        return children if kind == "list" else tuple(children)
    if kind == "both":
        return Both(*(_unpack(child, arrays) for child in value))
    if kind == "module" and set(value) == {"name", "parts"} and type(value["name"]) is str:
        return {key: _unpack(child, arrays) for key, child in value["parts"].items()}
    if kind == "value" and isinstance(value, bool | int | float | str):
        return value
    if kind == "code" and type(value) is str:
        return None
    if kind == "key":
        data = jnp.asarray(_unpack(value["data"], arrays))
        return jax.random.wrap_key_data(data, impl=value["kind"])
    raise DamagedResultError(f"it has an unknown structure {_brief(kind)}.")


# Algorithms. #


def _pack_algorithm(algorithm: Algorithm, arrays: Arrays, prefix: str = "algorithm") -> Any:
    """Its numbers and choices; of one that is not registered, no more than its name."""
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


def _unpack_algorithm(packed: Any, arrays: Arrays) -> tuple[Algorithm | None, dict[str, Any]]:
    """The algorithm; or, when it holds code or is not registered here, `None` and its numbers."""
    if packed is None:
        return None, {}
    if type(packed) is not dict or type(packed.get("kind")) is not str:
        raise DamagedResultError("the algorithm has no kind.")
    kind = REGISTERED.get(packed["kind"])
    if kind is not None:
        fields = {field.name: field for field in dataclasses.fields(kind)}
        _refuse_unknown("the algorithm", packed, {*fields, "kind"})
        for name, field in fields.items():
            if field.metadata.get("static") and isinstance(packed.get(name), dict | list):
                raise DamagedResultError(f"the algorithm's {name} is {_brief(packed[name])}.")
    values: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    complete = kind is not None
    for name, value in packed.items():
        if name == "kind":
            continue
        if isinstance(value, bool | int | str):
            values[name] = value
        elif value == _CODE:
            complete = False
        elif isinstance(value, dict) and "kind" in value:
            values[name], inner = _unpack_algorithm(value, arrays)
            complete = complete and values[name] is not None
            numbers[name] = inner if values[name] is None else numbers_of(values[name])
        else:
            values[name] = jax.tree.map(jnp.asarray, _unpack(value, arrays))
            if jax.tree.leaves(values[name]):
                numbers[name] = jax.tree.map(np.asarray, values[name])
    if not complete or kind is None:
        return None, numbers
    return kind(**values), {}


def numbers_of(algorithm: Algorithm) -> dict[str, Any]:
    """The numbers of an algorithm by name; a dict for an algorithm inside."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        leaves = jax.tree.leaves(value)
        if isinstance(value, Algorithm):
            found[field.name] = numbers_of(value)
        elif leaves and all(isinstance(leaf, np.ndarray | jax.Array) for leaf in leaves):
            found[field.name] = value
    return found


def with_stored_numbers(algorithm: Algorithm, numbers: dict[str, Any]) -> Algorithm:
    """`algorithm` with the numbers that were left out (`None` or `"auto"`) taken from `numbers`."""
    missing: dict[str, Any] = {}
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.name not in numbers:
            continue
        stored = numbers[field.name]
        if isinstance(value, Algorithm) and isinstance(stored, dict):
            missing[field.name] = with_stored_numbers(value, stored)
        elif value is None or isinstance(value, str):
            missing[field.name] = jax.tree.map(jnp.asarray, stored)
    return dataclasses.replace(algorithm, **missing) if missing else algorithm


def with_scale_like(algorithm: Algorithm, theta: PyTree) -> Algorithm:
    """`algorithm` with a `theta_scale` that a file holds as dicts in the structure of theta."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if isinstance(value, Algorithm):
            changed[field.name] = with_scale_like(value, theta)
        elif field.name == "theta_scale" and isinstance(value, dict | list):
            try:
                jax.tree.broadcast(value, theta)  # as it is, or one number for several leaves
            except (ValueError, TypeError):
                changed[field.name] = _trees.like("theta", theta, value)
    return dataclasses.replace(algorithm, **changed) if changed else algorithm
