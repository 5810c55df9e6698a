r"""Infinitely many particles, without particles: their law on a grid.

For many particles theta moves by the mean over the *law* of x [prop:poc]. Given theta the
coordinates of `QuadraticL1` are independent, so the law is one density per coordinate, and a step
of an algorithm is a matrix on the grid. This shows the error of the time step alone, and what N
particles are to be compared with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipla_lab.experiments.theory.model import QuadraticL1

#: Points of the grid, which ends this far from 0.
POINTS, REACH = 301, 7.0
_GRID = np.linspace(-REACH, REACH, POINTS)


def mean_field(
    problem: QuadraticL1, step_size: float, smoothing: float, num_steps: int, theta: float
) -> NDArray[np.float64]:
    """Theta after each step of MYIPLA with infinitely many particles, which start from N(0, 1)."""
    law = np.exp(-(_GRID**2) / 2)
    laws = np.tile(law / law.sum(), (problem.dim_x, 1))
    path = []
    for _ in range(num_steps):
        pull = _pull(problem, theta, laws @ _GRID)
        for i in range(problem.dim_x):
            laws[i] = _step(problem, "MYIPLA", step_size, smoothing, theta, i) @ laws[i]
        theta = theta - step_size * pull
        path.append(theta)
    _check(laws.sum(axis=1))
    return np.asarray(path)


def stationary_theta(
    problem: QuadraticL1, algorithm: str, step_size: float, smoothing: float
) -> float:
    """Where theta settles with infinitely many particles: what is left is the error of the step."""
    from scipy.optimize import brentq

    x = _soft(_GRID, step_size * problem.weight) if algorithm == "PIPGLA" else _GRID

    def pull(theta: float) -> float:
        means = []
        for i in range(problem.dim_x):
            step = _step(problem, algorithm, step_size, smoothing, theta, i)
            _check(step.sum(axis=0)[np.abs(_GRID) < REACH / 2])
            # The stationary law: step @ law = law, with one equation replaced by sum = 1.
            equations = step - np.eye(POINTS)
            equations[0] = 1.0
            law = np.linalg.solve(equations, np.eye(POINTS)[0])
            means.append(law @ x)
        return _pull(problem, theta, np.asarray(means))

    centre = problem.maximiser(0.0)
    return float(brentq(pull, centre - 0.5, centre + 0.5, xtol=1e-12))


def _pull(problem: QuadraticL1, theta: float, means: NDArray[np.float64]) -> float:
    """The mean gradient in theta."""
    return float(problem.ridge * theta + problem.coupling * np.sum(theta - means))


def _step(
    problem: QuadraticL1, algorithm: str, gamma: float, lam: float, theta: float, i: int
) -> NDArray[np.float64]:
    """One step of a coordinate as a matrix on the grid, from noise to noise.

    For PIPGLA the prox comes between the noise and the next gradient.
    """

    def forward(x: NDArray) -> NDArray:
        return x - gamma * (x - problem.y[i] + problem.coupling * (x - theta))

    w = problem.weight
    if algorithm == "PIPGLA":
        moved = forward(_soft(_GRID, gamma * w))
    elif algorithm == "PIPULA":
        moved = _soft(forward(_GRID), gamma * w)
    else:
        moved = forward(_GRID) - gamma * np.clip(_GRID / lam, -w, w)
    width = _GRID[1] - _GRID[0]
    kernel = np.exp(-((_GRID[:, None] - moved) ** 2) / (4 * gamma))
    return kernel * (width / np.sqrt(4 * np.pi * gamma))


def _soft(x: NDArray, threshold: float) -> NDArray:
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0)


def _check(masses: NDArray[np.float64]) -> None:
    if not np.allclose(masses, 1, atol=1e-6):
        raise ArithmeticError("the grid is too coarse or too short for this step size.")
