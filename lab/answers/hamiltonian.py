r"""Posteriors without exact conditionals: Hamiltonian Monte Carlo with the exact density.

A leapfrog trajectory preserves volume and is reversible for any force, so with the Metropolis test
on the true potential the chain is exact although the force jumps at kinks. The mass matrix is the
inverse covariance of short runs, and their acceptance sets the step size; then both are fixed.
"""

from __future__ import annotations

import abc

import numpy as np

from answers.base import Data, Found
from answers.louis import Sampler, answer


class Hamiltonian(Sampler):
    """Chains with a common mass matrix, step size and random number of leapfrog steps."""

    how = "Hamiltonian Monte Carlo with the exact density, Newton steps by Louis' identity."

    def __init__(self, size: int) -> None:
        self.root = np.eye(size) * 0.1  # of the covariance
        self.step_size, self.tuning, self.accepted = 0.3, True, []

    @abc.abstractmethod
    def gradient(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The gradient of the potential, or one of its subgradients."""

    def sweep(self, phi: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        p = rng.standard_normal(x.shape)
        step = self.step_size * rng.uniform(0.8, 1.2)
        before = self.potential(phi, x) + np.sum(p**2, 1) / 2
        new = x
        p = p - step / 2 * self.gradient(phi, new) @ self.root
        count = int(min(np.ceil(rng.uniform(0.5, 1.0) * 1.8 / self.step_size), 60))
        for k in range(count):
            new = new + step * p @ self.root.T
            share = 1.0 if k < count - 1 else 0.5
            p = p - share * step * self.gradient(phi, new) @ self.root
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = np.exp(before - self.potential(phi, new) - np.sum(p**2, 1) / 2)
        ratio = np.where(np.isnan(ratio), 0.0, ratio)  # a path that overflowed is rejected
        accept = rng.uniform(size=len(x)) < ratio
        if self.tuning:
            self.step_size *= np.exp(0.1 * (np.minimum(ratio, 1).mean() - 0.8))
        else:
            self.accepted.append(accept.mean())
        return np.where(accept[:, None], new, x)

    def adapt(self, draws: np.ndarray) -> None:
        covariance = np.atleast_2d(np.cov(draws.T.astype(float)))
        share = min(0.05, len(covariance) / len(draws))  # more would hide strong correlations
        shrunk = (1 - share) * covariance + share * np.diag(np.diag(covariance))
        self.root = np.linalg.cholesky(shrunk)

    def freeze(self) -> None:
        self.tuning = False

    def notes(self) -> str:
        return f"acceptance {np.mean(self.accepted):.2f}, step size {self.step_size:.2f}"


class StrengthTarget(Hamiltonian):
    """A likelihood of x and a penalty t R(x) of homogeneity 1 on `degrees` elements."""

    def __init__(self, size: int, degrees: int, rate: float) -> None:
        super().__init__(size)
        self.degrees, self.rates = degrees, np.array([rate])

    @abc.abstractmethod
    def likelihood(self, x: np.ndarray) -> np.ndarray:
        """Minus the log likelihood."""

    @abc.abstractmethod
    def likelihood_gradient(self, x: np.ndarray) -> np.ndarray:
        """Its gradient."""

    def penalty(self, x: np.ndarray) -> np.ndarray:
        """R, here of the first `degrees` elements."""
        return np.abs(x[:, : self.degrees]).sum(1)

    def subgradient(self, x: np.ndarray) -> np.ndarray:
        """Of the penalty."""
        return np.sign(x) * (np.arange(x.shape[1]) < self.degrees)

    def potential(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self.likelihood(x) + np.exp(phi[0]) * self.penalty(x) - self.degrees * phi[0]

    def gradient(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self.likelihood_gradient(x) + np.exp(phi[0]) * self.subgradient(x)

    def scores(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return (self.degrees - np.exp(phi[0]) * self.penalty(x))[:, None]

    def information(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.array([[np.exp(phi[0]) * self.penalty(x).mean()]])


class LogisticScale(StrengthTarget):
    """Coefficients with a learned Laplace scale, then an intercept with variance 100."""

    def __init__(self, data: Data) -> None:
        features = data["features"]
        super().__init__(features.shape[1] + 1, features.shape[1], -2.0)
        self.features = np.column_stack([features, np.ones(len(features))])
        self.labels = data["labels"]

    def likelihood(self, x: np.ndarray) -> np.ndarray:
        z = x @ self.features.T
        return np.sum(np.logaddexp(0, z) - self.labels * z, 1) + 0.005 * x[:, -1] ** 2

    def likelihood_gradient(self, x: np.ndarray) -> np.ndarray:
        out = (sigmoid(x @ self.features.T) - self.labels) @ self.features
        out[:, -1] += 0.01 * x[:, -1]
        return out


class PoissonScale(StrengthTarget):
    """Counts with log rates 1 + Hx."""

    def __init__(self, data: Data) -> None:
        self.features, self.counts = data["features"], data["counts"]
        super().__init__(self.features.shape[1], self.features.shape[1], -2.0)

    def likelihood(self, x: np.ndarray) -> np.ndarray:
        z = 1 + x @ self.features.T
        with np.errstate(over="ignore"):
            return np.sum(np.exp(z) - self.counts * z, 1)

    def likelihood_gradient(self, x: np.ndarray) -> np.ndarray:
        return (np.exp(np.minimum(1 + x @ self.features.T, 50)) - self.counts) @ self.features


class Nuclear(StrengthTarget):
    """Entries of a matrix in Gaussian noise, and the sum of its singular values."""

    def __init__(self, data: Data) -> None:
        self.y, self.noise = data["y"], float(data["noise"])
        self.seen = data.get("seen", np.ones(self.y.shape)).ravel()
        super().__init__(self.y.size, self.y.size, 1.0)

    def likelihood(self, x: np.ndarray) -> np.ndarray:
        return np.sum(self.seen * (x - self.y.ravel()) ** 2, 1) / (2 * self.noise**2)

    def likelihood_gradient(self, x: np.ndarray) -> np.ndarray:
        return self.seen * (x - self.y.ravel()) / self.noise**2

    def penalty(self, x: np.ndarray) -> np.ndarray:
        return np.linalg.svd(x.reshape(-1, *self.y.shape), compute_uv=False).sum(1)

    def subgradient(self, x: np.ndarray) -> np.ndarray:
        left, _, right = np.linalg.svd(x.reshape(-1, *self.y.shape), full_matrices=False)
        return (left @ right).reshape(x.shape)


class LogisticLocation(Hamiltonian):
    r"""Coefficients Laplace around theta.

    The kink moves with theta, so score and information are those of the non-centred form: with
    $x = \theta + z$ the prior of z is free of theta, and $s = -\sum_i \partial_i g_1(x)$.
    """

    def __init__(self, data: Data) -> None:
        self.features, self.labels = data["features"], data["labels"]
        super().__init__(self.features.shape[1])
        self.rates = np.ones(1)
        self.sums = self.features.sum(1)

    def potential(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        z = x @ self.features.T
        return np.sum(np.logaddexp(0, z) - self.labels * z, 1) + np.abs(x - phi[0]).sum(1)

    def gradient(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        misfit = sigmoid(x @ self.features.T) - self.labels
        return misfit @ self.features + np.sign(x - phi[0])

    def scores(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return -((sigmoid(x @ self.features.T) - self.labels) @ self.sums)[:, None]

    def information(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        p = sigmoid(x @ self.features.T)
        return np.array([[np.mean((p * (1 - p)) @ self.sums**2)]])

    def moved(self, phi: np.ndarray, old: np.ndarray, draws: np.ndarray) -> np.ndarray:
        return draws + (phi - old)


class LogisticUniform(Hamiltonian):
    r"""Coefficients uniform on $\pm e^\phi$, sampled as $u$ with $x = e^\phi \tanh(u/2)$.

    Score and information are those of $z = x e^{-\phi}$, uniform on $\pm 1$ whatever phi is:
    $s = -x \cdot \nabla g_1(x)$.
    """

    def __init__(self, data: Data) -> None:
        self.features, self.labels = data["features"], data["labels"]
        super().__init__(self.features.shape[1])
        self.root *= 10
        self.rates = np.ones(1)

    def x(self, phi: np.ndarray, u: np.ndarray) -> np.ndarray:
        return np.exp(phi[0]) * np.tanh(u / 2)

    def misfit(self, x: np.ndarray) -> np.ndarray:
        z = x @ self.features.T
        return np.sum(np.logaddexp(0, z) - self.labels * z, 1)

    def slope(self, x: np.ndarray) -> np.ndarray:
        return (sigmoid(x @ self.features.T) - self.labels) @ self.features

    def potential(self, phi: np.ndarray, u: np.ndarray) -> np.ndarray:
        # 1 - tanh² is 1 / cosh².
        jacobian = 2 * np.sum(np.logaddexp(u / 2, -u / 2), 1)
        return self.misfit(self.x(phi, u)) + jacobian

    def gradient(self, phi: np.ndarray, u: np.ndarray) -> np.ndarray:
        z = np.tanh(u / 2)
        return self.slope(self.x(phi, u)) * np.exp(phi[0]) * (1 - z**2) / 2 + z

    def scores(self, phi: np.ndarray, u: np.ndarray) -> np.ndarray:
        x = self.x(phi, u)
        return -np.sum(x * self.slope(x), 1)[:, None]

    def information(self, phi: np.ndarray, u: np.ndarray) -> np.ndarray:
        x = self.x(phi, u)
        predictors = x @ self.features.T
        p = sigmoid(predictors)
        curvature = np.sum(p * (1 - p) * predictors**2, 1)
        return np.array([[np.mean(curvature + np.sum(x * self.slope(x), 1))]])

    def moved(self, phi: np.ndarray, old: np.ndarray, draws: np.ndarray) -> np.ndarray:
        return self.x(phi, draws)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * z))


def started(
    target: Hamiltonian, phi: float, start: np.ndarray, chains: int, sweeps: int, **options
) -> Found:
    x = start + 0.01 * np.random.default_rng(1).standard_normal((chains, start.size))
    return answer(target, np.array([phi]), x, sweeps=sweeps, **options)


def breast_cancer(data: Data) -> Found:
    return started(LogisticScale(data), 0.0, np.zeros(31), 100, 2000)


def poisson_regression(data: Data) -> Found:
    return started(PoissonScale(data), 1.0, np.zeros(12), 200, 1500)


def logistic_location(data: Data) -> Found:
    return started(LogisticLocation(data), -1.0, np.zeros(15), 200, 1500)


def logistic_uniform(data: Data) -> Found:
    target = LogisticUniform(data)
    found = started(target, 0.0, np.zeros(10), 200, 1000)
    theta = np.exp(found.theta)

    def potential(at: np.ndarray, x: np.ndarray) -> float:
        return float(target.misfit(x[None])[0] + x.size * np.log(at[0]))

    # From the logarithm of the half-width to itself.
    return found._replace(
        theta=theta,
        theta_error=theta * found.theta_error,
        theta_stderr=theta * found.theta_stderr,
        potential=potential,
    )


def nuclear(data: Data) -> Found:
    chains, sweeps = (200, 1500) if data["y"].size <= 30 else (100, 2500)
    return started(Nuclear(data), 0.0, data["y"].ravel(), chains, sweeps)
