"""What the maps of a term accept: arrays of the right kind, or errors that name the argument.

Values are checked when they are concrete; inside `jit` and `vmap` only shapes and dtypes can be.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree


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
    """The two smoothings of a joint prox; theta may not move where x is pinned."""
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
