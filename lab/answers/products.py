"""The log densities of the problems whose posteriors are products or in closed form."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from answers.base import LEVELS, Data, Found
from answers.quadrature import Panels, Product, answer


def around(centre: np.ndarray, width: float, kink: float | np.ndarray) -> np.ndarray:
    """Segments from `width` below the centres to `width` above, cut at the kink."""
    low = np.minimum(centre, kink) - width
    high = np.maximum(centre, kink) + width
    return np.stack([low, np.broadcast_to(kink, centre.shape), high], 1)


def laplace_location(data: Data) -> Found:
    y, noise = data["y"][:, None], float(data["noise"])

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        return -((x - y) ** 2) / (2 * noise**2) - np.abs(x - theta[0])

    # The tilted Gaussian is at most noise² away from y: 12 of its standard deviations beyond that.
    width = 12 * noise + noise**2
    product = Product(log_density, lambda theta: around(y[:, 0], width, theta[0]))
    return answer(product, [float(np.median(y))])


def laplace_location_binomial(data: Data) -> Found:
    trials, successes = data["trials"][:, None], data["successes"][:, None]

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        return successes * x - trials * np.logaddexp(0, x) - np.abs(x - theta[0])

    zero = np.zeros(len(trials))
    return answer(Product(log_density, lambda theta: around(zero, 45.0, theta[0])), [0.0], 100)


def elastic_net_location(data: Data) -> Found:
    y, noise = data["y"][:, None], float(data["noise"])

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        return -((theta[0] + x - y) ** 2) / (2 * noise**2) - np.abs(x) - x**2 / 4

    product = Product(log_density, lambda theta: around(y[:, 0] - theta[0], 8.0, 0.0))
    return answer(product, [float(np.mean(y))])


def gaussian_location(data: Data) -> Found:
    y, noise = data["y"], float(data["noise"])
    theta = y.mean()
    mean, sd = (y + theta * noise**2) / (1 + noise**2), np.sqrt(noise**2 / (1 + noise**2))
    exact = np.array(1e-15)
    return Found(
        theta=np.array([theta]),
        theta_error=np.array([1e-15]),
        theta_stderr=np.array([np.sqrt((1 + noise**2) / y.size)]),
        x_mean=mean,
        x_mean_error=exact,
        x_sd=np.full(y.size, sd),
        x_sd_error=exact,
        x_quantiles=mean + sd * norm.ppf(LEVELS)[:, None],
        x_quantiles_error=exact,
        how="Closed form.",
        potential=lambda at, x: float(
            np.sum((x - y) ** 2) / (2 * noise**2) + np.sum((x - at[0]) ** 2) / 2
        ),
    )


def laplace_scale(data: Data) -> Found:
    return answer(_noisy_laplace(data["y"][:, None], float(data["noise"])), [0.0])


def _noisy_laplace(y: np.ndarray, noise: float) -> Product:
    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        return -((x - y) ** 2) / (2 * noise**2) - np.exp(-2 * theta[0]) * np.abs(x) - 2 * theta[0]

    def ends(theta: np.ndarray) -> np.ndarray:
        shift = min(noise**2 * np.exp(-2 * theta[0]), 60.0)
        return around(y[:, 0], 12 * noise + shift, 0.0)

    return Product(log_density, ends)


def replicated(data: Data) -> tuple[np.ndarray, np.ndarray, int]:
    """Means, sums of squares around them, and the number of replicates (the same for all)."""
    y = data["y"].reshape(int(data["places"].max()) + 1, -1)
    assert np.array_equal(data["places"], np.repeat(np.arange(len(y)), y.shape[1]))
    mean = y.mean(1, keepdims=True)
    return mean, np.sum((y - mean) ** 2, 1, keepdims=True), y.shape[1]


def laplace_scale_learned_noise(data: Data) -> Found:
    mean, square, count = replicated(data)

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        noise, prior = theta
        misfit = (count * (x - mean) ** 2 + square) / 2 * np.exp(-2 * noise) + count * noise
        return -misfit - np.exp(-2 * prior) * np.abs(x) - 2 * prior

    def ends(theta: np.ndarray) -> np.ndarray:
        sd = np.exp(theta[0]) / np.sqrt(count)
        return around(mean[:, 0], 12 * sd + min(sd**2 * np.exp(-2 * theta[1]), 60.0), 0.0)

    return answer(Product(log_density, ends), [-0.3, 0.0])


def laplace_scale_poisson(data: Data) -> Found:
    counts = data["counts"][:, None]

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        likelihood = counts * (1 + x) - np.exp(1 + x)
        return likelihood - np.exp(-2 * theta[0]) * np.abs(x) - 2 * theta[0]

    def ends(theta: np.ndarray) -> np.ndarray:
        # Left of the mode the Laplace prior alone ends the integral: 40 of its scales.
        low = -1 - 40 * min(np.exp(2 * theta[0]), 10.0)
        cuts = np.array([low, -4.0, 0.0, 6.0])
        cuts[1] = max(cuts[1], low / 2)
        return np.broadcast_to(cuts, (len(counts), 4))

    return answer(Product(log_density, ends), [-0.2], 100)


def l1_student_noise(data: Data) -> Found:
    y = data["y"]

    def log_density(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        total = -np.abs(x) - y.shape[1] * theta[0]
        for column in y.T:
            scaled = (x - column[:, None]) * np.exp(-theta[0])
            total = total - 2.5 * np.log1p(scaled**2 / 4)
        return total

    # The tails are e^{-|x|} times a power: 60 are enough, with more panels near the data.
    cuts = np.array([-60.0, -12.0, 0.0, 12.0, 60.0])
    product = Product(log_density, lambda _: np.broadcast_to(cuts, (len(y), 5)))
    return answer(product, [-0.5], 120)


def laplace_scale_no_noise(data: Data) -> Found:
    y = data["y"]
    scale = np.mean(np.abs(y))
    best = 0.5 * np.log(scale)

    # The claim itself: with the best scale for each noise, the likelihood falls with the noise.
    def profile(noise: float) -> float:
        def minus(prior: float) -> float:
            product = _noisy_laplace(y[:, None], noise)
            return -Panels(product, np.array([prior]), 40).log_marginal()

        constant = y.size * np.log(2 * noise * np.sqrt(2 * np.pi))
        return -minimize_scalar(minus, bounds=(-3, 3), method="bounded").fun - constant

    levels = [profile(noise) for noise in (0.01, 0.03, 0.1, 0.2, 0.5, 1.0)]
    limit = -y.size * (np.log(2 * scale) + 1)
    assert np.all(np.diff([limit, *levels]) < 0), (limit, levels)
    exact = np.array(1e-15)
    return Found(
        theta=np.array([-np.inf, best]),
        theta_error=np.array([0.0, 1e-15]),
        theta_stderr=np.array([np.nan, 0.5 / np.sqrt(y.size)]),
        x_mean=y,
        x_mean_error=exact,
        x_sd=np.zeros(y.size),
        x_sd_error=exact,
        x_quantiles=np.broadcast_to(y, (3, y.size)),
        x_quantiles_error=exact,
        how="Closed form in the limit of no noise; quadrature shows that the likelihood rises.",
        potential=lambda at, x: float(
            np.sum((x - y) ** 2) / 2 * np.exp(-2 * at[0])
            + y.size * at[0]
            + np.exp(-2 * at[1]) * np.sum(np.abs(x))
            + 2 * y.size * at[1]
        ),
        identifiable=False,
    )
