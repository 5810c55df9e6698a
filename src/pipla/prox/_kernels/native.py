r"""Machine code by numba inside of JAX programs, on CPUs; where there is none, JAX does the work.

Numba and the kernels are imported when they are first needed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def target(module: str, dtype: Any) -> str | None:
    """The name under which XLA knows the kernel in a module of `pipla.prox`; `None` without one."""
    if dtype not in (np.float32, np.float64) or jax.default_backend() != "cpu":
        return None
    return _registered(module, np.dtype(dtype))


@functools.cache
def _registered(module: str, dtype: np.dtype) -> str | None:
    """Its name. The kernel is compiled now if it never was."""
    try:
        kernel = importlib.import_module(f"pipla.prox._kernels.{module}")
    except ImportError:  # no numba, or none for this version of NumPy
        return None
    name = f"pipla_{module}_{dtype.name}"
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(kernel.address(dtype)), platform="cpu")
    return name


def on_cpu(kernel: Callable[..., Any] | None, portable: Callable[..., Any], *at: Any) -> Any:
    """The kernel on CPUs, if there is one; its derivatives are those of the JAX form."""
    if kernel is None:
        return portable(*at)
    native = jax.custom_jvp(kernel)
    native.defjvp(lambda at, tangents: jax.jvp(portable, at, tangents))
    return jax.lax.platform_dependent(*at, cpu=native, default=portable)
