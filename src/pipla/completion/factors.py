r"""Completion with two factors whose column scales, and the noise, are learned.

The chain starts at a truncated singular value decomposition of what is observed. `BlockGibbs`
draws the factors and moves theta by stochastic EM.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import BlockGibbs
from pipla.completion._doubts import moving, near_the_limit, other_noise, selection
from pipla.completion._observations import Observed
from pipla.completion._running import ended_early, saved_steps, thinning, with_draws
from pipla.completion.draws import FactorDraws
from pipla.diagnostics import ConvergenceWarning, Finding
from pipla.engine.hooks import Callback
from pipla.engine.result import Result
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.models.likelihoods import Factors
from pipla.models.model import Model

#: The most draws that are kept.
MOST_DRAWS = 200
#: The number of columns that is tried first, and the largest.
FIRST_RANK, LARGEST_RANK = 10, 40
#: The steps before the non-centred moves begin, in which weak columns come out of the noise.
PATIENCE = 10
#: A column counts if it is this much stronger than the detection limit, which noise alone exceeds
#: at times in small matrices. The other columns are counted as noise.
MARGIN = 3.0
#: Up to this many entries, the whole decomposition is cheaper than an iterative one.
DENSE_UP_TO = 400 * 400


class Fitted(NamedTuple):
    r"""Draws from the posterior, in the units of the observations.

    Attributes:
        draws: of the factors.
        rank: the number of columns well above the detection limit.
        noise, noise_mcse: the standard deviation of what the columns that count leave over, and
            its Monte-Carlo error if it was sampled.
        strength: $\sigma^2/\tau_k^2$ of the columns that count, smallest first.
        row_scales: the prior standard deviations of the columns of the row factor, and of its
            bias, in every draw.
        result: the run, in units in which the observations have mean 0 and variance 1.
        findings: what speaks against the answer.
    """

    draws: FactorDraws
    rank: int
    noise: float
    noise_mcse: float | None
    strength: np.ndarray
    row_scales: np.ndarray
    result: Result | None
    findings: tuple[Finding, ...]


def fit_factors(
    observed: Observed,
    *,
    max_rank: int | None,
    biases: bool,
    num_steps: int,
    num_particles: int,
    seed: int,
    callbacks: Sequence[Callback],
    progress: bool | None,
) -> Fitted:
    """Draw the factors; without `max_rank`, with twice as many columns while most are needed."""
    center, spread = float(observed.values.mean()), float(observed.values.std())
    if min(observed.shape) == 1 or spread <= 1e-12 * abs(center) or len(observed.values) < 3:
        return _mean_only(observed, center, spread)
    limit = min(observed.shape) - 1
    rank = min(FIRST_RANK if max_rank is None else max_rank, limit)
    standard = observed._replace(values=(observed.values - center) / spread)
    likelihood = Factors(*standard[:3], standard.shape, biases=biases)
    while True:
        theta, x = start(standard, rank, biases)
        result = _run(likelihood, theta, x, num_steps, num_particles, seed, callbacks, progress)
        fitted = _in_units(result, likelihood, center, spread)
        full = fitted.rank > 0.7 * rank
        enough = max_rank is not None or not full or rank >= min(limit, LARGEST_RANK)
        if enough or ended_early(result):
            break
        rank = min(2 * rank, limit, LARGEST_RANK)
    if fitted.rank == rank and rank < limit:
        sentence = f"all {rank} columns of the factors are needed"
        short = Finding("the rank", sentence, "raise max_rank (--max-rank)")
        fitted = fitted._replace(findings=(*fitted.findings, short))
    residual = observed.values - fitted.draws.mean_of(observed.rows, observed.columns)
    found = [*fitted.findings, *other_noise(observed, residual, fitted.noise, fitted.rank)]
    if fitted.rank:
        found += selection(observed, fitted.draws.mean())
    return fitted._replace(findings=tuple(found))


def _run(
    likelihood: Factors,
    theta: dict[str, Any],
    x: dict[str, Any],
    num_steps: int,
    num_particles: int,
    seed: int,
    callbacks: Sequence[Callback],
    progress: bool | None,
) -> Result:
    with warnings.catch_warnings():
        # Scales of columns that are not needed fall for ever; `moving` judges the others.
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = run(
            Model(likelihood),
            BlockGibbs().with_numbers(interweave_after=float(PATIENCE)),
            theta=theta,
            particles=jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (num_particles, *leaf.shape)), x
            ),
            num_steps=num_steps,
            burn_in=num_steps // 3,
            key=jax.random.key(seed),
            save=Save(
                moments_every=None,
                particles_every=thinning(num_steps - num_steps // 3, num_particles, MOST_DRAWS),
            ),
            callbacks=callbacks,
            progress=progress,
            check=False,
        )
    return with_draws(result)


# Where the chain starts. #


def start(observed: Observed, rank: int, biases: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Shrunk means of rows and columns, and the leading singular vectors of the rest.

    The noise starts at all that the means leave over. Columns that the data need grow out of it;
    from a small noise, superfluous ones would explain it first, and keep it small.
    """
    count, width = observed.shape
    mean, a, b = float(observed.values.mean()), np.zeros(count), np.zeros(width)
    if biases:
        mean, a, b = observed.biased_mean()
    left = observed.values - mean - a[observed.rows] - b[observed.columns]
    u, s, v = _leading(observed._replace(values=left), rank)
    scale = np.sqrt(s)[None]
    u, v = u * scale, v * scale
    squares = np.sum(u**2, axis=0) + np.sum(v**2, axis=0)
    theta = {
        "mean": mean,
        "noise": np.log(max(left.std(), 0.1)),
        "scale": 0.5 * np.log(squares / (count + width) + 1e-4),
    }
    if biases:
        theta["row_scale"] = 0.5 * np.log(np.mean(a**2) + 1e-3)
        theta["column_scale"] = 0.5 * np.log(np.mean(b**2) + 1e-3)
        u, v = np.column_stack([u, a]), np.column_stack([v, b])
    as_floats = {name: jnp.asarray(value, jnp.result_type(float)) for name, value in theta.items()}
    x = {"rows": u, "columns": v}
    return as_floats, {name: jnp.asarray(x[name], jnp.result_type(float)) for name in x}


