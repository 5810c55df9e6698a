r"""Linear Gaussian observations and priors $e^{-t |D_g x|_2}$: an exact Gibbs sampler.

A density $e^{-t|u|_2}$ is a scale mixture of normals: given $u = D_g x$ the inverse variance is
inverse Gaussian with mean $t/|u|$ and shape $t^2$, and given all variances x is normal (Park and
Casella 2008). That covers the lasso ($D$ the identity), groups, and total variation (differences).
x is drawn by solving for perturbed data (Papandreou and Yuille 2010), or in the space of the
observations where they are fewer than the coefficients (Bhattacharya and others 2016).
"""

from __future__ import annotations

import numpy as np

from answers.base import Data, Found
from answers.louis import Sampler, answer, run


class ScaleMixture(Sampler):
    """The chains of one problem.

    Arguments:
        features: H, (observations, dimension).
        y: the observations.
        differences: D, (differences, dimension); the identity by default.
        group: the group of each difference; each its own by default.
        part: the part of the prior (the strength) of each group; one part by default.
        degrees: the exponent of each strength; empty if the strengths are fixed.
        noise: sigma, or `None` if it is learned.
        strengths: fixed ones.
        ridge: the weight of |x|²/2.
        rates: theta is the logarithm of the strength divided by it.
    """

    how = "Scale-mixture Gibbs sampler with Newton steps by Louis' identity."

    def __init__(
        self, features, y, *, differences=None, group=None, part=None, degrees=(), noise=None,
        strengths=None, ridge=0.0, rates=(),
    ):  # fmt: skip
        self.features, self.y, self.ridge = features, y, ridge
        size = features.shape[1]
        self.plain = differences is None  # D is the identity
        self.differences = np.eye(size) if differences is None else differences
        if not self.plain:  # D'WD is a sum over differences of outer products: one matrix product
            self.outer = np.einsum("ei,ej->eij", differences, differences).reshape(-1, size**2)
        count = len(self.differences)
        group = np.arange(count) if group is None else group
        self.members = np.eye(group.max() + 1)[group]  # (differences, groups)
        part = np.zeros(self.members.shape[1], int) if part is None else part
        self.parts = np.eye(part.max() + 1)[part]  # (groups, parts)
        self.degrees = np.array(degrees, float)
        self.noise, self.strengths = noise, strengths
        self.rates = np.array(([1.0] if noise is None else []) + list(rates))
        self.gram, self.back = features.T @ features, features.T @ y

    def split(self, phi: np.ndarray) -> tuple[float, np.ndarray]:
        """The noise and the strengths."""
        noise = np.exp(phi[0]) if self.noise is None else self.noise
        start = 1 if self.noise is None else 0
        return noise, np.exp(phi[start:]) if self.strengths is None else self.strengths

    def lengths(self, x: np.ndarray) -> np.ndarray:
        """|D_g x|, (chains, groups)."""
        return np.sqrt((x @ self.differences.T) ** 2 @ self.members)

    def sweep(self, phi: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise, strengths = self.split(phi)
        strength = self.parts @ strengths
        inverse = inverse_gaussian(strength / np.maximum(self.lengths(x), 1e-9), strength**2, rng)
        weights = inverse @ self.members.T
        if self.plain and self.ridge == 0 and len(self.y) < x.shape[1]:
            return self._few_observations(weights, noise, rng)
        return self._few_coefficients(weights, noise, rng)

    def _few_coefficients(self, weights, noise, rng):
        chains, size = len(weights), self.gram.shape[0]
        precision = np.broadcast_to(self.gram / noise**2, (chains, size, size)).copy()
        kicks = np.sqrt(weights) * rng.standard_normal(weights.shape)
        diagonal = np.arange(size)
        if self.plain:
            precision[:, diagonal, diagonal] += weights
        else:
            precision += (weights @ self.outer).reshape(precision.shape)
            kicks = kicks @ self.differences
        precision[:, diagonal, diagonal] += self.ridge
        kicks += np.sqrt(self.ridge) * rng.standard_normal((chains, size))
        target = self.back / noise**2 + kicks
        target += rng.standard_normal((chains, len(self.y))) @ self.features / noise
        return np.linalg.solve(precision, target[..., None])[..., 0]

    def _few_observations(self, weights, noise, rng):
        scaled = self.features / noise
        prior = rng.standard_normal(weights.shape) / np.sqrt(weights)
        missing = (
            self.y / noise - prior @ scaled.T - rng.standard_normal((len(weights), len(self.y)))
        )
        covariance = (scaled / weights[:, None, :]) @ scaled.T + np.eye(len(self.y))
        return prior + np.linalg.solve(covariance, missing[..., None])[..., 0] @ scaled / weights

    def _squares(self, x: np.ndarray) -> np.ndarray:
        return np.sum((x @ self.features.T - self.y) ** 2, 1)

    def scores(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        noise, strengths = self.split(phi)
        columns = []
        if self.noise is None:
            columns.append((self._squares(x) / noise**2 - len(self.y))[:, None])
        if self.strengths is None:
            columns.append(self.degrees - strengths * (self.lengths(x) @ self.parts))
        return np.concatenate(columns, 1)

    def information(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        noise, strengths = self.split(phi)
        diagonal = []
        if self.noise is None:
            diagonal.append([2 * self._squares(x).mean() / noise**2])
        if self.strengths is None:
            diagonal.append(strengths * (self.lengths(x) @ self.parts).mean(0))
        return np.diag(np.concatenate(diagonal))

    def potential(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        noise, strengths = self.split(phi)
        value = self._squares(x) / (2 * noise**2) + self.ridge * np.sum(x**2, 1) / 2
        value = value + self.lengths(x) @ self.parts @ strengths
        if self.noise is None:
            value = value + len(self.y) * np.log(noise)
        return value - self.degrees @ np.log(strengths) if self.strengths is None else value


def inverse_gaussian(mean: np.ndarray, shape: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Michael, Schucany and Haas (1976), the smaller root as a quotient: nothing cancels."""
    half = mean * rng.standard_normal(mean.shape) ** 2 / (2 * shape)
    root = mean / (1 + half + np.sqrt(half * (half + 2)))
    return np.where(
        rng.uniform(size=mean.shape) * (mean + root) <= mean, root, mean * (mean / root)
    )


def started(sampler: ScaleMixture, phi: list[float], chains: int, **options) -> Found:
    x = 0.1 * np.random.default_rng(1).standard_normal((chains, sampler.gram.shape[0]))
    return answer(sampler, np.array(phi), x, **options)


def lasso(data: Data) -> Found:
    features, y, noise = data["features"], data["y"], float(data["noise"])
    sampler = ScaleMixture(features, y, degrees=[features.shape[1]], noise=noise, rates=[-2.0])
    return started(sampler, [0.0], 200, sweeps=3000, thin=4)


def lasso_wide(data: Data) -> Found:
    features, y, noise = data["features"], data["y"], float(data["noise"])
    sampler = ScaleMixture(features, y, degrees=[features.shape[1]], noise=noise, rates=[-2.0])
    return started(sampler, [0.0], 40, sweeps=4000, thin=4)


def diabetes(data: Data) -> Found:
    sampler = ScaleMixture(data["features"], data["y"], degrees=[10], rates=[-2.0])
    return started(sampler, [0.0, 0.0], 200, sweeps=3000, thin=4)


def l1_learned_noise(data: Data) -> Found:
    strengths = np.array([float(data["weight"])])
    sampler = ScaleMixture(data["features"], data["y"], strengths=strengths)
    return started(sampler, [0.0], 200, sweeps=3000, thin=4)


def elastic_net_learned_noise(data: Data) -> Found:
    strengths, ridge = np.array([float(data["l1"])]), float(data["l2"])
    sampler = ScaleMixture(data["features"], data["y"], strengths=strengths, ridge=ridge)
    return started(sampler, [0.0], 200, sweeps=3000, thin=4)


def group_lasso(data: Data) -> Found:
    sampler = ScaleMixture(
        data["features"], data["y"], group=np.repeat(np.arange(10), 3), degrees=[30],
        noise=float(data["noise"]), rates=[1.0],
    )  # fmt: skip
    return started(sampler, [0.0], 200, sweeps=2000, thin=2)


def two_scales(data: Data) -> Found:
    features = np.concatenate([data["main"], data["pairs"]], 1)
    part = np.repeat([0, 1], [data["main"].shape[1], data["pairs"].shape[1]])
    sampler = ScaleMixture(
        features, data["y"], part=part, degrees=np.bincount(part), noise=1.0, rates=[-2.0, -2.0]
    )
    return started(sampler, [0.0, 0.0], 200, sweeps=2000, thin=2)


def differences(shape: tuple[int, ...]) -> np.ndarray:
    """All differences of neighbours along each axis, (differences, elements)."""
    places = np.arange(np.prod(shape)).reshape(shape)
    rows = []
    for axis in range(len(shape)):
        ahead = np.take(places, range(1, shape[axis]), axis).ravel()
        behind = np.take(places, range(shape[axis] - 1), axis).ravel()
        rows.append(np.eye(places.size)[ahead] - np.eye(places.size)[behind])
    return np.concatenate(rows)


def total_variation(data: Data) -> Found:
    """Observed as it is, blurred or in part; the noise known or learned."""
    y = data["y"]
    features = np.eye(y.size)
    if "kernel" in data:
        features = np.array([circular(row.reshape(y.shape), data["kernel"]) for row in features]).T
    if "seen" in data:
        features = features[data["seen"].ravel() > 0]
    observed = y.ravel()[data["seen"].ravel() > 0] if "seen" in data else y.ravel()
    noise = float(data["noise"]) if "noise" in data else None
    sampler = ScaleMixture(
        features, observed, differences=differences(y.shape), degrees=[y.size - 1], noise=noise,
        rates=[1.0],
    )  # fmt: skip
    return started(sampler, [0.0] if noise else [0.0, 0.0], 100, sweeps=2500, thin=2)


def total_variation_without_noise(data: Data) -> Found:
    """The limit of no noise, where x = y, after a check that the likelihood rises on the way to it.

    With the best strength at each sigma, the derivative by log sigma is E|x - y|²/sigma² - m.
    """
    y = data["y"].ravel()
    edges = differences(data["y"].shape)
    total = np.abs(edges @ y).sum()
    strength = (y.size - 1) / total
    slopes = []
    for noise in np.geomspace(0.05, 6.4, 8):
        sampler = ScaleMixture(
            np.eye(y.size), y, differences=edges, degrees=[y.size - 1], noise=noise, rates=[1.0]
        )
        rng, phi = np.random.default_rng(0), np.log([strength])
        x = y + 0.01 * rng.standard_normal((40, y.size))
        for _ in range(12):
            part = run(sampler, phi, x, 40, 1, rng)
            x, phi = part.x, phi + part.scores[10:].mean((0, 1)) / part.information[0]
        part = run(sampler, phi, x, 200, 1, rng)
        squares = np.sum((part.draws - y) ** 2, 2).mean(0) / noise**2 - y.size
        slopes.append((squares.mean(), squares.std() / np.sqrt(len(squares))))
    assert all(slope + 6 * error < 0 for slope, error in slopes), slopes
    exact = np.array(1e-15)
    free = ScaleMixture(np.eye(y.size), y, differences=edges, degrees=[y.size - 1], rates=[1.0])
    return Found(
        theta=np.array([-np.inf, np.log(strength)]),
        theta_error=np.array([0.0, 1e-15]),
        theta_stderr=np.array([np.nan, 1 / np.sqrt(y.size - 1)]),
        x_mean=y,
        x_mean_error=exact,
        x_sd=np.zeros(y.size),
        x_sd_error=exact,
        x_quantiles=np.broadcast_to(y, (3, y.size)),
        x_quantiles_error=exact,
        how="Closed form in the limit of no noise; Gibbs runs show that the likelihood rises.",
        potential=lambda at, x: float(free.potential(at, x[None])[0]),
        notes=f"slopes {[round(float(slope), 1) for slope, _ in slopes]}",
        identifiable=False,
    )


def circular(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution with a centred kernel of odd widths, wrapping around, as a vector."""
    reach = kernel.shape[0] // 2
    total = np.zeros_like(x)
    for i, row in enumerate(kernel):
        for j, weight in enumerate(row):
            total += weight * np.roll(x, (i - reach, j - reach), (0, 1))
    return total.ravel()
