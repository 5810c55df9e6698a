"""Checks of arguments: each error names the argument, what was given, what to try.

Values are checked when they are concrete; inside `jit` and `vmap` only shapes and dtypes can be.
"""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

_ARRAYS = (jax.Array, np.ndarray, np.generic)

# Arrays and pytrees of them. #


def array(name: str, value: Any) -> Array:
    """`value` as an array of numbers or booleans, or an error that names it.

    Every public function converts through here, so that no error of NumPy or JAX is seen. A
    masked value is refused, because JAX has no masks. Big-endian and extended-precision numbers,
    which JAX does not have, are converted.
    """
    if isinstance(value, jax.Array):
        if not _is_number(value.dtype):
            raise TypeError(f"{name} must be an array of numbers, got dtype {value.dtype}.")
        return value
    raw = _as_numpy(name, value)
    # A Python number stays weakly typed, unless it is an integer that only a float can hold.
    is_python = isinstance(value, float | int) and (raw.dtype.kind == "f") == (type(value) is float)
    return jnp.asarray(value if is_python else raw)


def real_array(name: str, value: Any) -> Array:
    """`value` as an array of real numbers in JAX's default float type."""
    found = array(name, value)
    if jnp.iscomplexobj(found):
        raise TypeError(f"{name} must be an array of real numbers, got dtype {found.dtype}.")
    return jnp.asarray(found, jnp.result_type(float))