def _leading(observed: Observed, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The leading singular vectors and values of the matrix with 0 where it is not observed.

    They are not divided by the share that is observed, which a sparse table would not survive:
    factors that are too small grow in a few steps.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import svds

    matrix = coo_matrix((observed.values, (observed.rows, observed.columns)), observed.shape)
    if observed.shape[0] * observed.shape[1] <= DENSE_UP_TO or rank >= min(observed.shape) - 1:
        u, s, v = np.linalg.svd(matrix.toarray(), full_matrices=False)
        return u[:, :rank], s[:rank], v[:rank].T
    first = np.random.default_rng(0).standard_normal(min(observed.shape))
    u, s, v = svds(matrix.tocsr(), rank, v0=first)
    return u[:, ::-1], s[::-1], v[::-1].T


# What the run says. #


def _in_units(result: Result, likelihood: Factors, center: float, spread: float) -> Fitted:
    biases = likelihood.biases
    saved = result.saved_particles
    steps, late = saved_steps(result)
    at = steps[late] - 1
    num_particles = saved["rows"].shape[1]
    theta = {
        name: np.repeat(np.asarray(trace, np.float64)[at], num_particles, axis=0)
        for name, trace in result.theta_trace.items()
    }
    root, dtype = np.sqrt(spread), _dtype(center, spread)

    def side(name: str) -> np.ndarray:
        values = np.asarray(saved[name])[late].astype(dtype)
        values = values.reshape(-1, *values.shape[2:])
        if not biases:
            return np.concatenate([root * values, np.zeros_like(values[..., :1])], axis=-1)
        values[..., :-1] *= root
        values[..., -1] *= spread
        return values

    scales = root * np.exp(theta["scale"])
    # Without biases their scale is nothing, which a matrix cannot have: next to nothing.
    bias = spread * (np.exp(theta["row_scale"]) if biases else np.full(len(scales), 1e-6))
    offset = (center + spread * theta["mean"]).astype(dtype)
    noise = spread * np.exp(theta["noise"])
    draws = FactorDraws(noise, offset, side("rows"), side("columns"))
    # Of the second half of what is averaged: columns that are not needed may still be shrinking.
    half = (result.num_steps + result.burn_in) // 2
    settled = {name: trace[half:].mean(axis=0) for name, trace in result.theta_trace.items()}
    signal = np.exp(np.asarray(likelihood.log_signal(settled)))
    rank = int(np.sum(signal > MARGIN))
    level = spread * float(np.exp(result.theta["noise"]))
    whole = level * _inflation(signal, settled)
    unsure = int(np.sum((signal > 1) & (signal <= MARGIN)))
    largest = np.sort(root * np.exp(np.asarray(result.theta["scale"])))[::-1][:rank]
    return Fitted(
        draws,
        rank,
        whole,
        whole * float(result.theta_mcse["noise"]),
        (level / largest) ** 2,
        np.column_stack([scales, bias]),
        result,
        (*moving(result), *near_the_limit(unsure, level, whole)),
    )


def _dtype(center: float, spread: float) -> type[np.floating]:
    """Of the draws: single precision, unless the values vary by little of their size."""
    return np.float32 if abs(center) < 1e3 * spread else np.float64


def _inflation(signal: np.ndarray, theta: dict[str, np.ndarray]) -> float:
    r"""How much larger the noise is with the columns that do not count.

    The marginal likelihood gives columns near the detection limit some of the noise. The entries of
    column $k$ have the variance $\tau_k^4$: the noise is $\sigma^2 + \sum_k \tau_k^4$, with the sum
    over the columns that do not count.
    """
    shares = np.exp(4 * theta["scale"] - 2 * theta["noise"])
    return float(np.sqrt(1 + np.sum(shares[signal <= MARGIN])))


def _mean_only(observed: Observed, center: float, spread: float) -> Fitted:
    """One row, one column, or nothing that varies: every entry is the mean, give or take."""
    rng, count = np.random.default_rng(0), len(observed.values)
    offset = center + spread / np.sqrt(count) * rng.standard_normal(MOST_DRAWS)
    shapes = [(MOST_DRAWS, size, 1) for size in observed.shape]
    noise = np.full(MOST_DRAWS, spread)
    dtype = _dtype(center, spread)
    zeros = [np.zeros(shape, dtype) for shape in shapes]
    draws = FactorDraws(noise, offset.astype(dtype), *zeros)
    sentence = "one row, one column or constant values have no low rank to learn: the mean is used"
    why = Finding("the rank", sentence)
    return Fitted(draws, 0, spread, None, np.zeros(0), np.zeros((MOST_DRAWS, 1)), None, (why,))
