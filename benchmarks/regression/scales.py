"""Scales learned with `prior="laplace"` beside the exact answers, for several seeds.

    python benchmarks/regression/scales.py
    python benchmarks/regression/scales.py --seeds 6

The answers are those of `pipla_lab.zoo` (a Gibbs and a Hamiltonian sampler with exact
densities). Park and Casella's lambda is the ratio of noise and scale for columns of norm 1, and its
answer, .236 to .001, is from a sampler of its own.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes

from pipla.regression import SparseLinearRegression, SparseLogisticRegression
from pipla_lab import zoo

warnings.simplefilter("ignore")  # the table says what did not converge


def exact(name: str) -> dict[str, float]:
    """Logarithms of the exact answers."""
    theta = zoo.get(name).answer.theta
    if name == "breast-cancer":
        return {"log c": float(2 * theta)}
    return {
        "log c": float(2 * theta["prior"]),
        "log sigma": float(theta["noise"]),
        "log lambda": float(np.log(0.236)),
    }


def learned(name: str, seed: int) -> tuple[dict[str, float], Any]:
    """Logarithms of what was learned, and the model."""
    if name == "diabetes":
        x, y = load_diabetes(return_X_y=True)
        model = SparseLinearRegression("laplace", random_state=seed).fit(
            x, (y - y.mean()) / y.std()
        )
        c, sigma = np.log(model.theta_["scale"]), np.log(model.theta_["noise"])
        rate = sigma - c - 0.5 * np.log(len(y))
        return {"log c": c, "log sigma": sigma, "log lambda": rate}, model
    x, y = load_breast_cancer(return_X_y=True)
    model = SparseLogisticRegression("laplace", random_state=seed).fit(x, y)
    return {"log c": np.log(model.theta_["scale"])}, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in ("diabetes", "breast-cancer"):
        answer = exact(name)
        print(name)
        for seed in range(options.seeds):
            began = time.process_time()
            found, model = learned(name, seed)
            seconds = time.process_time() - began
            shown = ", ".join(
                f"{part} {value:.4f} ({value - answer[part]:+.4f})" for part, value in found.items()
            )
            doubts = "; ".join(map(str, model.findings_)) or "converged"
            print(f"  seed {seed}: {shown}; {seconds:.0f} s of CPU; {doubts}", flush=True)


if __name__ == "__main__":
    main()
