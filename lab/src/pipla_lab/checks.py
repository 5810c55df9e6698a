"""Checks of arguments: each error names the argument, what was given, and what is allowed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def integer(name: str, value: Any, *, least: int, most: int = 2**31 - 1) -> int:
    """`value` as an int from `least` to `most`, by default the largest 32-bit integer."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {show(value)}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {show(value)}.")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, got {show(value)}.")
    return int(value)


def seed(value: Any) -> int:
    """A seed that JAX accepts: a 64-bit integer, not negative."""
    return integer("seed", value, least=0, most=2**63 - 1)


def real(name: str, value: Any) -> float:
    """`value`, a number or an array of one, as a finite Python float."""
    allowed = float | int | np.floating | np.integer | np.ndarray | jax.Array
    if isinstance(value, bool | jax.core.Tracer) or not isinstance(value, allowed):
        raise TypeError(f"{name} must be a number, got {show(value)}.")
    if np.shape(value) != () or not np.issubdtype(np.result_type(value), np.number):
        raise TypeError(f"{name} must be a single real number, got {show(value)}.")
    if np.iscomplexobj(value):
        raise TypeError(f"{name} must be a single real number, got {show(value)}.")
    try:
        found = float(value)
    except OverflowError as error:  # an integer of hundreds of digits
        raise ValueError(f"{name} is too large for a floating-point number.") from error
    if not np.isfinite(found):
        raise ValueError(f"{name} must be finite, got {show(value)}.")
    return found


def positive(name: str, value: Any) -> float:
    """`value` as a finite Python float greater than zero."""
    found = real(name, value)
    if not found > 0:
        raise ValueError(f"{name} must be positive and finite, got {show(value)}.")
    return found


def boolean(name: str, value: Any) -> None:
    """`value` is `True` or `False`."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {show(value)}.")


def choice(name: str, value: Any, options: tuple[Any, ...]) -> None:
    """`value` is one of `options`."""
    # The types are compared first: `array == "text"` is an array.
    if not any(isinstance(value, type(option)) and value == option for option in options):
        listed = ", ".join(map(repr, options))
        raise ValueError(f"{name} must be one of {listed}; got {show(value)}.")


def show(value: Any) -> str:
    """Anything as a short text: an array by its numbers, the rest by its `repr`."""
    try:
        array = isinstance(value, jax.Array | np.ndarray | np.generic)
        text = str(value) if array else repr(value)
    except Exception:  # an object may raise anything when it is printed, an integer of 5000 digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else text[:200] + "..."
