"""Minima by brute force, in NumPy float64, and random points: they share no code with the terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import optimize

#: A function of one variable, applied to each element of an array.
Elementwise = Callable[[np.ndarray], np.ndarray]
#: The minimum of the prox's objective: (theta, x, lam_theta, lam_x) -> number.
Minimum = Callable[[float, np.ndarray, float, float], float]


def global_minimum(
    objective: Elementwise,
    low: float,
    high: float,
    *,
    points: int = 2001,
    kinks: Sequence[float] = (),
) -> float:
    """The minimum of a function of one variable on [low, high]: a dense scan, then refinement."""
    grid = np.sort(np.append(np.linspace(low, high, points), kinks))
    best = int(np.argmin(objective(grid)))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
    found = optimize.minimize_scalar(
        lambda u: float(objective(np.array([u]))[0]),
        bounds=(left, right),
        method="bounded",
        options={"xatol": 1e-13 * max(1.0, abs(left), abs(right))},
    )
    return min(float(found.fun), float(objective(grid[best : best + 1])[0]))


def basin_minimum(
    objective: Elementwise, start: float, distance: float, *, points: int = 4001
) -> float:
    """The first local minimum met when descending from `start`, at most `distance` away."""
    step = 1e-7 * max(abs(start), distance, 1e-3)
    here, right, left = objective(start + step * np.array([0.0, 1.0, -1.0]))
    if here <= min(left, right):
        low, high = start - step, start + step
    else:
        # Finer near the start: the basin may be narrow compared with the distance.
        grid = start + np.sign(left - right) * distance * np.linspace(0, 1, points) ** 2
        rising = np.flatnonzero(np.diff(objective(grid)) > 0)
        turn = int(rising[0]) if rising.size else points - 1
        low, high = sorted((grid[max(turn - 1, 0)], grid[min(turn + 1, points - 1)]))
    return global_minimum(objective, low, high)


def elementwise_minimum(
    penalty: Elementwise, x: np.ndarray, lam: float, kinks: Sequence[float] = ()
) -> float:
    """The sum over elements of the minimum of `penalty(u) + (u - x)²/(2 lam)`: one scan each."""
    distance = 2 + 3 * lam

    def one_minimum(one: float) -> float:
        def objective(u: np.ndarray) -> np.ndarray:
            return penalty(u) + (u - one) ** 2 / (2 * lam)

        return global_minimum(
            objective, min(-1.5, one - distance), max(1.5, one + distance), kinks=kinks
        )

    return sum(map(one_minimum, x.ravel()))


def on_x_alone(minimum: Callable[[np.ndarray, float], float]) -> Minimum:
    """The `minimum` of a term in x alone, from a function of x and its smoothing."""
    return lambda theta, x, lam_theta, lam_x: minimum(x, lam_x)


def separable(penalty: Elementwise, *kinks: float) -> Minimum:
    """The `minimum` of a penalty that acts on each element of x, with its kinks.

    >>> minimum = separable(np.abs, 0.0)
    >>> round(minimum(0.0, np.array([3.0, 0.5]), 0.0, 1.0), 6)  # 2 + 1/2 and 0.5²/2
    2.625
    """
    return on_x_alone(lambda x, lam: elementwise_minimum(penalty, x, lam, kinks))


def draw_vector(rng: np.random.Generator, size: int) -> np.ndarray:
    """Laplace noise of a random scale; half the time rounded, so that there are ties and zeros."""
    x = rng.laplace(size=size) * 10 ** rng.uniform(-1, 1)
    return np.round(2 * x) / 2 if rng.random() < 0.5 else x


def draw_matrix(rng: np.random.Generator, size: int) -> np.ndarray:
    """`draw_vector` as a matrix of about `size` elements."""
    rows = max(1, int(np.sqrt(size)))
    return draw_vector(rng, rows * -(-size // rows)).reshape(rows, -1)


def draw_normal(rng: np.random.Generator) -> float:
    """A standard normal theta."""
    return rng.normal()
