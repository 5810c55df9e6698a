"""Probabilities of two classes, that a plane separates or not, beside cross-validated regressions.

    python benchmarks/regression/labels.py                    # ten sets, five splits each
    python benchmarks/regression/labels.py --only others      # sets that nothing was chosen by
    python benchmarks/regression/labels.py --splits 2         # quicker

For each set the mean log-loss over random splits (three fifths to fit) of pipla, of its average
over the posterior alone, and of scikit-learn's LogisticRegressionCV with an L1 and an L2 penalty
(ten values, chosen by log-loss). The limit is 1.1 times the smaller of the latter two, plus .005;
`over` counts the splits in which pipla is above that of the split. Calibration, over all splits:
how often the more probable class is right, how often it would be by the probabilities, and the mean
difference of both in ten bins of equal size.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
from data_sets import Sets, Split, digits, simulated_labels, split, wine
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss

from pipla.regression import SparseLogisticRegression

warnings.simplefilter("ignore")  # of all methods alike: convergence, deprecation
RIVALS = {"L1": 1.0, "L2": 0.0}


def ten(seed: int) -> Sets:
    for label in (0, 1, 2):
        yield f"wine {label} v rest", split(*wine(label), seed)
    for pair in ((6, 8), (3, 8), (0, 9), (1, 7), (8, 9)):
        yield f"digits {pair[0]} v {pair[1]}", split(*digits(*pair), seed)
    yield "breast cancer", split(*load_breast_cancer(return_X_y=True), seed)
    yield "n 120, p 15", simulated_labels(seed + 300, 120, 15, 5)


def others(seed: int) -> Sets:
    x, y = load_iris(return_X_y=True)
    for label in (0, 1, 2):
        yield f"iris {label} v rest", split(x, (y == label).astype(int), seed)
    for pair in ((4, 9), (5, 6), (3, 9), (1, 8)):
        yield f"digits {pair[0]} v {pair[1]}", split(*digits(*pair), seed)
    x, y = load_digits(return_X_y=True)
    yield "digits, 8 or not", split(x, (y == 8).astype(int), seed)
    yield "labels, n 500, p 2000", simulated_labels(seed)
    yield "labels, n 60, p 100", simulated_labels(seed + 400, 60, 100, 5)
    yield "two clouds, p 40", clouds(seed, 120, 40)
    yield "two clouds, p 200", clouds(seed, 100, 200)


def clouds(seed: int, n: int, p: int) -> Split:
    """Normal features around two centres: every feature says a little."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n + 2000)
    x = rng.standard_normal((n + 2000, p)) + np.outer(2 * y - 1, rng.standard_normal(p)) / 3
    return Split(x[:n], y[:n], x[n:], y[n:])


def predictions(data: Split) -> Iterator[tuple[str, np.ndarray]]:
    """The probability of the label 1 by each method."""
    model = SparseLogisticRegression().fit(data.x, data.y)
    yield "pipla", model.predict_proba(data.x_test)[:, 1]
    answer = model._answer_
    z = data.x_test @ (answer.draws[:, 0] * answer.units).T + answer.levels[:, 0]
    yield "average", expit(z).mean(axis=1)
    for name, ratio in RIVALS.items():
        rival = LogisticRegressionCV(
            l1_ratios=(ratio,), solver="liblinear", scoring="neg_log_loss", Cs=10
        )
        yield name, rival.fit(data.x, data.y).predict_proba(data.x_test)[:, 1]


def calibration(p: np.ndarray, y: np.ndarray) -> str:
    """How often the more probable class is right, should be, and the mean difference in bins."""
    sure, right = np.maximum(p, 1 - p), (p > 0.5) == y
    bins = np.array_split(np.argsort(sure), 10)
    off = np.mean([abs(sure[part].mean() - right[part].mean()) for part in bins])
    return f"{right.mean():8.3f} {sure.mean():6.3f} {off:6.3f}"


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--splits", type=int, default=5)
    arguments.add_argument("--only", choices=("ten", "others"))
    given = arguments.parse_args()
    for part in (ten, others):
        if given.only not in (None, part.__name__):
            continue
        found: dict[str, list[tuple[dict[str, float], np.ndarray, np.ndarray]]] = {}
        for seed in range(given.splits):
            for name, data in part(seed):
                by_method = dict(predictions(data))
                losses = {m: float(log_loss(data.y_test, p)) for m, p in by_method.items()}
                found.setdefault(name, []).append((losses, by_method["pipla"], data.y_test))
        print(f"{'':24} pipla average    L1     L2   limit over    right  sure   off")
        kept = 0
        for name, splits in found.items():
            mean = {m: np.mean([losses[m] for losses, _, _ in splits]) for m in splits[0][0]}
            limit = 1.1 * min(mean[m] for m in RIVALS) + 0.005
            over = sum(
                one["pipla"] > 1.1 * min(one[m] for m in RIVALS) + 0.005 for one, _, _ in splits
            )
            kept += bool(mean["pipla"] <= limit)
            p, y = (np.concatenate([one[place] for one in splits]) for place in (1, 2))
            shown = " ".join(f"{value:6.4f}" for value in (*mean.values(), limit))
            print(f"{name:24} {shown} {over:3d}  {calibration(p, y)}", flush=True)
        print(f"{kept} of {len(found)} within the limit\n")


if __name__ == "__main__":
    main()
