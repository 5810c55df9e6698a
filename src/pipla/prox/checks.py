"""What terms accept: hyperparameters as float leaves, operands of one dtype, errors that name them.

Values are checked when they are concrete; inside `jit` and `vmap` only shapes and dtypes can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.prox.base import Term
from pipla.prox.operands import is_concrete, require_floating, require_scalar

#: The type of a term's numbers: given as a number or an array, stored as an array leaf.
Number = Any


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


def scalar(name: str, value: Array) -> None:
    """Refuse a hyperparameter that is not a single number."""
    if value.shape != ():
        raise ValueError(f"{name} must be a single number, but its shape is {value.shape}.")


def positive(name: str, value: Array) -> None:
    """Refuse a hyperparameter that is not a single, positive and finite number."""
    scalar(name, value)
    if is_concrete(value) and not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}.")


def not_negative(name: str, value: Array) -> None:
    """Refuse a hyperparameter that is not a single number, 0 or positive, and finite."""
    scalar(name, value)
    if is_concrete(value) and not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be 0 or positive, and finite, got {value}.")


def not_zero(name: str, value: Array) -> None:
    """Refuse a hyperparameter that is not a single finite number other than 0."""
    scalar(name, value)
    if is_concrete(value) and not 0 < abs(float(value)) < np.inf:
        raise ValueError(f"{name} must be finite and not 0, got {value}.")


def ordered(name_low: str, low: Array, name_high: str, high: Array) -> None:
    """Refuse bounds that cross."""
    if is_concrete(low) and is_concrete(high) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(
            f"{name_low} must not exceed {name_high}, got {name_low}={low}, {name_high}={high}."
        )


def one_of(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Refuse a choice that does not exist."""
    if value not in choices:
        expected = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {expected}, got {value!r}.")


def count(name: str, value: Any) -> None:
    """Refuse anything but a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")


def axes(name: str, value: Any) -> None:
    """Refuse anything but a tuple of whole numbers."""
    if not isinstance(value, tuple) or not all(isinstance(axis, int) for axis in value):
        raise ValueError(f"{name} must be whole numbers in a tuple, got {value!r}.")


def operands(term: Term, theta: Any, x: Any) -> tuple[Array, Array]:
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


def stays(lam_theta: Any) -> bool:
    """Whether theta is known to stay when the program is built: its smoothing is the number 0.

    Algorithms that do not move theta by the prox say so, and a term leaves out what theta needs.
    """
    return isinstance(lam_theta, float) and lam_theta == 0


def _is_strong_float(value: Any, array: Array) -> bool:
    # Python numbers and weakly typed arrays take the dtype of whatever they meet.
    weak = isinstance(value, float | int) or getattr(array, "weak_type", False)
    return bool(jnp.issubdtype(array.dtype, jnp.floating)) and not weak
