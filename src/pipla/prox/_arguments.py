"""Checks of the numbers of a term, and of what its maps are applied to.

Values are checked when they are concrete; inside `jit` and `vmap` only shapes and dtypes can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla._checks import (
    array,
    float_array,
    is_concrete,
    is_none,
    leaves,
    show,
    structure,
    where,
    wide_enough,
)
from pipla._trees import Address, keys_of, parts_of

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


# The numbers of a term. #


def as_float(value: Any) -> Array:
    """A hyperparameter as a float leaf that is not weakly typed, so a new number never retraces."""
    if isinstance(value, float):
        return float_array(value)
    try:
        found = None if isinstance(value, str | bool) else array("a number of a term", value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the numbers of a term must be real numbers or arrays; {error}") from error
    if found is None or jnp.iscomplexobj(found):
        raise TypeError(f"the numbers of a term must be real numbers or arrays, got {show(value)}.")
    keeps = is_strong_float(value, found) and found.dtype.itemsize >= 4
    return jnp.asarray(found, found.dtype if keeps else jnp.result_type(float))


def hyperparameter(**options: Any) -> Any:
    """A field for a number of a term: an array leaf, cast to the dtype of x where it is used."""
    return eqx.field(converter=as_float, **options)


def optional_hyperparameter() -> Any:
    """A field for a number of a term that may be left out: `None` then."""
    return eqx.field(
        converter=lambda value: None if value is None else as_float(value), default=None
    )


def check_scalar(name: str, value: Array) -> None:
    """`value`, a number of a term, is a single one."""
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
    if not isinstance(value, tuple) or not all(type(axis) is int for axis in value):
        raise ValueError(f"{name} must be integers in a tuple, got {show(value)}.")


def normal_axes(name: str, axes: tuple[int, ...], x: Array) -> tuple[int, ...]:
    """`axes` of x, counted from the front; one or more different ones that x has."""
    bad = [axis for axis in axes if not -x.ndim <= axis < x.ndim]
    normal = tuple(axis % x.ndim for axis in axes) if not bad else ()
    if bad or not axes or len(set(normal)) != len(axes):
        raise ValueError(
            f"{name} must name one or more different axes of x, got {axes} "
            f"for an x of shape {x.shape}."
        )
    return normal


def check_address(name: str, value: Any) -> None:
    """`value` names a part of a pytree: a key, an index, or a tuple of them."""
    keys = value if isinstance(value, tuple) else (value,)
    if value is not None and not all(type(key) is int or isinstance(key, str) for key in keys):
        raise TypeError(
            f"{name} must be the name or the index of a part, or a tuple of them, "
            f"got {show(value)}."
        )


# What the maps of a term are applied to. #


def require_array(name: str, value: PyTree, term: Any) -> Array:
    """`value` as an array, or an error that says to address a part of a structured value."""
    if not isinstance(value, jax.Array | float | int) and not hasattr(value, "__array__"):
        raise TypeError(
            f"{type(term).__name__} acts on one array, but {name} is a {type(value).__name__} "
            f"with structure {structure(value)}; address a part of it with "
            f"`term.on({name}=...)`."
        )
    return array(name, value)


def require_scalar(name: str, value: PyTree, term: Any) -> Array:
    """`value` as an array of shape (), or an error that says what was given."""
    array = require_array(name, value, term)
    if array.shape != ():
        raise ValueError(
            f"{type(term).__name__} needs a scalar {name}, but its shape is {array.shape}; "
            f"address a scalar part of it with `term.on({name}=...)`."
        )
    return array


def operands(term: Any, theta: Any, x: Any) -> tuple[Array, Array]:
    """A scalar theta and an array x of the same floating dtype."""
    x = require_floating("x", x, term)
    array = require_scalar("theta", theta, term)
    if jnp.iscomplexobj(array):
        raise TypeError(f"{type(term).__name__} needs a real theta, got {theta}.")
    if is_strong_float(theta, array) and array.dtype != x.dtype:
        raise TypeError(
            f"{type(term).__name__} needs theta and x of one dtype, "
            f"but theta is {array.dtype} and x is {x.dtype}."
        )
    return jnp.asarray(array, x.dtype), x


def require_floating(name: str, value: PyTree, term: Any) -> Array:
    """`value` as one array of float32 or float64 numbers."""
    found = require_array(name, value, term)
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise TypeError(
            f"{type(term).__name__} needs a floating-point {name}, but its dtype is {found.dtype}."
        )
    wide_enough(name, found)
    if not found.size:
        raise ValueError(
            f"{type(term).__name__} needs an {name} with elements, but its shape is {found.shape}."
        )
    return found


def require_particles(value: PyTree, term: Any) -> Array:
    """`value` as one array of floats whose leading axis counts the particles."""
    found = require_floating("particles", value, term)
    if not found.ndim:
        raise ValueError(
            "particles must have a leading axis that counts the particles, got shape ()."
        )
    return found


def require_smoothing(name: str, lam: Any, like: Array) -> Array:
    """A smoothing in the dtype of `like`: a single number, 0 or positive."""
    found = array(name, lam)
    if found.dtype == np.bool_ or jnp.iscomplexobj(found):
        raise TypeError(f"{name} must be a real number, got dtype {found.dtype}.")
    if found.shape != ():
        raise ValueError(f"{name} must be a single number, but its shape is {found.shape}.")
    if is_concrete(lam) and not 0 <= float(lam) < np.inf:
        raise ValueError(f"{name} must be 0 or positive, and finite, got {lam}.")
    return found.astype(like.dtype)


def require_smoothing_tree(name: str, lam: PyTree, like: PyTree) -> tuple[PyTree, PyTree]:
    """The smoothing as arrays, `None` as it is; and one per leaf of `like`, 0 for `None`.

    A smoothing is a number, or a pytree of numbers like `like`.
    """
    given = []
    for path, part in leaves(name, lam, none=True):
        number = None if part is None else array(where(name, path), part)
        if number is not None:
            require_smoothing(where(name, path), number, jnp.ones((), jnp.result_type(float)))
        given.append(number)
    shape = jax.tree.structure(lam, is_leaf=is_none)
    numbers = [0.0 if number is None else number for number in given]
    try:
        each = jax.tree.broadcast(jax.tree.unflatten(shape, numbers), like)
        return jax.tree.unflatten(shape, given), each
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{name} must be a number or a pytree of numbers of the structure "
            f"{structure(like)}, got the structure {structure(lam)}."
        ) from error


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


def require_warm_start(warm: PyTree, term: Any, theta: PyTree, x: PyTree) -> None:
    """`warm` has the structure and the shapes of the term's own warm start."""
    wanted = jax.eval_shape(lambda: term.warm_start(theta, x))
    same = structure(warm) == structure(wanted)
    for given, like in zip(jax.tree.leaves(warm), jax.tree.leaves(wanted), strict=False):
        same = same and isinstance(given, jax.Array | np.ndarray)
        same = same and given.shape == like.shape and given.dtype == like.dtype
    if not same:
        raise ValueError(
            f"warm must be what `warm_start(theta, x)` or the last `solve` of "
            f"{type(term).__name__} returned, of structure {structure(wanted)} and with the shapes "
            f"and dtypes of x; got structure {structure(warm)}."
        )


def is_strong_float(value: Any, found: Array) -> bool:
    """Whether the value decides its dtype: not a Python number, not weakly typed."""
    weak = isinstance(value, float | int) or getattr(found, "weak_type", False)
    return bool(jnp.issubdtype(found.dtype, jnp.floating)) and not weak


def part_of_smoothing(name: str, lam: PyTree, address: Address | None) -> PyTree:
    """A number is the smoothing of every part below it; a pytree has one of its own for each.

    So is `None`: where theta as a whole does not move, none of its parts does.
    """
    for key in keys_of(address):
        if lam is None or jax.tree_util.all_leaves([lam]):
            break
        parts = parts_of(lam)
        if key not in parts:
            raise ValueError(
                f"{name} must be a number or have one for each part; "
                f"it has {list(parts)}, but a term is `.on` part {address!r}."
            )
        lam = parts[key]
    return lam
