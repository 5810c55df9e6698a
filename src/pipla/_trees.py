"""Pytrees: arithmetic leaf by leaf, one particle of many, and parts addressed by name."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

#: Names a part of a pytree: a dict key or attribute ("w"), an index (0), or a path ("layer", 0).
Address = str | int | tuple[str | int, ...]
Path = tuple[str | int, ...]


# Arithmetic. #


def add(first: PyTree, second: PyTree) -> PyTree:
    """The sum, leaf by leaf."""
    return jax.tree.map(jnp.add, first, second)


def subtract(first: PyTree, second: PyTree) -> PyTree:
    """The difference, leaf by leaf."""
    return jax.tree.map(jnp.subtract, first, second)


def multiply(first: PyTree, second: PyTree) -> PyTree:
    """The product, leaf by leaf."""
    return jax.tree.map(jnp.multiply, first, second)


def scale(factor: Any, tree: PyTree) -> PyTree:
    """Every leaf times one number."""
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def zeros_like(tree: PyTree) -> PyTree:
    """Zeros in the shapes of `tree`."""
    return jax.tree.map(jnp.zeros_like, tree)


def ones_per_leaf(tree: PyTree) -> PyTree:
    """The number 1 for each leaf, in its dtype."""
    return jax.tree.map(lambda leaf: jnp.ones((), leaf.dtype), tree)


def dot(first: PyTree, second: PyTree) -> Any:
    """The inner product over all leaves."""
    return sum(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), first, second)))


def norm(tree: PyTree) -> Any:
    """The Euclidean norm over all leaves."""
    return jnp.sqrt(dot(tree, tree))


def safe_norm(tree: PyTree) -> Array:
    """The Euclidean norm in units of the largest entry, whose square may overflow."""
    largest = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(x)) for x in jax.tree.leaves(tree)])
    unit = jnp.where(largest > 0, largest, 1.0)
    return unit * norm(jax.tree.map(lambda leaf: leaf / unit, tree))


# Symmetric operators. #


def power_step(times: Callable[[PyTree], PyTree], direction: PyTree) -> tuple[PyTree, Array]:
    """One power iteration: the direction of the image of a unit vector, and its length.

    The direction stays as it is where the image is 0.
    """
    image = times(direction)
    length = safe_norm(image)
    divisor = jnp.where(length > 0, length, 1.0)
    return (
        jax.tree.map(lambda new, old: jnp.where(length > 0, new / divisor, old), image, direction),
        length,
    )


def dominant_eigenvalue(
    times: Callable[[PyTree], PyTree], start: PyTree, iterations: int = 60
) -> Array:
    """The eigenvalue of largest modulus of a symmetric operator, by power iteration."""
    length = safe_norm(start)
    direction = jax.tree.map(lambda leaf: leaf / jnp.where(length > 0, length, 1.0), start)

    def body(_: Any, direction: PyTree) -> PyTree:
        return power_step(times, direction)[0]

    direction = jax.lax.fori_loop(0, iterations, body, direction)
    image = times(direction)
    # Not the Rayleigh quotient itself: where both ends of the spectrum have the same modulus, the
    # direction is a mixture, whose quotient lies anywhere in between and whose length does not.
    sign = jnp.where(dot(direction, image) < 0, -1.0, 1.0)
    return sign * safe_norm(image)


# Particles and dtypes. #


def num_particles(particles: PyTree) -> int:
    """The length of the leading axis."""
    return jax.tree.leaves(particles)[0].shape[0]


def first(particles: PyTree) -> PyTree:
    """The first particle."""
    return jax.tree.map(lambda leaf: leaf[0], particles)


def mean(particles: PyTree) -> PyTree:
    """The mean over the leading axis."""
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), particles)


def leaf_names(name: str, tree: PyTree) -> list[str]:
    """One name for every number in a tree: `theta['prior']`, `x[3]`."""
    names = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        whole = name + jax.tree_util.keystr(path)
        indices = np.ndindex(np.shape(leaf))
        names += [f"{whole}[{', '.join(map(str, i))}]" if i else whole for i in indices]
    return names


def size(tree: PyTree) -> int:
    """The number of elements in all leaves."""
    return sum(jnp.size(leaf) for leaf in jax.tree.leaves(tree))


def dtype(tree: PyTree) -> Any:
    """The common dtype of the leaves."""
    return jnp.result_type(*jax.tree.leaves(tree))


def one_dtype(tree: PyTree) -> PyTree:
    """`tree` with all leaves in their common dtype."""
    common = dtype(tree)
    return jax.tree.map(lambda leaf: leaf.astype(common), tree)


def brief(tree: PyTree, most: int = 4) -> str:
    """`-4.61` or `(0.12, -3.4, ...)`: the first few numbers, four digits each."""
    numbers = [f"{v:.4g}" for leaf in jax.tree.leaves(tree) for v in np.ravel(leaf)[: most + 1]]
    shown = ", ".join(numbers[:most]) + (", ..." if len(numbers) > most else "")
    return shown if len(numbers) == 1 else f"({shown})"


# Parts by name. #


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


def overlap(first: Path, second: Path) -> bool:
    """Whether one of two paths leads into the other, or both to the same part."""
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]
