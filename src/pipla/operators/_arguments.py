"""Checks of what operators are made of and applied to: shapes, axes, operands.

Shapes and dtypes are static: these checks cost nothing in a compiled program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from pipla import _checks

#: The largest number of axes of an x.
MOST_AXES = 32


def operand(
    name: str,
    value: Any,
    sizes: Sequence[int] = (),
    axes: Sequence[int] = (),
    ndim: int | None = None,
) -> Array:
    """What an operator acts on: floats, with `ndim` axes and these sizes along `axes`.

    Integers become floats, because an operator takes the dtype of its operand, and its own numbers
    must not be rounded.

    >>> operand("x", jnp.ones((6, 5, 3)), (6, 7), (0, 1), 3)
    Traceback (most recent call last):
    ValueError: x must have shape (6, 7, any) for this operator, got (6, 5, 3).
    """
    found = _checks.array(name, value)
    if not jnp.issubdtype(found.dtype, jnp.floating):
        found = _checks.real_array(name, found)
    _checks.wide_enough(name, found)
    if ndim is None:
        return found
    expected: list[int | str] = ["any"] * ndim
    for axis, size in zip(axes, sizes, strict=True):
        expected[axis] = size
    got = found.shape
    if len(got) != ndim or any(e not in ("any", g) for e, g in zip(expected, got, strict=True)):
        shape = f"({', '.join(map(str, expected))}{',' if ndim == 1 else ''})"
        raise ValueError(f"{name} must have shape {shape} for this operator, got {got}.")
    return found


def checked_shape(shape: Any) -> tuple[int, ...]:
    """A shape without empty axes, of an x that fits into the memory."""
    found = integers("shape", shape, least=1)
    _checks.room("x", found)
    return found


def checked_axes(axes: Any, count: int, ndim: int) -> tuple[int, ...]:
    """`count` different axes of an array with `ndim` axes, counted from the front.

    By default the first ones.
    """
    axes = integers("axes", range(count) if axes is None else axes, least=-ndim)
    if any(axis >= ndim for axis in axes) or len({axis % ndim for axis in axes}) < len(axes):
        raise ValueError(f"axes must be different axes of an x with {ndim} axes, got {axes}.")
    if len(axes) != count:
        raise ValueError(f"axes must have {count} entries, got {axes}.")
    return tuple(axis % ndim for axis in axes)


def integers(name: str, values: Any, least: int) -> tuple[int, ...]:
    """A short sequence of integers."""
    try:
        if len(values) <= MOST_AXES:
            return tuple(_checks.integer(name, value, least=least) for value in values)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a tuple of integers, got {_checks.show(values)}."
        ) from error
    raise ValueError(f"{name} must have at most {MOST_AXES} entries, got {len(values)}.")
