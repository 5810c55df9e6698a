"""Strict numerics for every test: float64, no implicit promotion of dtypes or ranks.

What XLA compiles is kept in pytest's cache folder: workers, subprocesses and the next run take from
it what one of them compiled. (A program taken from there counts as compiled: `counting`.)
"""

import os
from pathlib import Path

_programs = Path(__file__).parents[1] / ".pytest_cache" / "programs"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_programs))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
