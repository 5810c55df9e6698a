r"""The root in the prox of `pipla.prox.laplace` as machine code for CPUs, by numba.

XLA takes particles through Newton's method together, until the slowest of them is done. Here each
stops by itself, after half as many evaluations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipla.prox._kernels.ffi import (
    compiled,
    handler,
    how_many,
    lengths,
    only_asks,
    operands,
    particle,
    results,
    version,
)

#: Evaluations at most. In the last ones a bisection has nothing left to halve.
MAX_ITERATIONS = 100


@compiled
def _pull(z: Any, size: Any, v: Any, window: Any, one: Any) -> Any:
    """Σ clip(z - v, ±1), and how many differences are inside of ±window."""
    zero = one - one
    total, near = zero, zero
    for i in range(size):
        apart = z[i] - v
        # In this form a minimum and a maximum are one instruction each, whatever NaN is.
        below = apart if apart < one else one
        total += below if below > -one else -one
        near += one if abs(apart) < window else zero
    return total, near


@compiled
def _root(z: Any, size: Any, ratio: Any, one: Any, rounding: Any) -> Any:
    """The root of v - ratio Σ clip(z - v, ±1): that of `increasing_root`, step by step."""
    half = one / type(one)(2)  # a bare 2 would make everything float64
    window = max(one, ratio * type(one)(math.sqrt(size)))
    total, near = _pull(z, size, one - one, window, one)
    v = ratio * total / (one + ratio * near / window)
    upper = ratio * type(one)(size)
    lower = -upper
    last = before_last = upper / (half * half)
    for _ in range(MAX_ITERATIONS):
        total, near = _pull(z, size, v, one, one)
        value = v - ratio * total
        if value == 0:
            return v
        if value < 0:
            lower = v
        else:
            upper = v
        target = v - value / (one + ratio * near)
        trusted = lower <= target <= upper and abs(target - v) <= half * before_last
        if not trusted:
            target = lower + half * (upper - lower)
        step = abs(target - v)
        v, last, before_last = target, step, last
        if not step > rounding * (abs(v) + one):
            return v
    return v


@compiled
def _serve(frame: Any, one: Any, rounding: Any) -> Any:
    """Operands z and ratio; the result is v. Under `vmap` every buffer holds all particles."""
    if only_asks(frame):
        return 0
    given, roots = operands(frame), results(frame)[0]
    shape = lengths(given[0])
    size = shape[len(shape) - 1]
    for which in range(how_many(roots)):
        z = particle(given[0], which, size, one)
        ratio = particle(given[1], which, 1, one)[0]
        particle(roots, which, 1, one)[0] = _root(z, size, ratio, one, rounding)
    return 0


def address(dtype: np.dtype) -> int:
    """The address of the handler for arrays of `dtype`."""
    one, source = dtype.type(1), version()
    rounding = dtype.type(2 * np.finfo(dtype).eps)

    def enter(frame: int) -> int:
        return _serve(frame, one, rounding) if source else 0

    return handler(enter)
