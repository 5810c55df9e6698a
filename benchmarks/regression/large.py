"""Time and memory for many features, and for many observations, each in a fresh process.

    python benchmarks/regression/large.py                # all
    python benchmarks/regression/large.py wide tall      # some

`wide`: n = 500, p = 20 000. `tall`, `tall-labels`: 100 000 × 100. `sparse`, `sparse-labels`:
20 000 × 100 000 with one number in a thousand that is not 0.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from data_sets import simulated

from pipla.regression import SparseLinearRegression, SparseLogisticRegression

KINDS = ("wide", "tall", "tall-labels", "sparse", "sparse-labels")


def data(kind: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """Features, responses and coefficients."""
    rng = np.random.default_rng(0)
    if kind == "wide":
        wide = simulated(0, 500, 20_000, 20)
        assert wide.coefficients is not None
        return wide.x, wide.y, wide.coefficients
    if kind.startswith("tall"):
        x: Any = rng.standard_normal((100_000, 100))
        b = np.where(np.arange(100) < 20, 0.3 * rng.standard_normal(100), 0.0)
        noise = 1.0
    else:
        import scipy.sparse

        x = scipy.sparse.random_array((20_000, 100_000), density=1e-3, rng=rng, format="csr")
        x.data = rng.standard_normal(x.nnz)
        b, noise = np.zeros(100_000), 0.3
        b[:100] = 3 * rng.standard_normal(100)
    eta = x @ b
    if kind.endswith("labels"):
        return x, (eta + rng.logistic(size=len(eta)) > 0).astype(int), b
    return x, eta + noise * rng.standard_normal(len(eta)), b


def measure(kind: str) -> None:
    x, y, b = data(kind)
    estimator = SparseLogisticRegression if kind.endswith("labels") else SparseLinearRegression
    estimator().fit(np.eye(4, 2), np.array([0, 1, 0, 1]))  # compile, or read from the cache
    began, wall = time.process_time(), time.perf_counter()
    model = estimator().fit(x, y)
    seconds, wall = time.process_time() - began, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    chosen, effects = model.inclusion_.ravel() > 0.5, b != 0
    print(
        f"{kind}, {x.shape[0]} × {x.shape[1]}: {seconds:.0f} s of CPU, {wall:.0f} s, peak "
        f"{peak:.2f} GiB, {np.sum(chosen & effects)} of {np.sum(effects)} effects found, "
        f"{np.sum(chosen & ~effects)} others",
        flush=True,
    )
    low, high = model.theta_interval_["zeros"]
    held = np.mean((model.coef_interval_[0] <= b) & (b <= model.coef_interval_[1]))
    print(
        f"  weight of 0 {model.theta_['zeros']:.5f} ({low:.5f} to {high:.5f}), true "
        f"{np.mean(~effects):.5f}; 90 % intervals hold {100 * held:.2f} %; R-hat "
        f"{model.fit_.rhat:.2f}",
        flush=True,
    )


def main() -> None:
    kinds = sys.argv[1:] or KINDS
    if len(kinds) == 1:
        measure(kinds[0])
        return
    for kind in kinds:
        subprocess.run([sys.executable, __file__, kind], check=True)


if __name__ == "__main__":
    main()
