"""How long README's first example takes from `python` to a result, beside a bare `import jax`.

    python benchmarks/startup.py                     # this tree
    python benchmarks/startup.py OTHER/src src       # two trees, in turns

Every measurement is a process of its own: it starts Python, imports JAX and pipla, compiles and
makes the steps. "cache" is JAX's cache of compiled programs, as `pipla.config.enable_cache()` sets
it, filled by an earlier process. Both the time on the clock and the CPU time of the process are
printed: on a shared machine the second one varies less. The lines are measured in turns, and
medians are printed. The last column counts the programs that XLA compiles.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROUNDS = 5
README = Path(__file__).parents[1] / "README.md"
EXAMPLE = README.read_text().split("```python\n")[1].split("```")[0]
#: What is subtracted in thought: pipla cannot be faster than this.
BARE = "import jax"
IMPORTS = "import jax, pipla"


def main() -> None:
    trees = sys.argv[1:] or [str(Path(__file__).parents[1] / "src")]
    jobs: dict[str, tuple[str, dict[str, str]]] = {"import jax": (BARE, {})}
    with tempfile.TemporaryDirectory() as folder:
        for number, tree in enumerate(trees):
            here = {"PYTHONPATH": tree}
            cached = {**here, **_cache(f"{folder}/{number}")}
            _run(EXAMPLE, cached)  # fills the cache
            jobs[f"{tree}: import jax, pipla"] = (IMPORTS, here)
            jobs[f"{tree}: README's example"] = (EXAMPLE, here)
            jobs[f"{tree}: README's example, cache"] = (EXAMPLE, cached)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
        for _ in range(ROUNDS):
            for name, job in jobs.items():
                times[name].append(_run(*job))
        width = max(map(len, jobs))
        print(f"{'median of ' + str(ROUNDS) + ' processes':{width}s}  seconds  CPU s  programs")
        for name, job in jobs.items():
            wall, cpu = (median(column) for column in zip(*times[name], strict=True))
            print(f"{name:{width}s}  {wall:7.2f}  {cpu:5.2f}  {_programs(*job):8d}")


def _environment(changes: dict[str, str]) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PJRT_", "PIPLA_"))}
    return {**own, **changes}


def _cache(folder: str) -> dict[str, str]:
    return {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def _run(code: str, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock and of CPU time of a process."""
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env=_environment(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    took = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for
    if child.returncode:
        raise RuntimeError(f"the example ended with code {child.returncode}")
    return took, usage.ru_utime + usage.ru_stime


def _programs(code: str, environment: dict[str, str]) -> int:
    """How many programs are compiled, or taken from the cache."""
    logging = {"JAX_LOG_COMPILES": "1"}
    child = subprocess.run(
        [sys.executable, "-c", code],
        env=_environment({**environment, **logging}),
        capture_output=True,
        text=True,
        check=True,
    )
    return child.stderr.count("Finished XLA compilation of")


if __name__ == "__main__":
    main()
