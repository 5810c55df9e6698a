"""Pytrees: arithmetic leaf by leaf, one particle of many, parts addressed by name, programs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
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


# Compiled functions of pytrees. #

#: How many kinds of programs a compiled function keeps.
MOST_KINDS = 32

Result = TypeVar("Result")


class BoundedJit(Generic[Result]):
    """`eqx.filter_jit` that keeps the programs for the last `MOST_KINDS` kinds of first arguments.

    JAX keeps every program, and the functions it was made from, as long as the process lives. A
    function that is defined again is another function: a notebook cell that is run again, or a
    lambda in a loop, would add its programs, megabytes each, for ever. Here the first argument, a
    model or what holds one, decides which programs are kept together: two are of one kind if they
    differ in arrays alone. A kind that was dropped is compiled again when it comes back.

    The function gets its first argument in two parts, `fixed` and `arrays`, and joins them by
    `eqx.combine`: programs that belong to `fixed` are dropped together with it.
    """

    def __init__(self, function: Callable[..., Result], static: tuple[str, ...] = ()) -> None:
        functools.update_wrapper(self, function)
        self._function, self._static = function, static
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, first: Any, *others: Any) -> Result:
        return self.kept(first)(*others)

    def __len__(self) -> int:
        """The number of kinds that are kept."""
        return len(self._kept)

    def kept(self, first: Any) -> Callable[..., Result]:
        """The compiled function of the other arguments."""
        arrays, fixed = eqx.partition(first, eqx.is_array)
        leaves, structure = jax.tree.flatten(fixed)
        kind = (structure, tuple(leaves))
        with self._lock:
            program = self._kept.pop(kind, None)
            if program is None:
                function = functools.partial(self._function, fixed)
                program = jax.jit(function, static_argnames=self._static)
            self._kept[kind] = program
            while len(self._kept) > MOST_KINDS:
                self._kept.popitem(last=False)
        return functools.partial(program, arrays)


def bounded_jit(*static: str) -> Callable[[Callable[..., Result]], BoundedJit[Result]]:
    """A decorator that makes a `BoundedJit`; `static` names arguments that are no arrays."""
    return functools.partial(BoundedJit, static=static)
