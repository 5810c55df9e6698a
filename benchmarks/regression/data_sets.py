"""The data of the comparison: simulations, and the small sets that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


class Split(NamedTuple):
    """Data to fit, data to predict, the unit of the error, and the true coefficients if known."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    unit: float = 1.0
    coefficients: np.ndarray | None = None


Sets = Iterator[tuple[str, Split]]


def simulated(
    seed: int, n: int, p: int, effects: int, dense: bool = False, correlation: float = 0.0
) -> Split:
    """As much noise as signal."""
    rng = np.random.default_rng(seed)
    x, b = equicorrelated(rng, n, p, correlation), np.zeros(p)
    if dense:
        b = rng.laplace(size=p)
    else:
        b[rng.choice(p, effects, replace=False)] = rng.standard_normal(effects)
    noise = float(np.std(x @ b))
    y = x @ b + noise * rng.standard_normal(n)
    x_test = equicorrelated(rng, 2000, p, correlation)
    return Split(x, y, x_test, x_test @ b + noise * rng.standard_normal(2000), noise, b)


def equicorrelated(rng: np.random.Generator, n: int, p: int, correlation: float) -> np.ndarray:
    """Normal features; any two have this correlation."""
    common = np.sqrt(correlation) * rng.standard_normal((n, 1))
    return common + np.sqrt(1 - correlation) * rng.standard_normal((n, p))


def simulated_labels(
    seed: int, n: int = 500, p: int = 2000, effects: int = 20, correlation: float = 0.0
) -> Split:
    """Normal effects of variance 1 among many features."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n + 2000, p))
    if correlation:
        x = equicorrelated(rng, n + 2000, p, correlation)
    b = np.zeros(p)
    b[rng.choice(p, effects, replace=False)] = rng.standard_normal(effects)
    y = (rng.random(n + 2000) < 1 / (1 + np.exp(-x @ b))).astype(int)
    return Split(x[:n], y[:n], x[n:], y[n:], 1.0, b)


def split(x: np.ndarray, y: np.ndarray, seed: int) -> Split:
    """Three fifths to fit."""
    labels = y.dtype.kind == "i"
    parts = train_test_split(x, y, test_size=0.4, random_state=seed, stratify=y if labels else None)
    scaler = StandardScaler().fit(parts[0])
    unit = 1.0 if labels else float(np.std(y))
    return Split(scaler.transform(parts[0]), parts[2], scaler.transform(parts[1]), parts[3], unit)


def digits(first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of two digits; the label is 1 for the second."""
    x, y = load_digits(return_X_y=True)
    chosen = np.isin(y, (first, second))
    return x[chosen], (y[chosen] == second).astype(int)


def wine(label: int) -> tuple[np.ndarray, np.ndarray]:
    """One sort of wine or not."""
    x, y = load_wine(return_X_y=True)
    return x, (y == label).astype(int)


def numbers(seed: int) -> Sets:
    yield "n 200, p 1000, 10 effects", simulated(seed, 200, 1000, 10)
    yield "n 500, p 2000, 20 effects", simulated(seed, 500, 2000, 20)
    yield "n 500, p 200, Laplace effects", simulated(seed, 500, 200, 0, dense=True)
    yield "n 500, p 2000, correlation .95", simulated(seed, 500, 2000, 100, correlation=0.95)
    yield "diabetes", split(*load_diabetes(return_X_y=True), seed)


def labels(seed: int) -> Sets:
    yield "labels, n 500, p 2000, 20 effects", simulated_labels(seed)
    yield "breast cancer", split(*load_breast_cancer(return_X_y=True), seed)
    yield "digits 3 v 8", split(*digits(3, 8), seed)


def seen(seed: int) -> Sets:
    """Sets of labels that were looked at when predictions were improved."""
    for pair in ((2, 7), (0, 6), (1, 8), (5, 9), (4, 7), (3, 5), (6, 8), (1, 7)):
        yield f"digits {pair[0]} v {pair[1]}", split(*digits(*pair), seed)
    for label in (0, 1):
        yield f"wine {label} v rest", split(*wine(label), seed)
    yield "labels, n 100, p 10, 3 effects", simulated_labels(seed, 100, 10, 3)
    yield "labels, n 150, p 20, 6 effects", simulated_labels(seed + 100, 150, 20, 6)
    yield "labels, n 200, p 50, correlation .8", simulated_labels(seed, 200, 50, 5, 0.8)
    yield "labels, n 300, p 30, all effects", simulated_labels(seed + 200, 300, 30, 30)


def held_out(seed: int) -> Sets:
    """Sets of labels that nothing was chosen by."""
    for pair in ((8, 9), (2, 3), (0, 9)):
        yield f"digits {pair[0]} v {pair[1]}", split(*digits(*pair), seed)
    x, y = load_digits(return_X_y=True)
    yield "digits, even v odd", split(x, y % 2, seed)
    yield "labels, n 120, p 15, 5 effects", simulated_labels(seed + 300, 120, 15, 5)
    yield "labels, n 400, p 40, correlation .5", simulated_labels(seed + 300, 400, 40, 10, 0.5)
