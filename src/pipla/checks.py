"""Checks of what users hand in: each error names the argument, what was given, what to try."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


def is_traced(tree: PyTree) -> bool:
    """Whether any leaf is a tracer, whose numbers nobody can check."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def arrays(name: str, tree: PyTree) -> PyTree:
    """`tree` with NumPy arrays and numbers as JAX arrays; other leaves (text, functions) as is."""

    def leaf(path: Any, value: Any) -> Any:
        if not isinstance(value, jax.Array | np.ndarray | np.generic | int | float | complex):
            return value
        try:
            return jnp.asarray(value)
        except TypeError as error:
            raise TypeError(
                f"{_where(name, path)} is an array of dtype {np.asarray(value).dtype}, which JAX "
                "does not have; give numbers."
            ) from error

    return jax.tree_util.tree_map_with_path(leaf, tree)


def finite(name: str, tree: PyTree) -> None:
    """Every floating leaf of `tree` holds finite numbers only."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(leaf, jax.core.Tracer) or not _is_float(leaf):
            continue
        bad = int(leaf.size - jnp.isfinite(leaf).sum())
        if bad:
            raise ValueError(
                f"{_where(name, path)} has {bad} non-finite value(s) (NaN or inf) among "
                f"{leaf.size}; remove or impute them first."
            )


def floating(name: str, tree: PyTree) -> PyTree:
    """`tree` with array leaves of a real floating dtype, or a TypeError.

    Never weakly typed: a Python float and an array must not be two programs to compile.
    """

    def leaf(path: Any, value: Any) -> jax.Array:
        try:
            array = jnp.asarray(value)
        except TypeError as error:
            raise TypeError(
                f"{_where(name, path)} must be an array of floats, got {type(value).__name__}."
            ) from error
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(
                f"{_where(name, path)} must be floating, got dtype {array.dtype}; "
                "write 0.0 instead of 0, or use `.astype(float)`."
            )
        return array.astype(array.dtype)

    return jax.tree_util.tree_map_with_path(leaf, tree)


def cloud(particles: PyTree) -> int:
    """The number of particles: the common length of the leading axis of every leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(particles)
    if not leaves:
        raise ValueError("particles is empty; give an array of shape (num_particles, ...).")
    sizes = {}
    for path, leaf in leaves:
        if leaf.ndim == 0:
            raise ValueError(
                f"{_where('particles', path)} has shape (); its leading axis must count the "
                "particles: give shape (num_particles, ...), also for a single one."
            )
        sizes[_where("particles", path)] = leaf.shape[0]
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "every leaf of particles needs the same leading axis (the number of particles), "
            f"got {sizes}."
        )
    count = next(iter(sizes.values()))
    if count == 0:
        raise ValueError("particles has a leading axis of length 0; give at least one particle.")
    return count


def positive(name: str, value: Any) -> None:
    """`value` is a finite number greater than zero (or an array of such, or traced)."""
    if value is None or isinstance(value, jax.core.Tracer):
        return
    numbers = np.asarray(value)
    if not np.issubdtype(numbers.dtype, np.number) or np.iscomplexobj(numbers):
        raise TypeError(f"{name} must be a positive number, got {value!r}.")
    if not bool(np.all(np.isfinite(numbers) & (numbers > 0))):
        raise ValueError(f"{name} must be positive and finite, got {value}.")


def single(name: str, value: Any) -> None:
    """`value` is one number, not an array of them (or left out)."""
    if value is not None and np.shape(value) != ():
        raise ValueError(
            f"{name} must be a single number, got an array of shape {np.shape(value)}; "
            "`pipla.sweep` runs several settings at once."
        )


def scale(name: str, value: PyTree) -> None:
    """`value` is `"auto"`, or a positive number or a pytree of them."""
    if isinstance(value, str):
        choice(name, value, ("auto",))
    else:
        jax.tree.map(lambda leaf: positive(name, leaf), value)


def scale_like_theta(value: PyTree, theta: PyTree) -> None:
    """`value` is a number, or a pytree like theta of numbers or of arrays of its leaves' shapes."""
    try:
        scales = jax.tree.leaves(jax.tree.broadcast(value, theta))
    except ValueError as error:
        raise ValueError(
            "theta_scale must be a number or a pytree of numbers like theta; got the structure "
            f"{jax.tree.structure(value)} for a theta of structure {jax.tree.structure(theta)}."
        ) from error
    for given, part in zip(scales, jax.tree.leaves(theta), strict=True):
        if np.shape(given) not in ((), np.shape(part)):
            raise ValueError(
                "theta_scale must hold one number for each part of theta; got shape "
                f"{np.shape(given)} for a part of shape {np.shape(part)}."
            )


def whole(name: str, value: Any, *, least: int) -> int:
    """`value` as an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
    return int(value)


def random_key(name: str, key: Any, *, ndim: int = 0) -> None:
    """`key` is a typed JAX key (array) with `ndim` axes."""
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed:
        got = f"{type(key).__name__}" + (f" of dtype {key.dtype}" if hasattr(key, "dtype") else "")
        raise TypeError(f"{name} must be a typed JAX key, got {got}; use `jax.random.key(0)`.")
    if key.ndim != ndim:
        raise ValueError(
            f"{name} must have {ndim} axes, got an array of keys of shape {key.shape}"
            + ("; choose one of them, such as `keys[0]`." if ndim == 0 else ".")
        )


def flag(name: str, value: Any) -> None:
    """`value` is `True` or `False`."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}.")


def choice(name: str, value: Any, options: tuple[Any, ...]) -> None:
    """`value` is one of `options`."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}.")


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _where(name: str, path: Any) -> str:
    return name + jax.tree_util.keystr(path)
