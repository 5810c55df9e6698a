"""Brute-force answers in NumPy float64, sharing no code with the library."""

import numpy as np
from scipy import optimize


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
        differences_here = []
        for axis in axes:
            if index[axis] + 1 < x.shape[axis]:
                after = list(index)
                after[axis] += 1
                differences_here.append(x[tuple(after)] - x[index])
        total += (
            np.sqrt(np.sum(np.square(differences_here)))
            if isotropic
            else np.sum(np.abs(differences_here))
        )
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
