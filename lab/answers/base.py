"""What every method reports, and how it is rounded and stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

LEVELS = (0.05, 0.5, 0.95)

Data = Mapping[str, np.ndarray]


def flat(tree: Any) -> np.ndarray:
    """The numbers of a pytree side by side."""
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)])


class Found(NamedTuple):
    """Theta as a vector (the parts of a dict in alphabetical order) and x as a vector.

    `potential(theta, x)` is the method's own potential up to a constant. The script compares it
    with pipla's: a maximiser of another density would be no answer.
    """

    theta: np.ndarray
    theta_error: np.ndarray
    theta_stderr: np.ndarray
    x_mean: np.ndarray
    x_mean_error: np.ndarray
    x_sd: np.ndarray
    x_sd_error: np.ndarray
    x_quantiles: np.ndarray
    x_quantiles_error: np.ndarray
    how: str
    potential: Callable[[np.ndarray, np.ndarray], float]
    notes: str = ""
    identifiable: bool = True


class Posterior(NamedTuple):
    """Moments and quantiles of x."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray


def derivatives(
    function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian by central differences of fourth order."""
    size = len(at)
    unit = np.eye(size) * step
    offsets = ((1, 8.0), (2, -1.0))

    def slope(values: Callable[[float], float]) -> float:
        return sum(w * (values(k) - values(-k)) for k, w in offsets) / (12 * step)

    gradient = np.array([slope(lambda k, i=i: function(at + k * unit[i])) for i in range(size)])
    hessian = np.empty((size, size))
    centre = function(at)
    for i in range(size):
        near = function(at + unit[i]) + function(at - unit[i])
        far = function(at + 2 * unit[i]) + function(at - 2 * unit[i])
        hessian[i, i] = (16 * near - far - 30 * centre) / (12 * step**2)
        for j in range(i):
            corners = sum(
                a * b * function(at + a * unit[i] + b * unit[j]) for a in (1, -1) for b in (1, -1)
            )
            hessian[i, j] = hessian[j, i] = corners / (4 * step**2)
    return gradient, hessian


def maximise(
    function: Callable[[np.ndarray], float], start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The maximiser of a smooth function of a few numbers, and minus the Hessian there."""
    from scipy.optimize import minimize

    options = {"xatol": 1e-5, "fatol": 1e-9, "maxiter": 2000}
    at = minimize(lambda v: -function(v), start, method="Nelder-Mead", options=options).x
    for _ in range(20):
        gradient, hessian = derivatives(function, at)
        step = -np.linalg.solve(hessian, gradient)
        at = at + step
        if np.max(np.abs(step)) < 1e-9:
            break
    return at, -derivatives(function, at)[1]


def rounded(values: Any, digits: int) -> Any:
    """Numbers with so many significant digits, as nested lists; "-inf" and "nan" as text."""
    if np.ndim(values):
        return [rounded(value, digits) for value in values]
    value = float(f"{float(values):.{digits}g}")
    return value if np.isfinite(value) else str(value)  # JSON has no infinity
