r"""Completion with the paper's prior, $e^{-e^\theta |x|_*}$, whose strength is learned.

The noise is not identifiable under this prior (E17): the marginal likelihood rises as it goes to
0. It is given, or chosen by the error at held-out entries; it is never called an estimate. Samples
have full rank, and their intervals are far too wide for a matrix that has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import RPL, Algorithm
from pipla.completion._observations import Observed
from pipla.completion._running import saved_steps, thinning, with_draws
from pipla.completion.draws import MatrixDraws
from pipla.engine.hooks import Callback
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.models.likelihoods import Gaussian
from pipla.models.model import Model
from pipla.operators import Select
from pipla.prox import NuclearStrength

#: The step, in units of the time scale of a nuclear norm, $\max(n, m) e^{-2\theta}$.
STEP = 0.046
#: The most draws that are kept.
MOST_DRAWS = 100
#: Noises that are tried on held-out entries, relative to the spread of the observations.
CANDIDATES = (0.5, 0.25, 0.12, 0.06, 0.03)
HELD_OUT, TRIAL_STEPS = 0.15, 60


class Fitted(NamedTuple):
    """Draws from the posterior, the strength and its Monte-Carlo error, the noise of the run."""

    draws: MatrixDraws
    rank: int
    strength: float
    strength_mcse: float
    noise: float
    result: Result


def nuclear_model(observed: Observed, noise: float | None) -> Model:
    """Observed entries with Gaussian noise, a nuclear norm of learned strength.

    With `noise=None` theta is a dict of `"strength"` and `"noise"`, both as logarithms.
    """
    select = Select((observed.rows, observed.columns), observed.shape)
    term = NuclearStrength(normalised=True)
    if noise is not None:
        return Model(Gaussian(select, observed.values, noise), term)
    likelihood = Gaussian(select, observed.values, None, theta="noise")
    return Model(likelihood, term.on(theta="strength"))


def recommended() -> Algorithm:
    """The recommended scheme: its first steps, ten times as long, reach the posterior."""
    return RPL(STEP)


def zero_filled(observed: Observed) -> np.ndarray:
    """The observations, averaged where repeated, and 0 elsewhere."""
    return np.nan_to_num(observed.averaged())


def fit_nuclear(
    observed: Observed,
    noise: float | None,
    *,
    num_steps: int,
    num_particles: int,
    seed: int,
    callbacks: Sequence[Callback],
    progress: bool | None,
) -> Fitted:
    """Sample the matrix and learn the strength; the noise is `noise`, or held out."""
    if not float(observed.values.std()) + abs(float(observed.values.mean())) > 0:
        raise ValueError("observed is 0 everywhere: a nuclear norm has no strength there.")
    if noise is None:
        noise = _held_out_noise(observed, num_particles, seed)
    result = _run(observed, noise, num_steps, num_particles, seed, callbacks, progress)
    values = np.asarray(result.saved_particles)
    values = values[saved_steps(result)[1]].reshape(-1, *observed.shape)
    mean = np.asarray(result.x_mean)
    draws = MatrixDraws(np.full(len(values), noise), values, mean)
    # Singular values of the noise alone reach this far.
    edge = noise * (np.sqrt(observed.shape[0]) + np.sqrt(observed.shape[1]))
    rank = int(np.sum(np.linalg.svd(mean, compute_uv=False) > edge))
    strength = float(np.exp(result.theta))
    return Fitted(draws, rank, strength, strength * float(result.theta_mcse), noise, result)


def _held_out_noise(observed: Observed, num_particles: int, seed: int) -> float:
    """The noise of the smallest error at entries that the run did not see."""
    spread = float(observed.values.std()) or abs(float(observed.values.mean()))
    hidden = np.random.default_rng(seed).random(len(observed.values)) < HELD_OUT
    if hidden.all() or not hidden.any():
        return CANDIDATES[2] * spread
    shown, test = observed.some(~hidden), observed.some(hidden)
    errors = []
    for share in CANDIDATES:
        result = _run(shown, share * spread, TRIAL_STEPS, num_particles, seed, (), False)
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        found = np.asarray(result.x_mean)[test.rows, test.columns]
        errors.append(float(np.mean((found - test.values) ** 2)))
    return CANDIDATES[int(np.argmin(errors))] * spread


def _run(
    observed: Observed,
    noise: float,
    num_steps: int,
    num_particles: int,
    seed: int,
    callbacks: Sequence[Callback],
    progress: bool | None,
) -> Result:
    start = jnp.asarray(zero_filled(observed), jnp.result_type(float))
    every = thinning(num_steps - num_steps // 2, num_particles, MOST_DRAWS)
    result = run(
        nuclear_model(observed, noise),
        recommended(),
        theta=jnp.zeros((), start.dtype),
        particles=jnp.broadcast_to(start, (num_particles, *start.shape)),
        num_steps=num_steps,
        burn_in=num_steps // 2,
        key=jax.random.key(seed),
        save=Save(moments_every=1, particles_every=every),
        callbacks=callbacks,
        progress=progress,
        check=False,
    )
    return with_draws(result)
