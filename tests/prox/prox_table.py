"""The table of terms: a new prox adds one row and gets every contract of `test_contracts.py`.

`minimum(theta, x, lam_theta, lam_x)` is the value of the objective at the point the term promises,
by brute force; `convex` says that the joint prox must be firmly non-expansive; `limit(theta, x)` is
the largest `lam_theta` for which that point exists. A `variant` of a term that has a row of its own
answers to the contracts about the point, and is spared those about transformations and dtypes.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from prox_brute import (
    anisotropic_prox,
    basin_minimum,
    elementwise_minimum,
    isotropic_prox,
    soft_minimum,
    total_variation,
)
from scipy import optimize

from pipla import prox


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One term, how to draw an x for it, and its brute-force answer."""

    name: str
    term: prox.Term
    minimum: Callable
    draw: Callable
    convex: bool
    joint: bool = False
    theta: Callable = lambda rng: 0.0
    sizes: tuple[int, ...] = (1, 30, 300)
    accuracy: float = 1e-9
    limit: Callable = lambda theta, x: np.inf
    variant: bool = False

    def __repr__(self):
        return self.name


def vector(rng, d):
    """Laplace noise of a random size; half the time rounded, so that there are ties and zeros."""
    x = rng.laplace(size=d) * 10 ** rng.uniform(-1, 1)
    return np.round(2 * x) / 2 if rng.random() < 0.5 else x


