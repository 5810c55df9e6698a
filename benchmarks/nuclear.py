"""Completion with a nuclear norm: how much of a step is its singular value decomposition?

The 188 by 188 checkerboard of rank 2, half of it observed, ten particles, float32, one core. A step
of `RPL` or `IRPL` takes the proximal point, the penalty there and the closed-form theta from one
decomposition; two batched decompositions are timed in the same process, in turns, on the matrices
that the prox sees. Times are CPU times: other work on the machine disturbs them less.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

import pipla
from pipla._threads import one_blas_thread

SIZE, SQUARES, PARTICLES = 188, 8, 10
STEPS, TURNS = 40, 7


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rng = np.random.default_rng(0)
    cell = np.arange(SIZE) * SQUARES // SIZE % 2
    truth = 50.0 + 100.0 * (cell[:, None] ^ cell[None, :])
    observed = (rng.random(truth.shape) < 0.5).astype(np.float32)
    noisy = (observed * (truth + rng.normal(size=truth.shape))).astype(np.float32)
    likelihood = pipla.likelihoods.Gaussian(pipla.operators.Mask(observed), noisy, 1.0)
    model = pipla.Model(likelihood, pipla.prox.NuclearStrength(normalised=True))
    start = jnp.asarray(np.broadcast_to(noisy, (PARTICLES, *noisy.shape)))
    jobs: dict[str, Callable[[], object]] = {
        "two batched SVDs": decompositions(start, 2),
        "one batched SVD": decompositions(start, 1),
        "RPL, one step": steps(model, pipla.RPL(), start),
        "IRPL, one step": steps(model, pipla.IRPL(), start),
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    with one_blas_thread():
        for job in jobs.values():
            job()
        for _ in range(TURNS):
            for name, job in jobs.items():
                begin = time.process_time()
                job()
                times[name].append((time.process_time() - begin) / STEPS)
    ms = {name: 1e3 * median(each) for name, each in times.items()}
    print(f"{PARTICLES} matrices of {SIZE} by {SIZE}, ms of CPU time, median of {TURNS} turns")
    for name in jobs:
        print(f"  {name:18} {ms[name]:7.1f}")
    for name in ("RPL, one step", "IRPL, one step"):
        # Within a turn, so that a slow minute of the machine slows both.
        ratio = median(a / b for a, b in zip(times[name], times["two batched SVDs"], strict=True))
        share = median(a / b for a, b in zip(times["one batched SVD"], times[name], strict=True))
        print(f"  {name}: {ratio:.2f} of two SVDs; its one SVD is {share:.0%} of it")


def decompositions(matrices: jax.Array, number: int) -> Callable[[], object]:
    """`STEPS` times `number` decompositions of all matrices, which differ a little each time."""

    @jax.jit
    def program(matrices: jax.Array) -> jax.Array:
        def again(_: jax.Array, matrices: jax.Array) -> jax.Array:
            for _ in range(number):
                left, values, right = jnp.linalg.svd(matrices, full_matrices=False)
                total = jnp.sum(values) + left[0, 0, 0] + right[0, 0, 0]
                matrices = matrices + 1e-20 * total
            return matrices

        return jax.lax.fori_loop(0, STEPS, again, matrices)

    noisy = matrices + 10 * jax.random.normal(jax.random.key(0), matrices.shape)
    return lambda: program(noisy).block_until_ready()


def steps(model: pipla.Model, algorithm: pipla.Algorithm, start: jax.Array) -> Callable[[], object]:
    """A run of `STEPS` steps, from where 100 steps lead."""
    settled = go(model, algorithm, 0.0, start, 100)
    print(f"{algorithm.label}: theta = {settled.theta_trace[-1]:.3f} after 100 steps")
    return lambda: go(model, algorithm, settled.theta_trace[-1], settled.particles, STEPS)


def go(
    model: pipla.Model, algorithm: pipla.Algorithm, theta: float, start: jax.Array, steps: int
) -> pipla.Result:
    """A run without the check of the curvature; that it has not settled does not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pipla.ConvergenceWarning)
        return pipla.run(
            model,
            algorithm,
            theta=theta,
            particles=start,
            num_steps=steps,
            key=jax.random.key(1),
            check=False,
        )


if __name__ == "__main__":
    main()
