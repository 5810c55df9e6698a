r"""The maximiser of a marginal likelihood by Fisher's and Louis' identities and exact sampling.

For parameters $\phi$ in which $\log p_\phi(x, y)$ is smooth, Fisher's identity makes the score the
posterior mean of $s(x) = \partial_\phi \log p_\phi(x, y)$, and Louis' the observed information
$J = E[-\partial^2_\phi \log p_\phi(x, y)] - \mathrm{Cov}(s(x))$. Short runs with Newton steps
get near the maximiser; a long run of many independent chains at fixed $\phi_0$ ends it with
$\hat\phi = \phi_0 + J^{-1} E[s]$, and reweights its draws from $\phi_0$ to $\hat\phi$.
Monte-Carlo errors are those between groups of chains.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import numpy as np

from answers.base import LEVELS, Found, Posterior

#: Groups of chains from which Monte-Carlo errors are taken.
GROUPS = 20


class Sampler(abc.ABC):
    """Many chains at once: X has shape (chains, dimension)."""

    how: str
    #: theta is phi divided by this.
    rates: np.ndarray

    @abc.abstractmethod
    def sweep(self, phi: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One transition of every chain that keeps the posterior at phi."""

    @abc.abstractmethod
    def scores(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The derivatives of the complete log likelihood, (chains, parameters)."""

    @abc.abstractmethod
    def information(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Minus its second derivatives, averaged over the chains."""

    @abc.abstractmethod
    def potential(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Minus the complete log likelihood, up to a constant."""

    def adapt(self, draws: np.ndarray) -> None:
        """Tune the transition to draws of a short run, (draws, dimension)."""
        return

    def freeze(self) -> None:
        """End all tuning."""
        return

    def moved(self, phi: np.ndarray, old: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """x at phi for chains at the old phi: as they are, unless the form is non-centred."""
        return draws

    def notes(self) -> str:
        """What to print of the run."""
        return ""


class Run(NamedTuple):
    """Draws (sweeps, chains, dimension), scores (sweeps, chains, parameters), and the end."""

    draws: np.ndarray
    scores: np.ndarray
    information: np.ndarray
    x: np.ndarray


def run(
    sampler: Sampler,
    phi: np.ndarray,
    x: np.ndarray,
    sweeps: int,
    thin: int,
    rng: np.random.Generator,
) -> Run:
    draws, scores, information = [], [], []
    for k in range(sweeps):
        x = sampler.sweep(phi, x, rng)
        if k % thin == thin - 1:
            draws.append(x.astype(np.float32))
            scores.append(sampler.scores(phi, x))
            information.append(sampler.information(phi, x))
    return Run(np.array(draws), np.array(scores), np.mean(information, 0), x)


def observed(part: Run) -> np.ndarray:
    """Louis' information."""
    flat = part.scores.reshape(-1, part.scores.shape[-1])
    return part.information - np.atleast_2d(np.cov(flat.T))


def answer(
    sampler: Sampler,
    phi: np.ndarray,
    x: np.ndarray,
    *,
    sweeps: int,
    thin: int = 1,
    rounds: int = 10,
    shortest: int = 30,
    seed: int = 0,
) -> Found:
    """Rounds of growing length that look for phi, then `sweeps` at the phi that they found."""
    rng = np.random.default_rng(seed)
    phi = np.array(phi, float)
    for k in range(rounds):
        length = int(shortest * 1.25**k)
        for _ in range(length // 2):
            x = sampler.sweep(phi, x, rng)
        part = run(sampler, phi, x, length, max(1, length // 50), rng)
        x = part.x
        sampler.adapt(part.draws.reshape(-1, x.shape[1]))
        curvature, score = observed(part), part.scores.mean((0, 1))
        # Where Louis' information is not yet safely positive, an EM step.
        ratios = np.linalg.eigvals(np.linalg.solve(part.information, curvature)).real
        best = curvature if np.all(ratios > 0.02) else part.information
        phi = phi + np.clip(np.linalg.solve(best, score), -1, 1)
    sampler.freeze()
    final = run(sampler, phi, x, sweeps, thin, rng)
    curvature = observed(final)
    assert np.all(np.linalg.eigvalsh(curvature) > 0), curvature
    shift = np.linalg.solve(curvature, final.scores.mean((0, 1)))
    groups = np.array_split(np.arange(len(x)), GROUPS)
    shifts = [np.linalg.solve(curvature, final.scores[:, g].mean((0, 1))) for g in groups]
    stderr = np.sqrt(np.diag(np.linalg.inv(curvature)))
    weights = np.exp(final.scores @ shift - np.max(final.scores @ shift))
    draws = sampler.moved(phi + shift, phi, final.draws)
    whole = moments(draws, weights)
    parts = [moments(draws[:, g], weights[:, g]) for g in groups]

    def error(values: list[np.ndarray]) -> np.ndarray:
        return np.std(values, 0, ddof=1) / np.sqrt(GROUPS)

    scale = np.abs(1 / sampler.rates)
    effective = whole.sd**2 / error([part.mean for part in parts]) ** 2
    return Found(
        theta=(phi + shift) / sampler.rates,
        theta_error=error(shifts) * scale,
        theta_stderr=stderr * scale,
        x_mean=whole.mean,
        x_mean_error=error([part.mean for part in parts]),
        x_sd=whole.sd,
        x_sd_error=error([part.sd for part in parts]),
        x_quantiles=whole.quantiles,
        x_quantiles_error=error([part.quantiles for part in parts]),
        how=sampler.how,
        potential=lambda at, x: float(sampler.potential(at * sampler.rates, x[None])[0]),
        notes=(
            f"last shift {shift / stderr} of the standard error, {effective.min():.0f} effective "
            f"draws of {weights.size}, {sampler.notes()}"
        ),
    )


def moments(draws: np.ndarray, weights: np.ndarray) -> Posterior:
    """Weighted mean, standard deviation and quantiles of draws (sweeps, chains, dimension)."""
    flat = draws.reshape(-1, draws.shape[-1])
    share = weights.ravel() / weights.sum()
    mean = share @ flat.astype(np.float64)
    sd = np.sqrt(share @ (flat - mean) ** 2)
    quantiles = np.empty((len(LEVELS), flat.shape[1]))
    for k in range(flat.shape[1]):
        order = np.argsort(flat[:, k])
        below = np.cumsum(share[order]) - share[order] / 2
        quantiles[:, k] = np.interp(LEVELS, below, flat[order, k])
    return Posterior(mean, sd, quantiles)
