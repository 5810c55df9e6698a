"""Speed of a PIPGLA step on the paper's logistic regression, beside NumPy, in one process.

Run by `make bench`. Everything is float32, N = 50 particles, 50 coefficients, 900 observations.

* floor: the work nobody can avoid: two matrix products, a sigmoid, the normals; in NumPy, and
  compiled by XLA, which says how much faster than the loop any program of ours could be;
* NumPy loop: keeps the current cloud only, with the paper's approximate prox, as one writes it and
  tuned by hand;
* pipla: `pipla.run` with the exact joint prox; and without any prox, to see what the prox costs.

Pinned to one core. Machines are shared: the lines are measured in turns in one process, ratios are
taken within it, and that in several processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported late otherwise: after the variables of the threads are set
    import pipla

STEPS = 1500
REPEATS = 7
ROUNDS = 5
STEP_SIZE = 0.01


def main() -> None:
    if len(sys.argv) > 1:
        _print_times()
        return
    core = min(os.sched_getaffinity(0))
    _print_table([_times_on(core) for _ in range(ROUNDS)])


def _times_on(core: int) -> dict[str, float]:
    """The times that a process of its own measures on this core."""
    os.sched_setaffinity(0, {core})  # the child inherits it
    child = subprocess.run(
        [sys.executable, __file__, "child"], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(child.stdout)


def _print_times() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    candidates = {
        "floor (NumPy)": _floor(),
        "the same (XLA)": _compiled_floor(),
        "NumPy loop, published prox": _plain_loop(),
        "the loop, tuned by hand": _tuned_loop(),
        "pipla PIPGLA, exact prox": pipla_run("exact"),
        "pipla, published prox": pipla_run("published"),
        "pipla, prox over x only": pipla_run("x-only"),
    }
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(REPEATS):  # interleaved, so that a noisy neighbour disturbs all alike
        best = {name: min(best[name], job()) for name, job in candidates.items()}
    print(json.dumps(best))


def _print_table(tables: list[dict[str, float]]) -> None:
    """Best times, and ratios: each of two times of one process, of which the median is taken.

    Where arrays lie in the cache, and what else the machine does, is another in every process.
    """
    ours, loop, floor = "pipla PIPGLA, exact prox", "NumPy loop, published prox", "floor (NumPy)"

    def ratio(first: str, second: str) -> str:
        ratios = [table[first] / table[second] for table in tables]
        return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"

    print(f"PIPGLA, {STEPS} steps, float32, one core (best of {REPEATS * len(tables)}):")
    for name in tables[0]:
        print(f"  {name:28s} {min(table[name] for table in tables):7.3f} s")
    print(f"Ratios, median of {len(tables)} processes (range):")
    print(f"  the loop takes {ratio(loop, ours)} times as long as ours")
    print(f"  the loop tuned by hand {ratio('the loop, tuned by hand', ours)} times as long")
    print(f"  ours takes {ratio(ours, floor)} times as long as the floor")
    print(f"  the loop takes {ratio(loop, 'the same (XLA)')} times as long as XLA's own floor")
    print(f"  the exact joint prox: {ratio(ours, 'pipla, prox over x only')} times the prox over x")


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


def _floor() -> Callable[[], float]:
    import numpy as np

    features, _ = _data()
    half = np.float32(0.5)
    rng = np.random.default_rng(1)
    cloud = np.zeros((50, 50), np.float32)
    transposed = np.ascontiguousarray(features.T)

    def job() -> None:
        for _ in range(STEPS):
            z = cloud @ transposed
            z *= half
            np.tanh(z, out=z)
            z *= half
            z += half
            z @ features
            rng.standard_normal(cloud.shape, dtype=np.float32)

    return _timed(job)


def _compiled_floor() -> Callable[[], float]:
    import jax
    import jax.numpy as jnp

    features, _ = _data()
    key = jax.random.key(1)

    @jax.jit
    def job(cloud, features):
        def step(number, cloud):
            z = 0.5 + 0.5 * jnp.tanh(0.5 * (cloud @ features))
            noise = jax.random.normal(jax.random.fold_in(key, number), cloud.shape)
            return STEP_SIZE * (noise - z @ features.T)

        return jax.lax.fori_loop(0, STEPS, step, cloud)

    start = jnp.zeros((50, 50)), jnp.asarray(features.T)
    job(*start).block_until_ready()
    return _timed(lambda: job(*start).block_until_ready())


def _plain_loop() -> Callable[[], float]:
    """The algorithm as one writes it in NumPy."""
    import numpy as np

    features, labels = _data()
    step = np.float32(STEP_SIZE)

    def job() -> None:
        rng = np.random.default_rng(1)
        theta = np.float32(0.0)
        cloud = rng.standard_normal((50, 50), dtype=np.float32)
        for _ in range(STEPS):
            slope = (1 / (1 + np.exp(-cloud @ features.T)) - labels) @ features
            noise = rng.standard_normal(cloud.shape, dtype=np.float32)
            cloud = cloud - step * slope + np.sqrt(2 * step) * noise
            theta = theta + np.sqrt(2 * step / 50) * rng.standard_normal(dtype=np.float32)
            theta, cloud = _published_prox(theta, cloud, step)

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
        cloud = rng.standard_normal((50, 50), dtype=np.float32)
        for _ in range(STEPS):
            z = cloud @ transposed
            z *= half
            np.tanh(z, out=z)
            z *= half
            z += half
            z -= labels
            cloud -= step * (z @ features)
            cloud += root * rng.standard_normal(cloud.shape, dtype=np.float32)
            theta += root / np.float32(np.sqrt(50)) * rng.standard_normal(dtype=np.float32)
            theta, cloud = _published_prox(theta, cloud, step)

    return _timed(job)


def _published_prox(theta, cloud, step):
    import numpy as np

    shifted = cloud - theta
    soft = np.sign(shifted) * np.maximum(np.abs(shifted) - step, np.float32(0))
    return theta + step * np.sign(soft).sum(axis=1).mean(), theta + soft


def pipla_run(kind: str) -> Callable[[], float]:
    """Seconds of a run after compilation, with this prox."""
    import pipla

    model, settings = regression("published" if kind == "published" else None)
    options = {"theta_update": "frozen"} if kind == "x-only" else {}
    algorithm = pipla.PIPGLA(step_size=STEP_SIZE, **options)

    def job() -> float:
        return pipla.run(model, algorithm, **settings, check=False).seconds

    job()
    return job


def regression(approximation: str | None = None) -> tuple[pipla.Model, dict[str, Any]]:
    """The model, and where a run starts and how long it is."""
    import jax
    import jax.numpy as jnp

    import pipla
    from pipla.problems.logistic_regression import potential

    features, labels = _data()
    data = {"features": jnp.asarray(features.T), "labels": jnp.asarray(labels)}
    model = pipla.Model(potential, pipla.prox.LaplaceLocation(1.0, approximation), data=data)
    particles = jax.random.normal(jax.random.key(1), (50, 50))
    start = {"theta": jnp.zeros(()), "particles": particles}
    return model, {**start, "num_steps": STEPS, "key": jax.random.key(0)}


if __name__ == "__main__":
    main()
