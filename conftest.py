"""Strict numerics for every test: float64, no implicit promotion of dtypes or ranks.

Programs that XLA compiles are cached in `.pytest_cache/programs`, which workers, subprocesses, later
runs and the runs of the CI share. (A program taken from the cache still counts as compiled in
`counting`.) XLA compiles them with its older generator of code for fused operations, and
each program as one piece, where this jaxlib has those flags (0.12 has dropped the first): that
halves the time of compiling, which is most of the time of the tests. `XLA_FLAGS= make test` runs all of them on the code that users run; `test_default_compiler.py`
always does so for the contracts on equal bits.

Python looks for garbage less often: tracing makes millions of objects that live on, and looking at
them all is a twentieth of the time.

The tests of one file, or all contracts on one row of a table, run on one worker, so that their
fixtures and programs are made once. A worker that holds much memory drops its compiled programs,
which would otherwise stay until it ends.
"""

import ctypes
import gc
import importlib.util
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

PROGRAMS = Path(__file__).parent / ".pytest_cache" / "programs"
FLAGS = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")


def known(flag: str) -> bool:
    """Whether this jaxlib has the flag: XLA ends a process whose flags it does not know."""
    start = "from jaxlib import xla_client; xla_client.make_cpu_client()"
    probe = [sys.executable, "-c", start]
    environment = os.environ | {"XLA_FLAGS": flag}
    return subprocess.run(probe, env=environment, capture_output=True).returncode == 0


if "XLA_FLAGS" not in os.environ:  # workers inherit what was found
    os.environ["XLA_FLAGS"] = " ".join(filter(known, FLAGS))
#: Workers and subprocesses inherit these.
ENVIRONMENT = {
    "JAX_COMPILATION_CACHE_DIR": str(PROGRAMS),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "PJRT_NPROC": "1",  # one thread per worker: the workers share the cores
}
for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
# pytest has imported JAX by now, for the warning that pyproject.toml names: without workers (`-n 0`)
# nobody reads these variables any more.
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

gc.set_threshold(50_000, 20, 20)

#: Without pipla-lab the odd calls, some of which are of its functions, cannot be imported.
collect_ignore = ["tests/attack/odd_targets.py"]
if importlib.util.find_spec("pipla_lab") is not None:
    collect_ignore = []

#: Folders whose `test_contracts.py` runs every test on every row of a table, and how the row is
#: read from the id of a test: `[row-contract]` or `[contract-row]`.
TABLES = {
    "algorithms": lambda name: name.rpartition("-")[0],
    "prox": lambda name: name.partition("-")[2],
}
#: Files of long tests that share little: they run last, one by one, and keep both workers busy.
SPREAD = ("test_answers.py", "test_docs.py")


def group_of(test: str) -> str:
    """Tests of one group run on one worker: those of one file, or the contracts on one row.

    Arguments:
        test: the id of a test, `tests/prox/test_contracts.py::test_contract[no_worse-l1]`.
    """
    path, _, name = test.partition("::")
    *_, folder, file = ["", *path.split("/")]
    if file == "test_contracts.py" and folder in TABLES and "[" in name:
        return f"{folder}-{TABLES[folder](name[name.index('[') + 1 : -1])}"
    if file in SPREAD:
        return "skeletons" if "skeletons" in name else test  # they share a page that is run once
    return path


@pytest.hookimpl(optionalhook=True)  # without xdist there are no workers
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A scheduler that knows the groups.

    Not `--dist loadgroup`: it writes the group of a test into a private attribute, which pytest
    9.2 does not read, and then spreads the tests of a group over all workers without a word.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


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
