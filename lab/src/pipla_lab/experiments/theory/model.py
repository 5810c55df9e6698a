r"""A quadratic plus an l1 norm: every constant of the theory is known, and so is the maximiser.

$$ g_1 = \tfrac12 |x - y|^2 + \tfrac\kappa2 \sum_i (x_i - \theta)^2 + \tfrac\rho2 \theta^2,
   \qquad g_2 = w |x|_1. $$

Given theta the coordinates of x are independent, so what is wanted of their law is an integral in
one dimension, which Gauss-Legendre quadrature between the kinks computes to rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from pipla.models.model import Model
from pipla.prox import L1
from pipla_lab.theory import Constants

#: Nodes of the quadrature between two kinks.
NODES = 200


@dataclasses.dataclass(frozen=True)
class QuadraticL1:
    r"""The model, with $\kappa$ `coupling`, $\rho$ `ridge` and $w$ `weight`."""

    y: tuple[float, ...] = (2.0, -0.5, 1.0, 0.2)
    coupling: float = 0.5
    ridge: float = 0.5
    weight: float = 1.0

    @property
    def dim_x(self) -> int:
        """The dimension of x."""
        return len(self.y)

    def model(self) -> Model:
        """It as a model."""
        coupling, ridge = self.coupling, self.ridge

        def smooth(theta: Array, x: Array, y: Array) -> Array:
            pull = coupling * jnp.sum((x - theta) ** 2) + ridge * theta**2
            return (jnp.sum((x - y) ** 2) + pull) / 2

        data = jnp.asarray(self.y, jnp.result_type(float))
        return Model(smooth, L1(self.weight), data=data)

    def hessian(self) -> NDArray[np.float64]:
        """The Hessian of g1 in (theta, x), which is the same everywhere."""
        d, k = self.dim_x, self.coupling
        hessian = np.diag([self.ridge + d * k] + [1 + k] * d)
        hessian[0, 1:] = hessian[1:, 0] = -k
        return hessian

    def constants(self, theta: float, x: NDArray[np.float64], smoothing: float) -> Constants:
        """The constants of the bounds, for a start with all particles at `x`."""
        ends = np.linalg.eigvalsh(self.hessian())
        best_theta, best_x = self.minimiser(smoothing)
        return Constants(
            mu=float(ends[0]),
            lipschitz=float(ends[-1]),
            dim_theta=1,
            dim_x=self.dim_x,
            g2_lipschitz=self.weight * float(np.sqrt(self.dim_x)),
            theta_in_g2=False,
            start=float(np.hypot(theta - best_theta, np.linalg.norm(x - best_x))),
        )

    def slow_start(self, distance: float) -> tuple[float, NDArray[np.float64]]:
        """A start at this distance from the minimiser of U, along the flattest direction of g1."""
        direction = np.linalg.eigh(self.hessian())[1][:, 0]
        theta, x = self.minimiser(0.0)
        # The sign for which x moves away from its kinks.
        direction *= np.sign(direction[0])
        return float(theta + distance * direction[0]), x + distance * direction[1:]

    def minimiser(self, smoothing: float) -> tuple[float, NDArray[np.float64]]:
        """The minimiser of U, or with a positive smoothing of its envelope."""
        precision = 1 + self.coupling

        def points(theta: float) -> NDArray[np.float64]:
            pull = np.asarray(self.y) + self.coupling * theta
            shrunk = np.sign(pull) * np.maximum(np.abs(pull) - self.weight, 0) / precision
            if smoothing == 0:
                return shrunk
            inside = pull / (precision + 1 / smoothing)
            return np.where(np.abs(inside) <= self.weight * smoothing, inside, shrunk)

        theta = self._root(lambda theta: points(theta))
        return theta, points(theta)

    def maximiser(self, smoothing: float) -> float:
        r"""The maximiser of $\int e^{-U^\lambda(\theta, x)}\,dx$; with smoothing 0 that of $U$."""
        return self._root(
            lambda theta: means(
                1 + self.coupling,
                np.asarray(self.y) + self.coupling * theta,
                huber(self.weight, smoothing),
                (-self.weight * smoothing, self.weight * smoothing),
            )
        )

    def _root(self, x: Callable[[float], NDArray[np.float64]]) -> float:
        """The theta at which the gradient in theta vanishes, for x a function of theta."""
        from scipy.optimize import brentq

        def gradient(theta: float) -> float:
            return self.ridge * theta + self.coupling * float(np.sum(theta - x(theta)))

        reach = 10 * (1 + float(np.max(np.abs(self.y))))
        return float(brentq(gradient, -reach, reach, xtol=1e-13, rtol=1e-13))


def huber(weight: float, smoothing: float) -> Callable[[NDArray], NDArray]:
    r"""The envelope of $w|t|$: a parabola up to $|t| = w\lambda$; $w|t|$ itself for 0."""

    def value(t: NDArray) -> NDArray:
        size = np.abs(t)
        if smoothing == 0:
            return weight * size
        line = weight * size - weight**2 * smoothing / 2
        return np.where(size <= weight * smoothing, t**2 / (2 * smoothing), line)

    return value


def nodes(kinks: tuple[float, ...], reach: float, count: int = NODES) -> tuple[NDArray, NDArray]:
    """Gauss-Legendre nodes and weights on [-reach, reach], `count` between two kinks."""
    place, weight = np.polynomial.legendre.leggauss(count)
    ends = np.unique([-reach, *kinks, reach])
    half = np.diff(ends) / 2
    middle = (ends[1:] + ends[:-1]) / 2
    return (middle[:, None] + half[:, None] * place).ravel(), (half[:, None] * weight).ravel()


def means(
    precision: float,
    pull: NDArray[np.float64],
    penalty: Callable[[NDArray], NDArray],
    kinks: tuple[float, ...],
) -> NDArray[np.float64]:
    r"""The means of $e^{-a t^2/2 + b t - p(t)}$ for each $b$ of `pull`."""
    reach = float(np.max(np.abs(pull))) / precision + 12 / np.sqrt(precision)
    t, weight = nodes(kinks, reach)
    exponent = pull[:, None] * t - precision * t**2 / 2 - penalty(t)
    density = weight * np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.sum(density * t, axis=1) / np.sum(density, axis=1)
