"""The chains of the sparse regressions on their own: at a known prior, or with weights drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.regression._chains import GlmChain, LinearChain, LinearData
from pipla.regression._design import design_of
from pipla.regression._mixture import favour_of, others_of
from pipla.regression._state import Prior, Tally

BURN_IN, SWEEPS, THIN = 300, 1200, 2


def prior_of_weights(variances: np.ndarray, size: int) -> np.ndarray:
    """The parameters of the Dirichlet prior that the sampler gives the weights."""
    shares = 1 / (1 + variances[1:])
    return np.append(1 + favour_of(size), others_of(size) * shares / shares.sum())


def with_prior(
    x: np.ndarray, y: np.ndarray, labels: bool, prior: Any, seed: int, drawn: bool
) -> np.ndarray:
    """Draws of the coefficients of standardised features; the noise is known unless `drawn`.

    Arguments:
        x, y: features and responses.
        labels: logistic instead of linear regression.
        prior: variances, weights and noise; with `drawn`, where weights and noise start.
        seed: of the random numbers.
        drawn: draw weights and noise with the coefficients.
    """
    n, size = x.shape
    ones, zeros = np.ones(n), np.zeros(size)
    design = design_of(x, ones, centre=True, scale=True)
    seeds = np.random.SeedSequence(seed)
    chain: Any
    if labels:
        columns, target = design.columns, y.astype(np.float64)
        chain = GlmChain(columns, target, ones, np.zeros(n), True, False, zeros, seeds)
    else:
        data = LinearData(design, y, ones, intercept=True)
        chain = LinearChain(data, zeros, prior.noise**2, seeds)
    mixture = Prior(prior.variances, prior.weights + 1e-300)
    for sweeps in (BURN_IN, SWEEPS):
        tally = Tally.empty(size, len(mixture.variances), sweeps, sweeps // THIN)
        chain.sweep(mixture, np.full(sweeps, -1.0 if drawn else 0.0), THIN, tally)
    return tally.draws.astype(np.float64)
