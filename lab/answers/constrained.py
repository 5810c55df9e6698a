"""Uniform, non-negative and simplex latents: quadrature over a line, or over the simplex."""

from __future__ import annotations

import numpy as np

from answers.base import LEVELS, Data, Found, Posterior, maximise
from answers.products import replicated
from answers.quadrature import Product, answer


def uniform_half_width(data: Data) -> Found:
    y, noise = data["y"][:, None], float(data["noise"])

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        inside = np.abs(x) <= theta[0] * (1 + 1e-12)
        value = -((x - y) ** 2) / (2 * noise**2) - np.log(2 * theta[0])
        return np.where(inside, value, -np.inf)

    def ends(theta: np.ndarray) -> np.ndarray:
        # Cut around each observation, so that panels are short where the density is.
        inner = np.clip(y + np.array([-8 * noise, 8 * noise]), -0.99 * theta[0], 0.99 * theta[0])
        edge = np.full((len(y), 1), theta[0])
        return np.concatenate([-edge, inner, edge], 1)

    return answer(Product(log_density, ends), [2.0])


def uniform_log_half_width(data: Data) -> Found:
    trials, successes = data["trials"][:, None], data["successes"][:, None]

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        inside = np.abs(x) <= np.exp(theta[0]) * (1 + 1e-12)
        value = successes * x - trials * np.logaddexp(0, x) - theta[0]
        return np.where(inside, value, -np.inf)

    def ends(theta: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.exp(theta[0]) * np.array([-1.0, 1.0]), (len(trials), 2))

    return answer(Product(log_density, ends), [0.7])


def box_learned_noise(data: Data) -> Found:
    mean, square, count = replicated(data)

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        misfit = (count * (x - mean) ** 2 + square) / 2 * np.exp(-2 * theta[0]) + count * theta[0]
        return np.where((x >= 0) & (x <= 1), -misfit, -np.inf)

    ends = np.broadcast_to(np.array([0.0, 1.0]), (len(mean), 2))
    return answer(Product(log_density, lambda _: ends), [-1.0], 80)


def nonnegative_poisson(data: Data) -> Found:
    counts, background = data["counts"][:, None], float(data["background"])

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        rate = np.maximum(x, 0) + background
        value = counts * np.log(rate) - rate - np.exp(theta[0]) * x + theta[0]
        return np.where(x >= 0, value, -np.inf)

    ends = np.broadcast_to(np.array([0.0, 20.0, 140.0]), (len(counts), 3))
    return answer(Product(log_density, lambda _: ends), [-0.5], 80)


class SimplexRule:
    """Gauss-Legendre nodes on the simplex of four parts, by Duffy's map of the cube.

    With u, v, w in (0, 1) the parts are u, (1-u) v, (1-u)(1-v) w and the rest, and the volume
    element is (1-u)² (1-v).
    """

    def __init__(self, nodes: int) -> None:
        line, weights = np.polynomial.legendre.leggauss(nodes)
        self.u, self.weights = (line + 1) / 2, weights / 2
        u, v, w = np.meshgrid(self.u, self.u, self.u, indexing="ij")
        self.parts = np.stack(
            [u, (1 - u) * v, (1 - u) * (1 - v) * w, (1 - u) * (1 - v) * (1 - w)], -1
        )
        cube = self.weights[:, None, None] * self.weights[:, None] * self.weights
        self.volume = cube * (1 - u) ** 2 * (1 - v)


def simplex_learned_noise(data: Data) -> Found:
    spectra, y = data["spectra"], data["y"]

    def misfit(x: np.ndarray) -> np.ndarray:
        return np.sum((x @ spectra.T - y) ** 2, -1) / 2

    def solved(nodes: int) -> tuple[np.ndarray, np.ndarray, Posterior]:
        rule = SimplexRule(nodes)
        squares = misfit(rule.parts)

        def log_marginal(theta: np.ndarray) -> float:
            logs = -(squares - squares.min()) * np.exp(-2 * theta[0])
            total = np.sum(rule.volume * np.exp(logs))
            return float(np.log(total) - squares.min() * np.exp(-2 * theta[0]) - y.size * theta[0])

        theta, information = maximise(log_marginal, np.array([-2.0]))
        weights = rule.volume * np.exp(-(squares - squares.min()) * np.exp(-2 * theta[0]))
        weights /= weights.sum()
        mean = np.einsum("uvw,uvwk->k", weights, rule.parts)
        variance = np.einsum("uvw,uvwk->k", weights, (rule.parts - mean) ** 2)
        quantiles = np.array([marginal_quantiles(k, theta[0], nodes) for k in range(4)]).T
        return theta, information, Posterior(mean, np.sqrt(variance), quantiles)

    def marginal_quantiles(k: int, theta: float, nodes: int) -> np.ndarray:
        """Part k as u: its marginal density at Chebyshev points, integrated as a polynomial."""
        order = [k, *(i for i in range(4) if i != k)]
        rule = SimplexRule(nodes)
        plane = rule.weights[:, None] * rule.weights * (1 - rule.u[:, None])
        v, w = np.meshgrid(rule.u, rule.u, indexing="ij")
        rest = np.stack([v, (1 - v) * w, (1 - v) * (1 - w)], -1)

        def density(u: np.ndarray) -> np.ndarray:
            values = []
            for level in np.atleast_1d(u):
                x = np.empty((*v.shape, 4))
                x[..., order[0]], x[..., order[1:]] = level, (1 - level) * rest
                values.append((1 - level) ** 2 * np.sum(plane * np.exp(-misfit(x) * scale)))
            return np.array(values)

        scale = np.exp(-2 * theta)
        fit = np.polynomial.Chebyshev.interpolate(density, 3 * nodes, [0, 1])
        integral = fit.integ(lbnd=0)
        found = []
        for level in LEVELS:
            low, high = 0.0, 1.0
            for _ in range(60):
                middle = (low + high) / 2
                below = integral(middle) < level * integral(1.0)
                low, high = (middle, high) if below else (low, middle)
            found.append(low)
        return np.array(found)

    theta, information, posterior = solved(40)
    coarse, _, rough = solved(28)
    pairs = zip(posterior, rough, strict=True)
    errors = [np.maximum(np.max(np.abs(a - b)), 1e-9) for a, b in pairs]
    return Found(
        theta=theta,
        theta_error=np.maximum(np.abs(theta - coarse), 1e-9),
        theta_stderr=1 / np.sqrt(np.diag(information)),
        x_mean=posterior.mean,
        x_mean_error=errors[0],
        x_sd=posterior.sd,
        x_sd_error=errors[1],
        x_quantiles=posterior.quantiles,
        x_quantiles_error=errors[2],
        how="Quadrature over the simplex and Newton's method on the log marginal likelihood.",
        potential=lambda at, x: float(misfit(x) * np.exp(-2 * at[0]) + y.size * at[0]),
    )
