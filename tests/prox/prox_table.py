"""The table of terms: a new prox adds one case and gets every contract of `pipla.testing`."""

import numpy as np
from prox_brute import anisotropic_prox, isotropic_prox, soft_minimum, total_variation
from scipy import optimize

from pipla import prox
from pipla.testing import (
    ProxCase,
    basin_minimum,
    draw_matrix,
    draw_normal,
    draw_vector,
    on_x_alone,
    separable,
)


def joint(reduced, reach, start=lambda theta, x: theta):
    """The basin minimum of `reduced(u0, ...)`, the objective already minimised over u."""

    def minimum(theta, x, lam_theta, lam_x):
        def objective(u0):
            return reduced(u0, x, lam_x) + (u0 - theta) ** 2 / (2 * lam_theta)

        if lam_theta == 0:
            return float(reduced(np.array([theta]), x, lam_x)[0])
        return basin_minimum(objective, start(theta, x), reach(theta, x, lam_theta, lam_x))

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


def precision(degrees, rate=1.0):
    """`degrees` of an x."""
    k = abs(rate)

    def reduced(u0, x, lam):
        w = np.exp(rate * u0)
        return w * np.sum(x**2) / (2 * (1 + lam * w)) - rate * degrees(x) * u0

    def reach(theta, x, lt, lx):
        total = k**2 * lt * np.exp(rate * theta) * np.sum(x**2)
        return k * lt * degrees(x) + np.log1p(total) / k + 1e-9

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


def singular_values(x):
    return np.linalg.svd(x, compute_uv=False)


def simplex(total):
    def minimum(x, lam):
        low, high = np.min(x) - total, np.max(x)
        level = optimize.brentq(
            lambda t: np.sum(np.maximum(x - t, 0)) - total, low, high, xtol=1e-15
        )
        return np.sum((np.maximum(x - level, 0) - x) ** 2) / (2 * lam)

    return on_x_alone(minimum)


def projection(project):
    return on_x_alone(lambda x, lam: np.sum((project(x) - x) ** 2) / (2 * lam))


def tv(weight, isotropic=False):
    def minimum(x, lam):
        solver = isotropic_prox if isotropic else anisotropic_prox
        u = solver(x, lam * weight)
        return weight * total_variation(u, None, isotropic) + np.sum((u - x) ** 2) / (2 * lam)

    return on_x_alone(minimum)


tight = {"tolerance": 1e-11, "max_iterations": 20000}

