"""Addresses: how a part of a pytree is named, read and replaced."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from jaxtyping import PyTree

#: Names a part of a pytree: a dict key or attribute ("w"), an index (0), or a path ("layer", 0).
Address = str | int | tuple[str | int, ...]
Path = tuple[str | int, ...]


def part(name: str, tree: PyTree, address: Address | None) -> PyTree:
    """The addressed part of `tree`, or an error that lists the parts there are."""
    for key in keys_of(address):
        parts = parts_of(tree)
        if key not in parts:
            raise ValueError(
                f"`.on({name}={address!r})` names a part that {name} does not have; "
                f"its parts are {list(parts) or 'none (it is a single array)'}."
            )
        tree = parts[key]
    return tree


def parts_of(tree: PyTree) -> dict[str | int, PyTree]:
    """The parts of a pytree by name; none for an array."""
    if isinstance(tree, dict):
        return tree
    if hasattr(tree, "_asdict"):
        return tree._asdict()
    if isinstance(tree, list | tuple):
        return dict(enumerate(tree))
    fields: Any = vars(tree) if dataclasses.is_dataclass(tree) else {}
    return dict(fields)


def put_part(tree: PyTree, address: Address | None, new: PyTree) -> PyTree:
    """`tree` with the addressed part replaced."""
    keys = keys_of(address)
    if not keys:
        return new
    key, rest = keys[0], keys[1:]
    inner = put_part(parts_of(tree)[key], rest, new)
    if isinstance(tree, dict):
        changed: Any = copy.copy(tree)  # keeps its kind: an OrderedDict is another pytree
        changed[key] = inner
        return changed
    if hasattr(tree, "_replace"):
        return tree._replace(**{str(key): inner})
    if isinstance(tree, list | tuple):
        return type(tree)(inner if i == key else leaf for i, leaf in enumerate(tree))
    changed = copy.copy(tree)  # a dataclass, perhaps frozen and with an __init__ of its own
    object.__setattr__(changed, str(key), inner)
    return changed


def keys_of(address: Address | None) -> Path:
    """The address as a path."""
    if address is None:
        return ()
    return address if isinstance(address, tuple) else (address,)
