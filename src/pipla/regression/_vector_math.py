"""Exponential and logarithm that LLVM turns into vector instructions; those of libm stay calls."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic as typed_intrinsic

#: Allowed changes of rounding. Unlike all of fastmath, they leave NaN and infinity alone.
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
compiled = numba.njit(fastmath=FASTMATH, error_model="numpy", nogil=True)
inlined = numba.njit(fastmath=FASTMATH, error_model="numpy", forceinline=True)
intrinsic: Any = typed_intrinsic  # its type does not say that callers leave out the first argument


@intrinsic
def _float(_: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(number), generate


@inlined
def exp(x: float) -> float:
    """e^x for |x| <= 700, to about 1e-13.

    No trick with a large number rounds to an integer here: fastmath, which LLVM applies after
    inlining, would remove it.
    """
    scaled = x * 1.4426950408889634
    whole = np.floor(scaled + 0.5)
    f = (scaled - whole) * 0.6931471805599453  # |f| <= log(2)/2
    p = 1.0 / 479001600.0
    p = p * f + 1.0 / 39916800.0
    p = p * f + 1.0 / 3628800.0
    p = p * f + 1.0 / 362880.0
    p = p * f + 1.0 / 40320.0
    p = p * f + 1.0 / 5040.0
    p = p * f + 1.0 / 720.0
    p = p * f + 1.0 / 120.0
    p = p * f + 1.0 / 24.0
    p = p * f + 1.0 / 6.0
    p = p * f + 0.5
    p = p * f + 1.0
    p = p * f + 1.0
    return p * _float((np.int64(np.int32(whole)) + 1023) << 52)


@inlined
def log1p(z: float) -> float:
    """log(1 + z) for 0 <= z <= 1, to about 1e-12: 2 artanh(z / (2 + z))."""
    s = z / (2.0 + z)
    q = s * s
    p = 1.0 / 23.0
    p = p * q + 1.0 / 21.0
    p = p * q + 1.0 / 19.0
    p = p * q + 1.0 / 17.0
    p = p * q + 1.0 / 15.0
    p = p * q + 1.0 / 13.0
    p = p * q + 1.0 / 11.0
    p = p * q + 1.0 / 9.0
    p = p * q + 1.0 / 7.0
    p = p * q + 1.0 / 5.0
    p = p * q + 1.0 / 3.0
    p = p * q + 1.0
    return 2.0 * s * p