def on_host(name: str, value: Any) -> np.ndarray:
    """`value` as a NumPy array of real numbers that are known now: kernels, labels, images."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} is being traced by JAX; give numbers that are known now.")
    if isinstance(value, jax.Array):
        value = array(name, value)  # not a key
    raw = _as_numpy(name, value)
    if np.iscomplexobj(raw):
        raise TypeError(f"{name} must be an array of real numbers, got dtype {raw.dtype}.")
    return raw


def _as_numpy(name: str, value: Any) -> np.ndarray:
    """Numbers or booleans as a NumPy array of a dtype that JAX has, too."""
    if np.ma.isMaskedArray(value):
        hidden = int(np.ma.count_masked(value))
        if hidden:
            raise ValueError(
                f"{name} has {hidden} masked value(s), and a mask would be dropped; "
                "fill them first, for example with `.filled()`."
            )
        value = value.data
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        value = _large_integer(name, value)
    try:
        raw = np.asarray(value)
    except Exception as error:  # an object may raise anything when it is asked for an array
        raise TypeError(f"{name} must be an array of numbers, got {show(value)}.") from error
    if not _is_number(raw.dtype):
        raise TypeError(
            f"{name} must be an array of numbers, got {show(value)}"
            + (f" of dtype {raw.dtype}." if isinstance(value, np.ndarray) else ".")
        )
    room(name, raw.shape, raw.dtype.itemsize)
    if not raw.dtype.isnative or raw.dtype in (np.longdouble, np.clongdouble):
        raw = raw.astype(complex if raw.dtype.kind == "c" else raw.dtype.newbyteorder("="))
        raw = raw.astype(np.float64) if raw.dtype == np.longdouble else raw
    return raw


def room(name: str, shape: Any, itemsize: int = 8) -> None:
    """An array of this shape fits into the memory of this machine."""
    size = math.prod(shape) * itemsize
    if size > _memory():
        raise ValueError(
            f"{name} of shape {tuple(shape)} would take {size / 2**30:.4g} GiB, "
            "more than the memory of this machine."
        )


def arrays(name: str, tree: PyTree) -> PyTree:
    """`tree` with NumPy arrays and numbers as JAX arrays; other leaves (text, functions) as is."""

    def leaf(where: str, value: Any) -> Any:
        number = isinstance(value, jax.Array | np.ndarray | np.generic | int | float | complex)
        key = number and jnp.issubdtype(getattr(value, "dtype", float), jax.dtypes.prng_key)
        return array(where, value) if number and not key else value

    return map_leaves(name, leaf, tree)


def numbers(name: str, tree: PyTree) -> PyTree:
    """`tree` with every leaf as an array of real numbers."""

    def leaf(where: str, value: Any) -> Array:
        found = array(where, value)
        if found.dtype == np.bool_ or jnp.iscomplexobj(found):
            raise TypeError(f"{where} must hold real numbers, got dtype {found.dtype}.")
        if jnp.issubdtype(found.dtype, jnp.floating):
            wide_enough(where, found)
        return found

    return map_leaves(name, leaf, tree)


def finite(name: str, tree: PyTree) -> None:
    """Every floating leaf of `tree` holds finite numbers only."""
    for path, leaf in leaves(name, tree):
        if isinstance(leaf, jax.core.Tracer) or not is_float(leaf):
            continue
        # In NumPy: inside a transformation JAX would trace this, and the answer be unknown.
        bad = int(np.sum(~np.isfinite(np.asarray(leaf))))
        if bad:
            raise ValueError(
                f"{where(name, path)} has {bad} non-finite value(s) (NaN or inf) among "
                f"{leaf.size}; remove or impute them first."
            )


def floating(name: str, tree: PyTree) -> PyTree:
    """`tree` with array leaves of a real floating dtype of 32 or 64 bits, or a TypeError.

    Never weakly typed: a Python float and an array must not be two programs to compile.
    """

    def leaf(where: str, value: Any) -> Array:
        if isinstance(value, float):
            return float_array(value)
        found = array(where, value)
        if not jnp.issubdtype(found.dtype, jnp.floating):
            raise TypeError(
                f"{where} must be floating, got dtype {found.dtype}; "
                "write 0.0 instead of 0, or use `.astype(float)`."
            )
        wide_enough(where, found)
        return found.astype(found.dtype)

    return map_leaves(name, leaf, tree)


def resolution(name: str, tree: PyTree) -> None:
    """Warn where the floats of a leaf are too coarse for the differences between its numbers.

    Near 1e8 the spacing of float32 is 8: numbers that differ by 1 become equal. The warning comes
    where the spacing at the largest number exceeds a thousandth of the standard deviation. Call it
    on what the user gave: in float64, before a conversion to float32, the differences still show.
    """
    for path, leaf in leaves(name, tree):
        if isinstance(leaf, jax.core.Tracer) or not is_float(leaf) or np.size(leaf) < 2:
            continue
        room(where(name, path), leaf.shape)
        dtype = np.dtype(jax.dtypes.canonicalize_dtype(leaf.dtype))
        values = np.asarray(leaf, np.float64)
        largest, spread = float(np.max(np.abs(values))), float(np.std(values))
        if dtype not in (np.float32, np.float64) or not np.isfinite(largest):
            continue
        spacing = float(np.spacing(np.asarray(largest, dtype)))
        # Constant data are common and right; where not even integers differ, they may be rounded.
        if spacing > (1e-3 * spread if spread > 0 else 0.999):
            warnings.warn(
                f"{where(name, path)}: near {largest:.3g} neighbouring {dtype.name} numbers are "
                f"{spacing:.2g} apart, too coarse for a standard deviation of {spread:.2g}; "
                "subtract a constant first"
                + (", or enable float64 (`jax_enable_x64`)." if dtype == np.float32 else "."),
                stacklevel=3,
            )


def particle_count(particles: PyTree) -> int:
    """The number of particles: the common length of the leading axis of every leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(particles)
    if not leaves:
        raise ValueError("particles is empty; give an array of shape (num_particles, ...).")
    sizes = {}
    for path, leaf in leaves:
        if leaf.ndim == 0:
            raise ValueError(
                f"{where('particles', path)} has shape (); its leading axis must count the "
                "particles: give shape (num_particles, ...), also for a single one."
            )
        sizes[where("particles", path)] = leaf.shape[0]
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
    """`value` is a finite number greater than zero (or an array of such, or traced).

    It must also be so in the dtype of computations: 1e-50 is 0 in float32.
    """
    if value is None or isinstance(value, jax.core.Tracer):
        return
    try:
        numbers = np.asarray(value)
    except Exception as error:  # an object may raise anything when it is asked for an array
        raise TypeError(f"{name} must be a positive number, got {show(value)}.") from error
    if not np.issubdtype(numbers.dtype, np.number) or np.iscomplexobj(numbers):
        raise TypeError(f"{name} must be a positive number, got {show(value)}.")
    in_memory(name, numbers)
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must be positive and finite, got {show(value)}.")
    limits = jnp.finfo(jnp.result_type(float))
    if not bool(np.all((numbers >= float(limits.tiny)) & (numbers <= float(limits.max)))):
        raise ValueError(f"{name} must be positive and finite, got {show(value)}.")


def single(name: str, value: Any) -> None:
    """`value` is one number, not an array of them (or left out)."""
    try:
        shape = np.shape(value)
    except Exception as error:  # rows of different lengths
        raise TypeError(f"{name} must be a single number, got {show(value)}.") from error
    if shape != ():
        found = f"an array of shape {shape}; `pipla.sweep` runs several settings at once"
        raise ValueError(f"{name} must be a single number, got {found}.")


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


