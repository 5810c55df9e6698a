"""Speed of the gradient of a sparse logistic regression, beside SciPy's two sparse products.

A design of 10⁵ × 10⁴ with .1 % non-zeros (10⁶), 20 particles, float32. SciPy: A X and Aᵀ R for all
particles, the work that no step can avoid. pipla: `Model.gradients` as PIPGLA calls it, which is
those two products and the sigmoid between them. For comparison the same with a BCOO of
`jax.experimental.sparse`. Pinned to one core with one thread each; measured in turns in one
process, so that the ratios see the same neighbours.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.update(PJRT_NPROC="1", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import scipy.sparse  # noqa: E402
from jax.experimental import sparse as jax_sparse  # noqa: E402

import pipla  # noqa: E402

OBSERVATIONS, FEATURES, DENSITY, PARTICLES = 100_000, 10_000, 1e-3, 20
REPEATS = 15


def main() -> None:
    rng = np.random.default_rng(0)
    matrix = scipy.sparse.random_array(
        (OBSERVATIONS, FEATURES), density=DENSITY, rng=rng, format="csr", dtype=np.float32
    )
    labels = rng.uniform(size=OBSERVATIONS) < 0.5
    x = rng.normal(size=(FEATURES, PARTICLES)).astype(np.float32)
    residuals = rng.normal(size=(OBSERVATIONS, PARTICLES)).astype(np.float32)
    transposed = matrix.T
    likelihood = pipla.likelihoods.Logistic(matrix, labels)
    entries = jax_sparse.BCOO.from_scipy_sparse(matrix)
    signs = jnp.asarray(0.5 - labels, jnp.float32)

    def plain(theta: Any, x: Any, data: Any) -> Any:
        z = data[0] @ x
        return jnp.sum(pipla.likelihoods.even_softplus(z) + data[1] * z)

    jobs = {
        "SciPy, A X": lambda: matrix @ x,
        "SciPy, A' R": lambda: transposed @ residuals,
        "pipla, likelihoods.Logistic": _gradients(pipla.Model(likelihood), x.T),
        "the same with JAX's BCOO": _gradients(pipla.Model(plain, data=(entries, signs)), x.T),
    }
    times = {name: [] for name in jobs}
    for _ in range(REPEATS):
        for name, job in jobs.items():
            began = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - began)
    best = {name: min(seconds) for name, seconds in times.items()}
    print(f"{OBSERVATIONS} × {FEATURES}, {matrix.nnz} non-zeros, {PARTICLES} particles (best):")
    for name, seconds in best.items():
        print(f"  {name:28s} {1e3 * seconds:7.1f} ms")
    both = best["SciPy, A X"] + best["SciPy, A' R"]
    for name in list(jobs)[2:]:
        print(f"  {name}: {best[name] / both:.2f} times SciPy's two products")
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(likelihood))
    print(
        f"Memory of the likelihood: {held / 1e6:.1f} MB (SciPy's CSR: {_csr_bytes(matrix):.1f} MB)"
    )


def _gradients(model: pipla.Model, particles: Any) -> Callable[[], object]:
    program = eqx.filter_jit(lambda model, x: model.gradients(jnp.zeros(()), x).particles)
    at = jnp.asarray(particles)
    program(model, at).block_until_ready()
    return lambda: program(model, at).block_until_ready()


def _csr_bytes(matrix: Any) -> float:
    return sum(array.nbytes for array in (matrix.data, matrix.indices, matrix.indptr)) / 1e6


if __name__ == "__main__":
    main()
