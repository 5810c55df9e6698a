"""Strict numerics for every test: float64, no implicit promotion of dtypes or ranks.

Programs that XLA compiles are cached in `.pytest_cache/programs`, which workers, subprocesses, later
runs and the runs of the CI share. (A program taken from the cache still counts as compiled in
`counting`.) With `--dist loadgroup`, all contracts on one row of a table run on one worker, so that
the row's programs are traced once.
"""

import os
from pathlib import Path

import pytest

_programs = Path(__file__).parents[1] / ".pytest_cache" / "programs"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_programs))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("PJRT_NPROC", "1")  # one thread per worker: the workers share the cores

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

#: Folders whose `test_contracts.py` runs every test on every row of a table.
TABLES = ("algorithms", "prox")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the contracts by row, and run the tests of a row one after the other."""
    for item in items:
        folder = item.path.parent.name
        if folder in TABLES and item.path.name == "test_contracts.py" and hasattr(item, "callspec"):
            params = item.callspec.params
            row = getattr(params.get("row", params.get("case")), "name", None)
            if row is not None:
                item.add_marker(pytest.mark.xdist_group(f"{folder}-{row}"))
