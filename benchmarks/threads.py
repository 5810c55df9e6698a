"""One core or all of them: a PIPGLA run on the paper's logistic regression, and replicates of it.

Run by `make bench`, after `logistic.py`, whose problem this is. First it prints how many cores a
large product of the user's own keeps busy, without and with pipla imported. Every setting has a
process of its own, because XLA sizes its thread pool once. The processes live side by side and work
in turns, and ratios are taken within a turn: on a shared machine the best times of processes one
after the other differ by several percent between two runs of the same thing.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from statistics import median

from logistic import STEP_SIZE, STEPS, pipla_run, regression

TURNS = 7
ROUNDS = 5
LARGE = 2500
PRODUCT = """
import {modules}, jax, jax.numpy as jnp, time
a = jnp.ones(({size}, {size})); product = jax.jit(lambda a: a @ a); product(a).block_until_ready()
wall, cpu = time.perf_counter(), time.process_time()
for _ in range(5): product(a).block_until_ready()
print((time.process_time() - cpu) / (time.perf_counter() - wall))
"""
PAIRS = 9  # rounds for the question whether a second core in sight costs anything


def main() -> None:
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, set(map(int, sys.argv[2].split(","))))
        jobs = {"single": lambda: pipla_run("exact"), "large": _large, "sweep": _sweep}
        _serve(jobs[sys.argv[1]]())
        return
    cores = os.sched_getaffinity(0)
    one = {min(cores)}
    print(f"Cores that a product of {LARGE} by {LARGE} matrices keeps busy (CPU time / time):")
    for name in ("jax", "jax, pipla"):
        print(f"  after `import {name}`".ljust(44), f"{_cores_busy(name):5.2f}")
    alone = {"PJRT_NPROC": "1"}  # what one_thread_per_device() sets
    print(f"Seconds per {STEPS} steps of one run, and how long that is beside the first (range):")
    pinned, visible = ("single", one, {}), ("single", cores, {})
    _print_turns(
        PAIRS,
        TURNS,
        {
            "one run, pinned to one core": pinned,
            "the same again: what noise does": pinned,
            "one run, all cores visible (default)": visible,
            "the same, one_thread_per_device()": ("single", cores, alone),
        },
    )
    print(f"Seconds per step with two products of {LARGE} by {LARGE} matrices:")
    _print_turns(
        ROUNDS,
        2,
        {
            "one run, all cores visible (default)": ("large", cores, {}),
            "the same, one_thread_per_device()": ("large", cores, alone),
        },
    )
    print("Seconds per replicate:")
    _print_turns(
        ROUNDS,
        2,
        {
            "16 replicates, one core": ("sweep", one, {}),
            "16 replicates, one device per core": (
                "sweep",
                cores,
                {"JAX_NUM_CPU_DEVICES": str(len(cores))},
            ),
        },
    )


def _print_turns(
    rounds: int, turns: int, settings: dict[str, tuple[str, set[int], dict[str, str]]]
) -> None:
    """Median times, and ratios to the first line: each of two times of one turn.

    The ratio of two processes is the median over their turns; printed is the median over several
    rounds of processes, and their range.
    """
    seconds = [_in_turns(turns, settings) for _ in range(rounds)]
    first = next(iter(settings))
    for name in settings:
        ratios = [
            median(time / base for time, base in zip(times[name], times[first], strict=True))
            for times in seconds
        ]
        print(
            f"  {name:42s} {median(median(times[name]) for times in seconds):7.3f} s"
            f"   {median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def _in_turns(turns: int, settings: dict) -> dict[str, list[float]]:
    """The times of each setting, in a process of its own that waits while another one works."""
    children = {name: _start(*setting) for name, setting in settings.items()}
    times: dict[str, list[float]] = {name: [] for name in children}
    for child in children.values():
        child.stdout.readline()  # compiled
    for _ in range(turns):
        # In random order: who works after whom leaves a trace in caches and clocks.
        for name in random.sample(list(children), len(children)):
            print(file=children[name].stdin, flush=True)
            times[name].append(float(children[name].stdout.readline()))
    for child in children.values():
        child.communicate()
    return times


def _cores_busy(modules: str) -> float:
    code = PRODUCT.format(modules=modules, size=LARGE)
    children = [
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        for _ in range(3)
    ]
    return median(float(child.stdout) for child in children)


def _large() -> Callable[[], float]:
    """Seconds for a step whose gradient has two large products, after compilation."""
    import jax
    import jax.numpy as jnp

    import pipla

    matrix = jax.random.normal(jax.random.key(0), (LARGE, LARGE)) / LARGE
    model = pipla.Model(lambda theta, x, a: jnp.sum((a @ x) ** 2), pipla.prox.L1(), matrix)
    particles = jnp.ones((1, LARGE, LARGE))
    algorithm = pipla.PGLA(step_size=STEP_SIZE)
    settings = {"theta": jnp.zeros(()), "particles": particles, "key": jax.random.key(0)}

    def job() -> float:
        return pipla.run(model, algorithm, **settings, num_steps=3, check=False).seconds / 3

    job()
    return job


def _sweep() -> Callable[[], float]:
    """Seconds for each of 16 replicates, after compilation."""
    import pipla

    model, settings = regression()

    def job() -> float:
        algorithm = pipla.PIPGLA(step_size=STEP_SIZE)
        return pipla.sweep(model, algorithm, **settings, num_replicates=16).seconds / 16

    job()
    return job


def _serve(job: Callable[[], float]) -> None:
    """A child: one run for every line that it reads."""
    print("ready", flush=True)
    for _ in sys.stdin:
        print(job(), flush=True)


def _start(name: str, cores: set[int], environment: dict[str, str]) -> subprocess.Popen:
    """This file as a child on these cores."""
    return subprocess.Popen(
        [sys.executable, __file__, name, ",".join(map(str, cores))],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


if __name__ == "__main__":
    main()