def matrix(rng, d):
    rows = max(1, int(np.sqrt(d)))
    return vector(rng, rows * -(-d // rows)).reshape(rows, -1)


def standard(rng):
    return rng.normal()


def joint(reduced, reach, start=lambda theta, x: theta):
    """The basin minimum of `reduced(u0, ...)`, the objective already minimised over u."""

    def minimum(theta, x, lam_theta, lam_x):
        def objective(u0):
            return reduced(u0, x, lam_x) + (u0 - theta) ** 2 / (2 * lam_theta)

        if lam_theta == 0:
            return float(reduced(np.array([theta]), x, lam_x)[0])
        return basin_minimum(
            objective, start(theta, x), reach(theta, x, lam_theta, lam_x), points=4001
        )

    return minimum


def laplace_location(scale):
    def reduced(u0, x, lam):
        return soft_minimum(np.abs(x.ravel()[:, None] - u0), 1 / scale, lam)

    return joint(reduced, lambda theta, x, lt, lx: np.ptp(np.append(x, theta)) + 1e-9)


def gaussian_location(scale):
    def reduced(u0, x, lam):
        return np.sum((x.ravel()[:, None] - u0) ** 2, axis=0) / (2 * (scale**2 + lam))

    return joint(reduced, lambda theta, x, lt, lx: np.ptp(np.append(x, theta)) + 1e-9)


def strength(amplitudes, rate, normalised, weight=1.0):
    k = abs(rate)

    def reduced(u0, x, lam):
        value = soft_minimum(amplitudes(x)[:, None], weight * np.exp(rate * u0), lam)
        return value - normalised * rate * x.size * u0

    def reach(theta, x, lt, lx):
        total = k**2 * lt * np.exp(rate * theta) * weight * np.sum(amplitudes(x))
        return k * lt * x.size + np.log1p(total) / k + 1e-9

    return joint(reduced, reach)


def precision(degrees):
    def reduced(u0, x, lam):
        w = np.exp(u0)
        return w * np.sum(x**2) / (2 * (1 + lam * w)) - degrees * u0

    def reach(theta, x, lt, lx):
        return lt * degrees + np.log1p(lt * np.exp(theta) * np.sum(x**2)) + 1e-9

    return joint(reduced, reach)


def uniform_box():
    def reduced(u0, x, lam):
        u0 = np.maximum(u0, 1e-300)
        outside = np.maximum(np.abs(x.ravel()[:, None]) - u0, 0)
        return x.size * np.log(2 * u0) + np.sum(outside**2, axis=0) / (2 * lam)

    start = lambda theta, x: max(theta, np.max(np.abs(x)))  # noqa: E731
    return joint(reduced, lambda theta, x, lt, lx: start(theta, x) * (1 - 1e-9), start)


def uniform_log_box():
    def reduced(u0, x, lam):
        outside = np.maximum(np.abs(x.ravel()[:, None]) - np.exp(u0), 0)
        return x.size * (u0 + np.log(2)) + np.sum(outside**2, axis=0) / (2 * lam)

    def reach(theta, x, lt, lx):
        top = np.log(max(np.max(np.abs(x)), 1e-300))
        return max(lt * x.size, top - theta) + 1e-9

    return joint(reduced, reach)


def alone(minimum):
    """A term in x alone: theta plays no part."""
    return lambda theta, x, lam_theta, lam_x: minimum(x, lam_x)


def separable(penalty, *kinks):
    return alone(lambda x, lam: elementwise_minimum(penalty, x, lam, kinks))


def singular_values(x):
    return np.linalg.svd(x, compute_uv=False)


def simplex(total):
    def minimum(x, lam):
        low, high = np.min(x) - total, np.max(x)
        level = optimize.brentq(
            lambda t: np.sum(np.maximum(x - t, 0)) - total, low, high, xtol=1e-15
        )
        return np.sum((np.maximum(x - level, 0) - x) ** 2) / (2 * lam)

    return alone(minimum)


def projection(project):
    return alone(lambda x, lam: np.sum((project(x) - x) ** 2) / (2 * lam))


def tv(weight, isotropic=False):
    def minimum(x, lam):
        solver = isotropic_prox if isotropic else anisotropic_prox
        u = solver(x, lam * weight)
        return weight * total_variation(u, None, isotropic) + np.sum((u - x) ** 2) / (2 * lam)

    return alone(minimum)


tight = {"tolerance": 1e-11, "max_iterations": 20000}
small = {"sizes": (1, 12)}

ROWS = [
    Row("laplace_location", prox.LaplaceLocation(), laplace_location(1.0), vector, True, True, standard),
    Row("laplace_location_wide", prox.LaplaceLocation(scale=3.0), laplace_location(3.0), matrix, True, True, standard, sizes=(30,), variant=True),
    Row("gaussian_location", prox.GaussianLocation(0.7), gaussian_location(0.7), vector, True, True, standard),
    Row("laplace_scale", prox.LaplaceScale(), strength(lambda x: np.abs(x.ravel()), -2.0, True), vector, False, True, standard),
    Row("nuclear_strength", prox.NuclearStrength(), strength(singular_values, 1.0, False), matrix, False, True, standard, sizes=(1, 30)),
    Row("group_strength", prox.Strength(prox.GroupLasso(0.5), rate=-0.7), strength(lambda x: np.linalg.norm(x, axis=-1), -0.7, True, 0.5), matrix, False, True, standard, sizes=(1, 30), variant=True),
    Row("gaussian_precision", prox.Strength(prox.SquaredL2(), degrees=15, tolerance=1e-13), precision(15), vector, False, True, standard, sizes=(30,), limit=lambda theta, x: 0.02, variant=True),
    Row("uniform_box", prox.UniformBox(), uniform_box(), vector, False, True, lambda rng: 10 ** rng.uniform(-1, 1), limit=lambda theta, x: theta**2 / (4.1 * x.size)),
    Row("uniform_log_box", prox.UniformLogBox(), uniform_log_box(), vector, False, True, standard, sizes=(1, 30)),
    Row("l1", prox.L1(0.3), separable(lambda u: 0.3 * np.abs(u), 0.0), vector, True, sizes=(1, 12)),
    Row("squared_l2", prox.SquaredL2(2.0), separable(lambda u: u**2), vector, True, sizes=(1, 12)),
    Row("elastic_net", prox.ElasticNet(0.5, 0.25), separable(lambda u: 0.5 * np.abs(u) + 0.125 * u**2, 0.0), vector, True, sizes=(1, 12)),
    Row("group_lasso", prox.GroupLasso(0.8), alone(lambda x, lam: soft_minimum(np.linalg.norm(x, axis=-1), 0.8, lam)), matrix, True),
    Row("nuclear_norm", prox.NuclearNorm(1.5), alone(lambda x, lam: soft_minimum(singular_values(x), 1.5, lam)), matrix, True),
    Row("hard_tanh", prox.HardTanh(), separable(lambda u: np.clip(u, -1, 1), -1.0, 1.0), vector, False, sizes=(1, 12)),
    Row("box", prox.Box(-0.5, 2.0), projection(lambda x: np.clip(x, -0.5, 2.0)), vector, True),
    Row("non_negative", prox.NonNegative(), projection(lambda x: x * (x > 0)), vector, True),
    Row("simplex", prox.Simplex(2.0), simplex(2.0), vector, True),
    Row("tv_signal", prox.TotalVariation(0.4, **tight), tv(0.4), vector, True, **small, variant=True),
    Row("tv_image", prox.TotalVariation(0.4, **tight), tv(0.4), matrix, True, **small),
    Row("tv_isotropic", prox.TotalVariation(0.4, isotropic=True, **tight), tv(0.4, True), matrix, True, accuracy=1e-7, sizes=(1, 9)),
    Row("zero", prox.Zero(), alone(lambda x, lam: 0.0), vector, True, sizes=(3,), variant=True),
    Row("scaled", 3.0 * prox.LaplaceLocation(), laplace_location(1 / 3), vector, True, True, standard, sizes=(3,), variant=True),
    Row("translated", prox.L1(0.3).translate(0.5), separable(lambda u: 0.3 * np.abs(u - 0.5), 0.5), vector, True, sizes=(3,), variant=True),
]  # fmt: skip

THOROUGH = [row for row in ROWS if not row.variant]
JOINT = [row for row in ROWS if row.joint]
CONVEX = [row for row in ROWS if row.convex]


def draw(row, seed, d=None):
    """A random (theta, x, lam_theta, lam_x), the smoothings over four orders of magnitude."""
    rng = np.random.default_rng(seed)
    d = int(rng.choice(row.sizes)) if d is None else d
    x = row.draw(rng, d)
    theta, lam_theta = row.theta(rng), 10 ** rng.uniform(-4, 0)
    lam_theta = lam_theta / (x.size if rng.random() < 0.5 else 1)
    return theta, x, min(lam_theta, row.limit(theta, x)), 10 ** rng.uniform(-3, 1)
