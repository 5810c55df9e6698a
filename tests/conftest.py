"""Strict numerics for every test: float64, no implicit promotion of dtypes or ranks.

Programs that XLA compiles are cached in `.pytest_cache/programs`, which workers, subprocesses, later
runs and the runs of the CI share. (A program taken from the cache still counts as compiled in
`counting`.) With `--dist loadgroup`, the tests of one file, or all contracts on one row of a table,
run on one worker, so that their fixtures and programs are made once. A worker that holds much memory
drops its compiled programs, which would otherwise stay until it ends.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
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
#: Files of long tests that share little: they run last, one by one, and keep both workers busy.
SPREAD = ("test_answers.py", "test_docs.py")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the contracts by row and other tests by file."""
    here = Path(__file__).parent
    for item in items:
        grouped = item.get_closest_marker("xdist_group") is not None
        if grouped or not item.path.is_relative_to(here) or item.path.name in SPREAD:
            continue
        row = None
        folder = item.path.parent.name
        if folder in TABLES and item.path.name == "test_contracts.py" and hasattr(item, "callspec"):
            params = item.callspec.params
            row = getattr(params.get("row", params.get("case")), "name", None)
        group = str(item.path.relative_to(here)) if row is None else f"{folder}-{row}"
        item.add_marker(pytest.mark.xdist_group(group))


#: Compiled programs are dropped between two tests when a worker holds this much, in bytes, and this
#: much more than after the last time.
MOST_MEMORY, MORE_MEMORY = 2_500_000_000, 1_000_000_000
_after_clearing = [0]


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Iterator[None]:
    yield
    if sys.platform != "linux" or _resident() < max(MOST_MEMORY, _after_clearing[0] + MORE_MEMORY):
        return
    jax.clear_caches()
    ctypes.CDLL(None).malloc_trim(0)
    _after_clearing[0] = _resident()
