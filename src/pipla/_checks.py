"""Checks of arguments: each error names the argument, what was given, what to try.

Values are checked when they are concrete; inside `jit` and `vmap` only shapes and dtypes can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

#: What a hyperparameter may be given as.
Number = float | int | Array | np.ndarray | np.generic

if TYPE_CHECKING:

    class Hyperparameter:
        """The type of a field made by `hyperparameter`: given as a `Number`, stored as an `Array`.

        A type checker reads both from this descriptor.
        """

        def __get__(self, instance: object, owner: Any = None) -> Array: ...
        def __set__(self, instance: object, value: Number) -> None: ...

    class OptionalHyperparameter:
        """The type of a field made by `optional_hyperparameter`."""

        def __get__(self, instance: object, owner: Any = None) -> Array | None: ...
        def __set__(self, instance: object, value: Number | None) -> None: ...

else:
    Hyperparameter = OptionalHyperparameter = Array


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


def particle_count(particles: PyTree) -> int:
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


def theta_scale(value: PyTree) -> None:
    """`value` is `"auto"`, or a positive number or a pytree of them."""
    if isinstance(value, str):
        choice("theta_scale", value, ("auto",))
    else:
        jax.tree.map(lambda leaf: positive("theta_scale", leaf), value)


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


def integer(name: str, value: Any, *, least: int) -> int:
    """`value` as an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
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


def boolean(name: str, value: Any) -> None:
    """`value` is `True` or `False`."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}.")


def choice(name: str, value: Any, options: tuple[Any, ...]) -> None:
    """`value` is one of `options`."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}.")


# The numbers of a term. #


def as_float(value: Any) -> Array:
    """A hyperparameter as a float leaf that is not weakly typed, so a new number never retraces."""
    try:
        array = None if isinstance(value, str) else jnp.asarray(value)
    except TypeError:
        array = None
    if array is None or jnp.iscomplexobj(array):
        raise TypeError(f"the numbers of a term must be real numbers or arrays, got {value!r}.")
    keeps = _is_strong_float(value, array)
    return jnp.asarray(array, array.dtype if keeps else jnp.result_type(float))


def hyperparameter(**options: Any) -> Any:
    """A field for a number of a term: an array leaf, cast to the dtype of x where it is used."""
    return eqx.field(converter=as_float, **options)


def optional_hyperparameter() -> Any:
    """A field for a number of a term that may be left out (`None`)."""
    return eqx.field(
        converter=lambda value: None if value is None else as_float(value), default=None
    )


def check_scalar(name: str, value: Array) -> None:
    """`value`, a number of a term, is a single number."""
    if value.shape != ():
        raise ValueError(f"{name} must be a single number, but its shape is {value.shape}.")


def check_positive(name: str, value: Array) -> None:
    """`value`, a number of a term, is single, positive and finite."""
    check_scalar(name, value)
    if is_concrete(value) and not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}.")


def check_nonnegative(name: str, value: Array) -> None:
    """`value`, a number of a term, is single, 0 or positive, and finite."""
    check_scalar(name, value)
    if is_concrete(value) and not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be 0 or positive, and finite, got {value}.")


def check_nonzero(name: str, value: Array) -> None:
    """`value`, a number of a term, is single, finite and not 0."""
    check_scalar(name, value)
    if is_concrete(value) and not 0 < abs(float(value)) < np.inf:
        raise ValueError(f"{name} must be finite and not 0, got {value}.")


def check_ordered(name_low: str, low: Array, name_high: str, high: Array) -> None:
    """Lower bounds do not exceed upper ones."""
    if is_concrete(low) and is_concrete(high) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(
            f"{name_low} must not exceed {name_high}, got {name_low}={low}, {name_high}={high}."
        )


def check_axes(name: str, value: Any) -> None:
    """`value` is a tuple of integers."""
    if not isinstance(value, tuple) or not all(isinstance(axis, int) for axis in value):
        raise ValueError(f"{name} must be integers in a tuple, got {value!r}.")


# What the maps of a term are applied to. #


def operands(term: Any, theta: Any, x: Any) -> tuple[Array, Array]:
    """A scalar theta and an array x of the same floating dtype."""
    x = require_floating("x", x, term)
    array = require_scalar("theta", theta, term)
    if jnp.iscomplexobj(array):
        raise TypeError(f"{type(term).__name__} needs a real theta, got {theta}.")
    if _is_strong_float(theta, array) and array.dtype != x.dtype:
        raise TypeError(
            f"{type(term).__name__} needs theta and x of one dtype, "
            f"but theta is {array.dtype} and x is {x.dtype}."
        )
    return jnp.asarray(array, x.dtype), x


def require_array(name: str, value: PyTree, term: Any) -> Array:
    """`value` as an array, or an error that says to address a part of a structured value."""
    if not isinstance(value, jax.Array | float | int) and not hasattr(value, "__array__"):
        raise TypeError(
            f"{type(term).__name__} acts on one array, but {name} is a {type(value).__name__} "
            f"with structure {jax.tree.structure(value)}; address a part of it with "
            f"`term.on({name}=...)`."
        )
    return jnp.asarray(value)


def require_floating(name: str, value: PyTree, term: Any) -> Array:
    """`value` as one floating array."""
    array = require_array(name, value, term)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(
            f"{type(term).__name__} needs a floating-point {name}, but its dtype is {array.dtype}."
        )
    if not array.size:
        raise ValueError(
            f"{type(term).__name__} needs an {name} with elements, but its shape is {array.shape}."
        )
    return array


def require_scalar(name: str, value: PyTree, term: Any) -> Array:
    """`value` as an array of shape (), or an error that says what was given."""
    array = require_array(name, value, term)
    if array.shape != ():
        raise ValueError(
            f"{type(term).__name__} needs a scalar {name}, but its shape is {array.shape}; "
            f"address a scalar part of it with `term.on({name}=...)`."
        )
    return array


def require_smoothing(name: str, lam: Any, like: Array) -> Array:
    """A smoothing in the dtype of `like`: a single number, 0 or positive."""
    array = jnp.asarray(lam)
    if array.shape != ():
        raise ValueError(f"{name} must be a single number, but its shape is {array.shape}.")
    if is_concrete(lam) and not 0 <= float(lam) < np.inf:
        raise ValueError(f"{name} must be 0 or positive, and finite, got {lam}.")
    return array.astype(like.dtype)


def require_smoothings(lam_theta: Any, lam_x: Any, like: Array) -> tuple[Array, Array]:
    """The two smoothings of a joint prox; theta may not move where x is pinned.

    `lam_theta=None` (theta does not move) becomes 0, for which the joint prox leaves theta alone.
    """
    if lam_theta is None:
        lam_theta = 0.0
    both = (
        require_smoothing("lam_theta", lam_theta, like),
        require_smoothing("lam_x", lam_x, like),
    )
    if is_concrete(lam_theta) and is_concrete(lam_x) and float(lam_theta) > 0 == float(lam_x):
        raise ValueError(f"lam_x must be positive where lam_theta is ({lam_theta}), got {lam_x}.")
    return both


def is_concrete(value: Any) -> bool:
    """Whether the value is known now, not only when a program runs."""
    return not isinstance(value, jax.core.Tracer)


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _where(name: str, path: Any) -> str:
    return name + jax.tree_util.keystr(path)


def _is_strong_float(value: Any, array: Array) -> bool:
    # Python numbers and weakly typed arrays take the dtype of whatever they meet.
    weak = isinstance(value, float | int) or getattr(array, "weak_type", False)
    return bool(jnp.issubdtype(array.dtype, jnp.floating)) and not weak
