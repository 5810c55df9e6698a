"""How often 90 % intervals of `SparseBayesianMLPRegressor` hold new responses.

Run with `python benchmarks/network_intervals.py [splits]`. Small and smooth functions with little
noise, Friedman's function, and scikit-learn's diabetes data; 60 % of each to learn from. "width" is
that of the intervals beside what the noise alone needs: a little above 1, for what the network does
not know. The root mean squared error of a lasso with cross-validation is beside ours.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.linear_model import LassoCV
from sklearn.model_selection import train_test_split

from pipla.networks.estimators import SparseBayesianMLPRegressor

#: The width of a 90 % interval of normal noise, in its standard deviations.
NORMAL = 2 * 1.6449


def main(splits: int) -> None:
    """Print a line for each problem and split."""
    rng = np.random.default_rng(0)
    line, plane = rng.uniform(-3, 3, (200, 1)), rng.uniform(-2, 2, (300, 2))
    problems = {
        "sine": (line, np.sin(2 * line[:, 0]) + 0.2 * rng.normal(size=200)),
        "wave": (plane, np.sin(2 * plane[:, 0]) * plane[:, 1] + 0.1 * rng.normal(size=300)),
        "friedman": make_friedman1(400, 10, noise=1.0, random_state=0),
        "diabetes": load_diabetes(return_X_y=True),
    }
    for name, (features, labels) in problems.items():
        for split in range(splits):
            parts = train_test_split(features, labels, test_size=0.4, random_state=split)
            train, test, known, new = parts
            began = time.process_time()
            ours = SparseBayesianMLPRegressor(random_state=split).fit(train, known)
            seconds = time.process_time() - began
            low, high = ours.predict_interval(test)
            errors = [
                np.sqrt(np.mean((method.predict(test) - new) ** 2)) / np.std(labels)
                for method in (ours, LassoCV().fit(train, known))
            ]
            print(
                f"{name:9} split {split}: {np.mean((low < new) & (new < high)):.3f} held, width "
                f"{np.mean(high - low) / (NORMAL * ours.noise_):.2f}; error {errors[0]:.3f} of the "
                f"standard deviation (lasso {errors[1]:.3f}); {ours.n_iter_} steps, "
                f"{ours.network_.status.value}, {seconds:.0f} s of CPU",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
