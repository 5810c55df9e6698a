r"""How far smoothing moves the maximiser: $|\bar\theta_{\star,\lambda} - \bar\theta_\star|$.

By quadrature, on the toy model and on a model with a one-sided kink that breaks the paper's
proposition [prop:theta_convergence_lambda] (E20).

Exactly, $\frac{d}{d\lambda} \bar\theta_{\star,\lambda} = K_\lambda''(\theta)^{-1}\,
\nabla_\theta\, \mathbb E[\tfrac12 |\nabla g_2^\lambda(\theta, X)|^2 \mid \theta]$, because
$\partial_\lambda g_2^\lambda = -\tfrac12 |\nabla g_2^\lambda|^2$. So the order is one, or two where
the length of the gradient of $g_2$ is the same almost everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pipla.problems import Problem, toy
from pipla_lab.experiments.theory.model import huber, means, nodes
from pipla_lab.theory import Constants

#: The ridge of the toy model here: without one, $g_1$ is not strongly convex.
RIDGE = 0.5
#: The seed of three observations, one of which is far from the others: smoothing shows.
SEED = 20


def toy_problem(dimension: int) -> Problem:
    """The toy model with a ridge."""
    return toy(dimension, ridge=RIDGE, seed=SEED if dimension == 3 else 0)


def toy_constants(dimension: int, joint: bool) -> Constants:
    """The constants of its bounds. Smoothed in x alone, the gradient in theta does not count."""
    d, r = dimension, RIDGE
    hessian = np.diag([d * r] + [1 + r] * d)
    hessian[0, 1:] = hessian[1:, 0] = -r
    ends = np.linalg.eigvalsh(hessian)
    slope = np.sqrt(d * (d + 1)) if joint else np.sqrt(d)
    return Constants(float(ends[0]), float(ends[-1]), 1, d, g2_lipschitz=float(slope))


def observations(dimension: int) -> NDArray[np.float64]:
    """The observations of the toy model."""
    return np.asarray(toy_problem(dimension).model.data["y"], np.float64)


def partial_maximiser(y: NDArray[np.float64], smoothing: float) -> float:
    r"""The maximiser of the toy model whose term is smoothed in x alone (the hybrid form).

    With $t = x - \theta$ the coordinates are independent, of potential
    $(t + \theta - y_i)^2/2 + r t^2/2 + h_\lambda(t)$.
    """
    kinks = (-smoothing, smoothing)

    def gradient(theta: float) -> float:
        t = means(1 + RIDGE, y - theta, huber(1.0, smoothing), kinks)
        return float(np.sum(t + theta - y))

    return _root(gradient, y)


def joint_maximiser(y: NDArray[np.float64], smoothing: float, count: int = 28) -> float:
    r"""The same with the joint envelope, for three observations: the coordinates are coupled.

    Its kinks are at $|t_i - v| = \lambda$ with $|v| \le 3\lambda$: beyond $4\lambda$ it is smooth.
    """
    t, weight = nodes((-4 * smoothing, 4 * smoothing), 8.0, count)
    prior = np.exp(-joint_envelope(np.stack(np.meshgrid(t, t, t, indexing="ij")), smoothing))

    def gradient(theta: float) -> float:
        each = [weight * np.exp(-((t + theta - v) ** 2) / 2 - RIDGE * t**2 / 2) for v in y]
        pulls = [(t + theta - value) * w for value, w in zip(y, each, strict=True)]
        total = np.einsum("ijk,i,j,k", prior, *each, optimize=True)
        pull = sum(
            np.einsum("ijk,i,j,k", prior, *each[:i], pulls[i], *each[i + 1 :], optimize=True)
            for i in range(3)
        )
        return float(pull / total)

    return _root(gradient, y)


def joint_envelope(t: NDArray[np.float64], lam: float) -> NDArray[np.float64]:
    r"""$\min_v v^2/(2\lambda) + \sum_i h_\lambda(t_i - v)$ over the first axis.

    $v = \sum_i \operatorname{clip}(t_i - v, \pm\lambda)$; of the $3^d$ linear equations, one for
    each way to saturate, the one whose solution saturates that way.
    """
    shift = np.zeros(t.shape[1:])
    for sides in itertools.product((-1, 0, 1), repeat=len(t)):
        free = [i for i, side in enumerate(sides) if side == 0]
        v = (lam * sum(sides) + t[free].sum(axis=0)) / (1 + len(free))
        fits = np.ones(shift.shape, bool)
        for side, each in zip(sides, t, strict=True):
            fits &= np.abs(each - v) <= lam if side == 0 else side * (each - v) > lam
        shift = np.where(fits, v, shift)
    h = huber(1.0, lam)
    return shift**2 / (2 * lam) + sum(h(each - shift) for each in t)


def joint_rate(y: NDArray[np.float64]) -> float:
    r"""The derivative of the joint maximiser at $\lambda = 0$, for any number of observations.

    $|\nabla g_2|^2 = d + (\sum_i s_i)^2$ with independent signs $s_i$ of means $m_i(\theta)$, so
    $\mathbb E[\tfrac12|\nabla g_2|^2] = \tfrac12(2d - \sum_i m_i^2 + (\sum_i m_i)^2)$.
    """
    theta, step = partial_maximiser(y, 0.0), 1e-4

    def half_square(theta: float) -> float:
        m = _signs(y - theta)
        return float(2 * len(y) - np.sum(m**2) + np.sum(m) ** 2) / 2

    def gradient(theta: float) -> float:
        return float(np.sum(means(1 + RIDGE, y - theta, np.abs, (0.0,)) + theta - y))

    def derivative(function: Callable[[float], float]) -> float:
        return (function(theta + step) - function(theta - step)) / (2 * step)

    return derivative(half_square) / derivative(gradient)


def _signs(pull: NDArray[np.float64]) -> NDArray[np.float64]:
    reach = float(np.max(np.abs(pull))) + 12
    t, weight = nodes((0.0,), reach)
    density = weight * np.exp(pull[:, None] * t - (1 + RIDGE) * t**2 / 2 - np.abs(t))
    return np.sum(density * np.sign(t), axis=1) / np.sum(density, axis=1)


class OneSided:
    r"""$g_1 = \tfrac12\theta^2 + x^2/(2 s^2)$ and $g_2 = c\,(x - \theta)_+$, with $s = c = 0.1$.

    $\nabla g_2$ is $(-c, c)$ or 0, so $\ell^2 = 2c^2$; its second derivative is 0 almost
    everywhere, so $B = 0$ and the paper's bound is $\lambda c^2 A$ with
    $A = \mathbb E|\nabla_\theta U|$ ($\mu = 1$). The kink moves the gradient of the smoothed
    potential by $\lambda c^2 \rho$, $\rho$ being the density of x at the kink: first order, too.
    """

    c, s = 0.1, 0.1

    def maximiser(self, smoothing: float) -> float:
        """The maximiser of the smoothed marginal likelihood."""
        ends = np.array([-1.0, 1.0])
        return _root(lambda theta: theta - self._slopes(theta, smoothing)[0], ends)

    def paper_bound(self, smoothing: float) -> float:
        """The paper's bound, without its remainder."""
        theta = self.maximiser(0.0)
        above = self._slopes(theta, smoothing)[1]
        a = abs(theta) * (1 - above) + abs(theta - self.c) * above
        return smoothing * self.c**2 * a

    def proved_bound(self, smoothing: float) -> float:
        r"""$\ell\sqrt{\lambda/(2\mu)}$."""
        return self.c * float(np.sqrt(smoothing))

    def _slopes(self, theta: float, lam: float) -> tuple[float, float]:
        r"""The means of $-\partial_\theta g_2^\lambda$ and of $1\{x > \theta\}$ given theta."""
        c, end = self.c, 2 * lam * self.c
        t, weight = nodes((0.0, end), abs(theta) + 12 * self.s)
        if lam == 0:
            slope, value = c * (t > 0), c * np.maximum(t, 0)
        else:
            # The envelope in (theta, x) is that in t = x - theta with twice the smoothing.
            slope = np.clip(t / (2 * lam), 0, c)
            value = np.where(t < end, np.maximum(t, 0) ** 2 / (4 * lam), c * t - c**2 * lam)
        density = weight * np.exp(-((t + theta) ** 2) / (2 * self.s**2) - value)
        density /= density.sum()
        return float(density @ slope), float(density @ (t > 0))


def _root(gradient: Callable[[float], float], y: NDArray[np.float64]) -> float:
    from scipy.optimize import brentq

    return float(brentq(gradient, np.min(y) - 1, np.max(y) + 1, xtol=1e-13, rtol=1e-13))
