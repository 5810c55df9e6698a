"""Pytrees: arithmetic leaf by leaf, one particle of many, parts addressed by name, programs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla._decompositions import in_turn

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
    """The common dtype of the leaves; functions and text have none."""
    return jnp.result_type(*jax.tree.leaves(split(tree)[0]))


def one_dtype(tree: PyTree) -> PyTree:
    """`tree` with all leaves in their common dtype."""
    common = dtype(tree)
    return jax.tree.map(lambda leaf: leaf.astype(common), tree)


def brief(tree: PyTree, most: int = 4) -> str:
    """`-4.61` or `(0.12, -3.4, ...)`: the first few numbers, four digits each."""
    leaves = jax.tree.leaves(split(tree)[0])
    numbers = [f"{v:.4g}" for leaf in leaves for v in np.ravel(leaf)[: most + 1]]
    shown = ", ".join(numbers[:most]) + (", ..." if len(numbers) > most else "")
    return shown if len(numbers) == 1 else f"({shown})"


# Modules: leaves that are learned, and leaves that are carried along. #


def is_module(node: Any) -> bool:
    """Whether a node is an instance of a dataclass, such as an equinox module."""
    return dataclasses.is_dataclass(node) and not isinstance(node, type)


def split(tree: PyTree) -> tuple[PyTree, PyTree]:
    """The learned leaves and the fixed ones: two trees like `tree`, each with `None` elsewhere.

    In a module arrays of floats are learned, as in equinox, and everything else is a setting of
    it: integers, Python numbers, booleans, text, functions. Outside of modules text and functions
    are fixed, and every number counts as learned: an integer there is more likely a 0 that should
    be 0.0, and is refused later.

    The second tree is `None` where nothing is fixed, and where nothing could be learned.
    """

    def mark(node: Any) -> Any:
        if is_module(node):
            return jax.tree.map(_is_inexact, node)
        return not (isinstance(node, str) or callable(node))

    learned = jax.tree.map(mark, tree, is_leaf=is_module)
    flags = jax.tree.leaves(learned)
    if all(flags) or not any(flags):
        return tree, None
    return eqx.partition(tree, learned)


def combine(*trees: PyTree) -> PyTree:
    """Trees like each other, each with `None` where another one has a leaf; `None` is none."""
    given = [tree for tree in trees if tree is not None]
    return eqx.combine(*given) if len(given) > 1 else given[0]


def places(tree: PyTree) -> Any:
    """The structure of a tree in which a `None` counts as a leaf."""
    return jax.tree.structure(tree, is_leaf=lambda leaf: leaf is None)


class Fixed(NamedTuple):
    """The fixed leaves of theta and of x, with `None` elsewhere; `None` where there are none."""

    theta: PyTree = None
    x: PyTree = None

    def complete(self, theta: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        """Theta and x (or particles) with their fixed leaves."""
        return self.complete_theta(theta), self.complete_x(x)

    def complete_theta(self, theta: PyTree) -> PyTree:
        """Theta with its fixed leaves; of a pair of runs, each theta."""
        return _completed(theta, self.theta)

    def complete_x(self, x: PyTree) -> PyTree:
        """X with its fixed leaves; a tree of another structure than x has as it is."""
        return _completed(x, self.x)


def _completed(tree: PyTree, fixed: PyTree) -> PyTree:
    if fixed is None:
        return tree
    if places(tree) == places(fixed):
        return combine(tree, fixed)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):  # the same at two step sizes
        return type(tree)(*(_completed(each, fixed) for each in tree))
    return tree


def leaf_groups(tree: PyTree, alone: Sequence[Path]) -> list[tuple[int, ...]]:
    """The numbers of the leaves in groups: the arrays of a module are one, other leaves one each.

    Scalars in a module, and leaves on one of the paths `alone`, have a group of their own, too.
    """
    groups: list[tuple[int, ...]] = []
    count = 0
    for path, node in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_module):
        together = []
        for inner, leaf in jax.tree_util.tree_leaves_with_path(node):
            here = path_keys(path) + path_keys(inner)
            if is_module(node) and leaf.ndim and not any(overlap(here, each) for each in alone):
                together.append(count)
            else:
                groups.append((count,))
            count += 1
        if together:
            groups.append(tuple(together))
    return groups


def like(name: str, template: PyTree, tree: PyTree) -> PyTree:
    """The leaves of `tree`, found by their paths, in the structure of `template`."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(template)]
    found = []
    for path in paths:
        inner = tree
        for key in path_keys(path):
            parts = parts_of(inner)
            key = key if key in parts else str(key)  # files name the children of a node by text
            if key not in parts:
                raise ValueError(
                    f"{name} does not fit the result, which has no "
                    f"{name}{jax.tree_util.keystr(path)}; give the {name} of the original run."
                )
            inner = parts[key]
        found.append(inner)
    return jax.tree.unflatten(jax.tree.structure(template), found)


def path_keys(path: Any) -> Path:
    """JAX's path of a leaf as a path of names and indices."""
    return tuple(getattr(key, "name", getattr(key, "idx", getattr(key, "key", 0))) for key in path)


def _is_inexact(leaf: Any) -> bool:
    """Whether a leaf is an array of floats (or complex numbers, which are refused later)."""
    is_array = isinstance(leaf, jax.Array | np.ndarray | np.generic)
    return is_array and bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


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
                program = jax.jit(in_turn(function), static_argnames=self._static)
            self._kept[kind] = program
            while len(self._kept) > MOST_KINDS:
                self._kept.popitem(last=False)
        return functools.partial(program, arrays)


def bounded_jit(*static: str) -> Callable[[Callable[..., Result]], BoundedJit[Result]]:
    """A decorator that makes a `BoundedJit`; `static` names arguments that are no arrays."""
    return functools.partial(BoundedJit, static=static)