CASES = [
    ProxCase(
        name="laplace_location",
        term=prox.LaplaceLocation(),
        minimum=laplace_location(1.0),
        draw_x=draw_vector,
        convex=True,
        joint=True,
        draw_theta=draw_normal,
    ),
    ProxCase(
        name="laplace_location_wide",
        term=prox.LaplaceLocation(scale=3.0),
        minimum=laplace_location(3.0),
        draw_x=draw_matrix,
        convex=True,
        joint=True,
        draw_theta=draw_normal,
        sizes=(30,),
        variant=True,
    ),
    ProxCase(
        name="gaussian_location",
        term=prox.GaussianLocation(0.7),
        minimum=gaussian_location(0.7),
        draw_x=draw_vector,
        convex=True,
        joint=True,
        draw_theta=draw_normal,
    ),
    ProxCase(
        name="laplace_scale",
        term=prox.LaplaceScale(),
        minimum=strength(lambda x: np.abs(x.ravel()), -2.0, True),
        draw_x=draw_vector,
        convex=False,
        joint=True,
        draw_theta=draw_normal,
    ),
    ProxCase(
        name="gaussian_scale",
        term=prox.GaussianScale(),
        minimum=precision(lambda x: x.size / 2, rate=-4.0),
        draw_x=draw_vector,
        convex=False,
        joint=True,
        draw_theta=draw_normal,
        max_lam_theta=0.02,
    ),
    ProxCase(
        name="nuclear_strength",
        term=prox.NuclearStrength(),
        minimum=strength(singular_values, 1.0, False),
        draw_x=draw_matrix,
        convex=False,
        joint=True,
        draw_theta=draw_normal,
        sizes=(1, 30),
    ),
    ProxCase(
        name="group_strength",
        term=prox.Strength(prox.GroupLasso(0.5), rate=-0.7),
        minimum=strength(lambda x: np.linalg.norm(x, axis=-1), -0.7, True, 0.5),
        draw_x=draw_matrix,
        convex=False,
        joint=True,
        draw_theta=draw_normal,
        sizes=(1, 30),
        variant=True,
    ),
    ProxCase(
        name="gaussian_precision",
        term=prox.Strength(prox.SquaredL2(), degrees=15, tolerance=1e-13),
        minimum=precision(lambda x: 15),
        draw_x=draw_vector,
        convex=False,
        joint=True,
        draw_theta=draw_normal,
        sizes=(30,),
        max_lam_theta=0.02,
        variant=True,
    ),
    ProxCase(
        name="uniform_box",
        term=prox.UniformBox(),
        minimum=uniform_box(),
        draw_x=draw_vector,
        convex=False,
        joint=True,
        draw_theta=lambda rng: 10 ** rng.uniform(-1, 1),
        max_lam_theta=lambda theta, x: theta**2 / (4.1 * x.size),
    ),
    ProxCase(
        name="uniform_log_box",
        term=prox.UniformLogBox(),
        minimum=uniform_log_box(),
        draw_x=draw_vector,
        convex=False,
        joint=True,
        draw_theta=draw_normal,
        sizes=(1, 30),
    ),
    ProxCase(
        name="l1",
        term=prox.L1(0.3),
        minimum=separable(lambda u: 0.3 * np.abs(u), 0.0),
        draw_x=draw_vector,
        convex=True,
        sizes=(1, 12),
    ),
    ProxCase(
        name="squared_l2",
        term=prox.SquaredL2(2.0),
        minimum=separable(lambda u: u**2),
        draw_x=draw_vector,
        convex=True,
        sizes=(1, 12),
    ),
    ProxCase(
        name="elastic_net",
        term=prox.ElasticNet(0.5, 0.25),
        minimum=separable(lambda u: 0.5 * np.abs(u) + 0.125 * u**2, 0.0),
        draw_x=draw_vector,
        convex=True,
        sizes=(1, 12),
    ),
    ProxCase(
        name="group_lasso",
        term=prox.GroupLasso(0.8),
        minimum=on_x_alone(lambda x, lam: soft_minimum(np.linalg.norm(x, axis=-1), 0.8, lam)),
        draw_x=draw_matrix,
        convex=True,
    ),
    ProxCase(
        name="nuclear_norm",
        term=prox.NuclearNorm(1.5),
        minimum=on_x_alone(lambda x, lam: soft_minimum(singular_values(x), 1.5, lam)),
        draw_x=draw_matrix,
        convex=True,
    ),
    ProxCase(
        name="hard_tanh",
        term=prox.HardTanh(),
        minimum=separable(lambda u: np.clip(u, -1, 1), -1.0, 1.0),
        draw_x=draw_vector,
        convex=False,
        sizes=(1, 12),
    ),
    ProxCase(
        name="box",
        term=prox.Box(-0.5, 2.0),
        minimum=projection(lambda x: np.clip(x, -0.5, 2.0)),
        draw_x=draw_vector,
        convex=True,
    ),
    ProxCase(
        name="non_negative",
        term=prox.NonNegative(),
        minimum=projection(lambda x: x * (x > 0)),
        draw_x=draw_vector,
        convex=True,
    ),
    ProxCase(
        name="simplex",
        term=prox.Simplex(2.0),
        minimum=simplex(2.0),
        draw_x=draw_vector,
        convex=True,
    ),
    ProxCase(
        name="tv_signal",
        term=prox.TotalVariation(0.4, **tight),
        minimum=tv(0.4),
        draw_x=draw_vector,
        convex=True,
        sizes=(1, 12),
        variant=True,
    ),
    ProxCase(
        name="tv_image",
        term=prox.TotalVariation(0.4, **tight),
        minimum=tv(0.4),
        draw_x=draw_matrix,
        convex=True,
        sizes=(1, 12),
    ),
    ProxCase(
        name="tv_isotropic",
        term=prox.TotalVariation(0.4, isotropic=True, **tight),
        minimum=tv(0.4, True),
        draw_x=draw_matrix,
        convex=True,
        accuracy=1e-7,
        sizes=(1, 9),
    ),
    ProxCase(
        name="zero",
        any_x=True,
        term=prox.Zero(),
        minimum=on_x_alone(lambda x, lam: 0.0),
        draw_x=draw_vector,
        convex=True,
        sizes=(3,),
        variant=True,
    ),
    ProxCase(
        name="scaled",
        term=3.0 * prox.LaplaceLocation(),
        minimum=laplace_location(1 / 3),
        draw_x=draw_vector,
        convex=True,
        joint=True,
        draw_theta=draw_normal,
        sizes=(3,),
        variant=True,
    ),
    ProxCase(
        name="translated",
        term=prox.L1(0.3).translate(0.5),
        minimum=separable(lambda u: 0.3 * np.abs(u - 0.5), 0.5),
        draw_x=draw_vector,
        convex=True,
        sizes=(3,),
        variant=True,
    ),
]
