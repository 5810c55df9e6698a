r"""The CPU kernel of the total variation prox as a JAX function; `None` where there is none.

Importing this module does not import numba. Without numba, on other platforms and for differences
along axes with others in between, the JAX form does the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from pipla._ffi import ffi

#: (x, shift, tolerance, warm) -> (u, dual, gap)
Solver = Callable[[Array, Array, Array, tuple[Array, ...]], tuple[Array, tuple[Array, ...], Array]]
#: x -> its total variation
Value = Callable[[Array], Array]


class Kernel(NamedTuple):
    """The kernel for arrays of one shape and dtype.

    `numbers` are stacks, depth, rows, cols, inner, directions, isotropic and max_iterations: the
    attribute that the kernel reads. `order` lists the axes that it works along.
    """

    target: str
    numbers: np.ndarray
    order: list[int]

    def call(
        self, results: list[jax.ShapeDtypeStruct], *operands: Array, in_place: Sequence[int] = ()
    ) -> list[Array]:
        """Call the kernel; under `vmap`, once for all particles."""
        call = jax.ffi.ffi_call(
            self.target,
            results,
            vmap_method="broadcast_all",
            input_output_aliases={place: place for place in in_place},
        )
        return list(call(*operands, layout=self.numbers))


def native_solver(
    shape: tuple[int, ...],
    dtype: Any,
    axes: tuple[int, ...],
    isotropic: bool,
    max_iterations: int,
) -> Solver | None:
    """The prox for arrays of this shape and dtype, or `None`."""
    kernel = _kernel(shape, dtype, axes, isotropic, max_iterations)
    if kernel is None:
        return None

    def solve(
        x: Array, shift: Array, tolerance: Array, warm: tuple[Array, ...]
    ) -> tuple[Array, tuple[Array, ...], Array]:
        like, scalar = jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct((), dtype)
        results = [like] * (1 + len(kernel.order)) + [scalar]
        duals = (warm[i] for i in kernel.order)
        places = range(1, 1 + len(kernel.order))  # of the dual, among operands and results
        u, *found, gap = kernel.call(results, x, *duals, shift, tolerance, in_place=places)
        dual = list(warm)  # nothing happens along an axis of length 1
        for i, array in zip(kernel.order, found, strict=True):
            dual[i] = array
        return u, tuple(dual), gap

    return solve


def native_value(
    shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...], isotropic: bool
) -> Value | None:
    """The total variation of arrays of this shape and dtype, or `None`."""
    kernel = _kernel(shape, dtype, axes, isotropic, 0)
    if kernel is None:
        return None
    return lambda x: kernel.call([jax.ShapeDtypeStruct((), dtype)], x)[0]


def _kernel(
    shape: tuple[int, ...],
    dtype: Any,
    axes: tuple[int, ...],
    isotropic: bool,
    max_iterations: int,
) -> Kernel | None:
    active = [axis for axis in sorted(axes) if shape[axis] > 1]
    layout = _layout(shape, active)
    target = ffi.target("pipla.prox._kernels.tv_sweep", dtype) if layout is not None else None
    if layout is None or target is None:
        return None
    numbers = np.array([*layout, len(axes), isotropic, max_iterations], np.int64)
    return Kernel(target, numbers, [axes.index(axis) for axis in active])


def _layout(shape: tuple[int, ...], active: list[int]) -> tuple[int, ...] | None:
    """(stacks, depth, rows, cols, inner) with differences along the three in the middle."""
    if not 1 <= len(active) <= 3 or 0 in shape:
        return None
    first, last = active[0], active[-1]
    lengths = [shape[axis] for axis in active]
    if math.prod(shape[first : last + 1]) != math.prod(lengths):
        return None
    stacks, inner = math.prod(shape[:first]), math.prod(shape[last + 1 :])
    if len(lengths) == 1 and inner > 1:  # differences between whole rows
        return stacks, 1, lengths[0], 1, inner
    return (stacks, *[1] * (3 - len(lengths)), *lengths, inner)