def level(value: Any) -> float:
    """The probability of an interval."""
    found = real("level", value)
    if not 0 < found < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.9, got {found:g}.")
    return found


def real(name: str, value: Any) -> float:
    """`value` as one finite Python float."""
    if isinstance(value, jax.core.Tracer) or not isinstance(
        value, float | int | np.floating | np.integer | np.ndarray | jax.Array
    ):
        raise TypeError(f"{name} must be a number, got {show(value)}.")
    found = array(name, value)
    if found.shape != () or found.dtype == bool or jnp.iscomplexobj(found):
        raise TypeError(f"{name} must be a single real number, got {show(value)}.")
    if not np.isfinite(float(value)):
        raise ValueError(f"{name} must be finite, got {show(value)}.")
    return float(value)


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
        raise TypeError(f"{name} must be True or False, got {show(value)}.")


def choice(name: str, value: Any, options: tuple[Any, ...]) -> None:
    """`value` is one of `options`."""
    # The types are compared first: `array == "text"` is an array.
    if not any(isinstance(value, type(option)) and value == option for option in options):
        listed = ", ".join(map(repr, options))
        raise ValueError(f"{name} must be one of {listed}; got {show(value)}.")


def float_array(value: float) -> Array:
    """A Python number as an array of JAX's default float, without compiling a program for that."""
    return jax.device_put(np.asarray(value, jnp.result_type(float)))


def is_concrete(value: Any) -> bool:
    """Whether the value is known now, not only when a program runs."""
    return not isinstance(value, jax.core.Tracer)


def is_float(leaf: Any) -> bool:
    """Whether the leaf is an array of floats."""
    return isinstance(leaf, _ARRAYS) and bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _is_number(dtype: Any) -> bool:
    return dtype == np.bool_ or jnp.issubdtype(dtype, jnp.number)


def is_none(value: Any) -> bool:
    """Whether the value is `None`: a leaf where `None` must be kept."""
    return value is None


def wide_enough(name: str, found: Array) -> None:
    """Half precision has three digits: sums over data and small steps are lost in it."""
    if found.dtype.itemsize < 4:
        raise TypeError(f"{name} has dtype {found.dtype}; use float32 or float64.")


def _large_integer(name: str, value: int) -> int | float:
    """An integer beyond 32 bits as a float, unless JAX has 64 bits for it."""
    if jax.config.jax_enable_x64 and -(2**63) <= value < 2**63:
        return value
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{name} is too large for a floating-point number.") from error


def in_memory(name: str, value: Any) -> None:
    """An array is no larger than the memory: a look at each number of a huge view takes hours."""
    if isinstance(value, np.ndarray) and value.nbytes > _memory():
        raise ValueError(
            f"{name} is larger than the memory of this machine: shape {value.shape}, "
            f"{value.nbytes / 2**30:.3g} GiB."
        )


def _memory() -> float:
    """The memory of this machine in bytes, or infinity where it cannot be asked for."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def leaves(name: str, tree: PyTree, *, none: bool = False) -> list[tuple[Any, Any]]:
    """The leaves with their paths; a TypeError that names a tree which JAX cannot flatten."""
    try:
        return jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_none if none else None)
    except (ValueError, TypeError) as error:
        raise TypeError(
            f"{name} must be an array or a pytree of arrays; the keys of a dict must be "
            f"sortable: {error}"
        ) from error


def map_leaves(name: str, function: Any, tree: PyTree) -> PyTree:
    """`function(where, leaf)` of every leaf."""
    found = [function(where(name, path), leaf) for path, leaf in leaves(name, tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), found)


def structure(tree: PyTree) -> str:
    """The structure of a pytree for a message; the type of what JAX cannot flatten."""
    try:
        return str(jax.tree.structure(tree))
    except (ValueError, TypeError):
        return type(tree).__name__


def show(value: Any) -> str:
    """Anything as a short text: an array by its numbers, the rest by its `repr`."""
    try:
        text = str(value) if isinstance(value, _ARRAYS) else repr(value)
    except Exception:  # an object may raise anything when it is printed, an integer of 5000 digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else text[:200] + "..."


def where(name: str, path: Any) -> str:
    """The name of a leaf: the name of its tree and its path."""
    return name + jax.tree_util.keystr(path)
