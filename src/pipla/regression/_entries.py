"""The compiled sweeps as functions for Python, kept in numba's cache on disk.

The cache looks at the file of the function that Python calls, and at what that encloses; at no
other file. The functions here enclose a hash of all files that they are compiled from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from pipla.regression import (
    _factors,
    _kernels,
    _linear,
    _mixture,
    _multinomial,
    _state,
    _vector_math,
)
from pipla.regression._kernels import glm_sweeps
from pipla.regression._linear import linear_sweeps
from pipla.regression._multinomial import multinomial_sweeps


def _source() -> str:
    modules = (_factors, _kernels, _linear, _mixture, _multinomial, _state, _vector_math)
    files = (Path(str(module.__file__)) for module in modules)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _cached(function: Callable[..., None]) -> Any:
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no folder for a cache is writable
        return numba.njit(nogil=True)(function)


def _entries(source: str) -> tuple[Any, Any, Any]:
    def linear(*arguments: Any) -> None:
        if source:
            linear_sweeps(*arguments)

    def glm(*arguments: Any) -> None:
        if source:
            glm_sweeps(*arguments)

    def multinomial(*arguments: Any) -> None:
        if source:
            multinomial_sweeps(*arguments)

    return _cached(linear), _cached(glm), _cached(multinomial)


run_linear, run_glm, run_multinomial = _entries(_source())
