"""Speed of a PIPGLA step on the paper's logistic regression, beside NumPy.

Run by `make bench`. Everything is float32, N = 50 particles, 50 coefficients, 900 observations.

* NumPy loop: the algorithm with the paper's approximate prox, as one writes it, and with every
  avoidable temporary removed by hand; it keeps the current particles only;
* pipla: `pipla.run` with the exact joint prox, with `likelihoods.Logistic` (README's first form)
  and with the likelihood written as a plain function (README's second form).

Every process is pinned to one core, and XLA and OpenBLAS are told to use one thread each
(`PJRT_NPROC`, `OPENBLAS_NUM_THREADS`): pipla sets neither by itself. Machines are shared: the lines
are measured in turns in one process, ratios are taken within it, and that in several processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported late otherwise: processes that measure NumPy alone need no JAX
    import pipla

STEPS = 1500
REPEATS = 7
PROCESSES = 5
STEP_SIZE = 0.01
#: One thread for everything that has a thread pool.
ONE_THREAD = {"PJRT_NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

LOOP, TUNED = "NumPy loop", "NumPy loop, tuned by hand"
OURS, FUNCTION = "pipla, likelihoods.Logistic", "pipla, a plain function"


def main() -> None:
    if len(sys.argv) > 1:
        _print_times()
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # processes started here inherit it
    _print_table([_times() for _ in range(PROCESSES)])


def _times() -> dict[str, float]:
    """The best times that a process of its own measures."""
    child = subprocess.run(
        [sys.executable, __file__, "child"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **ONE_THREAD},
    )
    return json.loads(child.stdout)


def _print_times() -> None:
    candidates = {
        LOOP: _plain_loop(),
        TUNED: _tuned_loop(),
        OURS: pipla_run("exact"),
        FUNCTION: pipla_run("function"),
    }
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(REPEATS):  # interleaved, so that a noisy neighbour disturbs all alike
        best = {name: min(best[name], job()) for name, job in candidates.items()}
    print(json.dumps(best))


def _print_table(tables: list[dict[str, float]]) -> None:
    """Best times, and ratios: each of two times of one process, of which the median is taken."""
    print(
        f"PIPGLA, {STEPS} steps, float32, one core, one thread (best of {REPEATS * len(tables)}):"
    )
    for name in tables[0]:
        print(f"  {name:28s} {min(table[name] for table in tables):7.3f} s")
    print(f"How many times as fast, median of {len(tables)} processes (range):")
    for ours in (OURS, FUNCTION):
        for loop in (LOOP, TUNED):
            ratios = [table[loop] / table[ours] for table in tables]
            spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"  {ours:28s} against {loop:26s} {spread}")


def _data():
    import numpy as np

    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (900, 50)).astype(np.float32)
    x = rng.laplace(-4, 1, 50)
    labels = (rng.uniform(size=900) < 1 / (1 + np.exp(-features @ x))).astype(np.float32)
    return features, labels


def _timed(job: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        job()
        return time.perf_counter() - began

    return run


def _plain_loop() -> Callable[[], float]:
    """The algorithm as one writes it in NumPy."""
    import numpy as np

    features, labels = _data()
    step = np.float32(STEP_SIZE)

    def job() -> None:
        rng = np.random.default_rng(1)
        theta = np.float32(0.0)
        particles = rng.standard_normal((50, 50), dtype=np.float32)
        for _ in range(STEPS):
            gradient = (1 / (1 + np.exp(-particles @ features.T)) - labels) @ features
            noise = rng.standard_normal(particles.shape, dtype=np.float32)
            particles = particles - step * gradient + np.sqrt(2 * step) * noise
            theta = theta + np.sqrt(2 * step / 50) * rng.standard_normal(dtype=np.float32)
            theta, particles = _published_prox(theta, particles, step)

    return _timed(job)


def _tuned_loop() -> Callable[[], float]:
    """The same by hand: no temporary that can be avoided, and the tanh form of the sigmoid."""
    import numpy as np

    features, labels = _data()
    transposed = np.ascontiguousarray(features.T)
    step, root = np.float32(STEP_SIZE), np.float32(np.sqrt(2 * STEP_SIZE))
    half = np.float32(0.5)

    def job() -> None:
        rng = np.random.default_rng(1)
        theta = np.float32(0.0)
        particles = rng.standard_normal((50, 50), dtype=np.float32)
        for _ in range(STEPS):
            z = particles @ transposed
            z *= half
            np.tanh(z, out=z)
            z *= half
            z += half
            z -= labels
            particles -= step * (z @ features)
            particles += root * rng.standard_normal(particles.shape, dtype=np.float32)
            theta += root / np.float32(np.sqrt(50)) * rng.standard_normal(dtype=np.float32)
            theta, particles = _published_prox(theta, particles, step)

    return _timed(job)


def _published_prox(theta, particles, step):
    import numpy as np

    shifted = particles - theta
    soft = np.sign(shifted) * np.maximum(np.abs(shifted) - step, np.float32(0))
    return theta + step * np.sign(soft).sum(axis=1).mean(), theta + soft


def pipla_run(form: str) -> Callable[[], float]:
    """Seconds of a run after compilation: `"exact"` (with Logistic) or `"function"`."""
    import pipla

    warnings.simplefilter("ignore", pipla.ConvergenceWarning)  # times, not answers
    model, settings = regression(form)
    algorithm = pipla.PIPGLA(step_size=STEP_SIZE)

    def job() -> float:
        return pipla.run(model, algorithm, **settings, check=False).seconds

    job()
    return job


def regression(form: str = "exact") -> tuple[pipla.Model, dict[str, Any]]:
    """README's model, and where a run starts and how long it is."""
    import jax
    import jax.numpy as jnp

    import pipla

    features, labels = _data()
    term = pipla.prox.LaplaceLocation(scale=1.0)
    if form == "function":

        def smooth(theta, x, data):
            z = data["features"] @ x
            return jnp.sum(jnp.logaddexp(0.0, z) - data["labels"] * z)

        model = pipla.Model(smooth, term, data={"features": features, "labels": labels})
    else:
        model = pipla.Model(pipla.likelihoods.Logistic(features, labels), term)
    particles = jax.random.normal(jax.random.key(1), (50, 50))
    start = {"theta": jnp.zeros(()), "particles": particles}
    return model, {**start, "num_steps": STEPS, "key": jax.random.key(0)}


if __name__ == "__main__":
    main()
