"""Posteriors that are products over coordinates: one integral over a line for each.

The log marginal likelihood is a sum of logarithms of such integrals, computed by Gauss-Legendre
panels between the kinks. Its maximiser is found by Newton's method on it, with differences of
fourth order as derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from answers.base import LEVELS, Found, Posterior, maximise

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


class Product(NamedTuple):
    """A density of independent coordinates.

    `log_density(theta, x)` is for x of shape (coordinates, points); every factor that depends on
    theta is in it. `ends(theta)` has shape (coordinates, segments + 1): increasing, the density is
    smooth between two neighbours and negligible outside of the first and the last.
    """

    log_density: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ends: Callable[[np.ndarray], np.ndarray]


class Panels:
    """The integrals of every coordinate at one theta."""

    def __init__(self, product: Product, theta: np.ndarray, panels: int) -> None:
        self.log_density = lambda x: product.log_density(theta, x)
        ends = product.ends(theta)
        share = np.arange(panels) / panels
        cuts = ends[:, :-1, None] + np.diff(ends)[:, :, None] * share
        self.cuts = np.concatenate([cuts.reshape(len(ends), -1), ends[:, -1:]], 1)
        half = np.diff(self.cuts) / 2
        middle = self.cuts[:, :-1] + half
        self.x = middle[:, :, None] + half[:, :, None] * NODES
        logs = self.log_density(self.x.reshape(len(ends), -1)).reshape(self.x.shape)
        self.top = logs.max((1, 2), keepdims=True)
        self.mass = np.exp(logs - self.top) * half[:, :, None] * WEIGHTS
        self.total = self.mass.sum((1, 2))

    def log_marginal(self) -> float:
        return float(np.sum(np.log(self.total) + self.top[:, 0, 0]))

    def posterior(self) -> Posterior:
        weights = self.mass / self.total[:, None, None]
        mean = (weights * self.x).sum((1, 2))
        variance = (weights * (self.x - mean[:, None, None]) ** 2).sum((1, 2))
        return Posterior(mean, np.sqrt(variance), np.array([self.quantile(q) for q in LEVELS]))

    def quantile(self, level: float) -> np.ndarray:
        """By bisection inside of the panel where the distribution function passes the level."""
        below = np.cumsum(self.mass.sum(2), 1) / self.total[:, None]
        rows = np.arange(len(below))
        panel = np.minimum((below < level).sum(1), below.shape[1] - 1)
        missing = level - np.where(panel > 0, below[rows, panel - 1], 0.0)
        start = self.cuts[rows, panel]
        low, high = np.zeros(len(rows)), self.cuts[rows, panel + 1] - start
        for _ in range(60):
            middle = (low + high) / 2
            points = start[:, None] + middle[:, None] * (NODES + 1) / 2
            values = np.exp(self.log_density(points) - self.top[:, :, 0])
            mass = (values * WEIGHTS).sum(1) * middle / 2 / self.total
            low, high = (
                np.where(mass < missing, middle, low),
                np.where(mass < missing, high, middle),
            )
        return start + low


def answer(product: Product, start: list[float], panels: int = 40) -> Found:
    """The answer with `panels` panels per segment; its error is the change with half of them."""

    def solved(panels: int) -> tuple[np.ndarray, np.ndarray, Posterior]:
        theta, information = maximise(
            lambda at: Panels(product, at, panels).log_marginal(), np.array(start)
        )
        return theta, information, Panels(product, theta, panels).posterior()

    theta, information, posterior = solved(panels)
    coarse, _, rough = solved(panels // 2)
    assert np.all(np.linalg.eigvalsh(information) > 0)
    floor = 1e-9

    def change(fine: np.ndarray, rough: np.ndarray) -> np.ndarray:
        return np.maximum(np.max(np.abs(fine - rough)), floor)

    return Found(
        theta=theta,
        theta_error=np.maximum(np.abs(theta - coarse), floor),
        theta_stderr=np.sqrt(np.diag(np.linalg.inv(information))),
        x_mean=posterior.mean,
        x_mean_error=change(posterior.mean, rough.mean),
        x_sd=posterior.sd,
        x_sd_error=change(posterior.sd, rough.sd),
        x_quantiles=posterior.quantiles,
        x_quantiles_error=change(posterior.quantiles, rough.quantiles),
        how="Quadrature over each coordinate and Newton's method on the log marginal likelihood.",
        potential=lambda at, x: -float(np.sum(product.log_density(at, x[:, None]))),
    )
