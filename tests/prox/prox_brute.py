"""Brute-force answers in NumPy float64, sharing no code with the library."""

import numpy as np
from scipy import optimize


def scan_and_refine(objective, low, high, points=2001, kinks=()):
    """The global minimum of a function on [low, high]: dense scan, then bounded refinement."""
    grid = np.sort(np.append(np.linspace(low, high, points), kinks))
    points = grid.size
    best = int(np.argmin(objective(grid)))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, points - 1)]
    found = optimize.minimize_scalar(
        lambda u: float(objective(np.array([u]))[0]),
        bounds=(left, right),
        method="bounded",
        options={"xatol": 1e-13 * max(1.0, abs(left), abs(right))},
    )
    return min(float(found.fun), float(objective(grid[best : best + 1])[0]))


def basin_minimum(objective, start, reach, points=20001):
    """The first local minimum met when descending from `start`: dense scan, then refinement."""
    step = 1e-7 * max(abs(start), reach, 1e-3)
    here, right, left = objective(start + step * np.array([0.0, 1.0, -1.0]))
    if here <= min(left, right):
        low, high = start - step, start + step
    else:
        # Finer near the start: the basin may be narrow compared with the reach.
        grid = start + np.sign(left - right) * reach * np.linspace(0, 1, points) ** 2
        values = objective(grid)
        rising = np.flatnonzero(np.diff(values) > 0)
        turn = int(rising[0]) if rising.size else points - 1
        low, high = sorted((grid[max(turn - 1, 0)], grid[min(turn + 1, points - 1)]))
    return scan_and_refine(objective, low, high)


def elementwise_minimum(penalty, x, lam, kinks):
    """Σ min_u penalty(u) + (u - x)²/(2 lam), one dense scan an element."""
    reach = 2 + 3 * lam
    return sum(
        scan_and_refine(
            lambda u, one=one: penalty(u) + (u - one) ** 2 / (2 * lam),
            min(-1.5, one - reach),
            max(1.5, one + reach),
            kinks=kinks,
        )
        for one in x.ravel()
    )


def soft_minimum(amplitudes, weight, lam):
    """Σ min_{u≥0} weight u + (u - s)²/(2 lam): Huber's function."""
    a = np.asarray(amplitudes)
    t = weight * lam
    with np.errstate(over="ignore"):  # in the branch not taken
        return np.sum(np.where(a > t, weight * a - weight * t / 2, a**2 / (2 * lam)), axis=0)


def differences(shape, axes):
    """One dense matrix per axis: forward differences of the flattened array."""
    index = np.arange(int(np.prod(shape))).reshape(shape)
    matrices = []
    for axis in axes:
        after = np.take(index, range(1, shape[axis]), axis).ravel()
        before = np.take(index, range(shape[axis] - 1), axis).ravel()
        matrix = np.zeros((after.size, index.size))
        matrix[np.arange(after.size), after] = 1
        matrix[np.arange(after.size), before] = -1
        matrices.append(matrix)
    return matrices


def total_variation(x, axes=None, isotropic=False):
    """Loops over elements: slow, and plainly what the definition says."""
    axes = range(x.ndim) if axes is None else axes
    total = 0.0
    for index in np.ndindex(*x.shape):
        slopes = []
        for axis in axes:
            if index[axis] + 1 < x.shape[axis]:
                after = list(index)
                after[axis] += 1
                slopes.append(x[tuple(after)] - x[index])
        total += np.sqrt(np.sum(np.square(slopes))) if isotropic else np.sum(np.abs(slopes))
    return total


def anisotropic_prox(x, weight, axes=None):
    """min ½|u - x|² + weight TV(u) through the dual box-constrained least squares of SciPy."""
    axes = range(x.ndim) if axes is None else axes
    d = np.concatenate(differences(x.shape, axes))
    dual = optimize.lsq_linear(
        d.T, x.ravel(), (-weight, weight), tol=1e-15, max_iter=500, lsq_solver="exact"
    )
    return x - (d.T @ dual.x).reshape(x.shape)


def isotropic_prox(x, weight, iterations=3000):
    """min ½|u - x|² + weight TV(u), isotropic: accelerated steps with dense matrices, for long."""
    index = np.arange(x.size).reshape(x.shape)
    d = np.zeros((x.ndim, x.size, x.size))
    for axis, matrix in enumerate(differences(x.shape, range(x.ndim))):
        d[axis, np.take(index, range(x.shape[axis] - 1), axis).ravel()] = matrix
    tall = d.reshape(-1, x.size)
    p = q = np.zeros((x.ndim, x.size))
    for step in range(iterations):
        u = x.ravel() - tall.T @ q.ravel()
        new = q + (tall @ u).reshape(q.shape) / (4 * x.ndim)
        new = new / np.maximum(np.sqrt(np.sum(new**2, axis=0)) / weight, 1)
        p, q = new, new + step / (step + 3) * (new - p)
    return (x.ravel() - tall.T @ p.ravel()).reshape(x.shape)
