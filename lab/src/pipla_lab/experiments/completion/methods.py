"""Ways to complete a matrix: as published, corrected, recommended, and others' methods."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import MYIPLA, MYPGD, PIPGLA, RPL
from pipla.completion import Triplets, complete
from pipla.completion.completing import Completion
from pipla.completion.nuclear import STEP
from pipla.diagnostics import ConvergenceWarning
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.models.likelihoods import Gaussian
from pipla.models.model import Model
from pipla.operators import Select
from pipla.prox import NuclearStrength
from pipla_lab.experiments.completion import peers
from pipla_lab.experiments.completion.matrices import Matrix, Observed

#: The paper's step size; its smoothing for MYPGD and MYIPLA, and for PIPGLA.
PUBLISHED_STEP, PUBLISHED_SMOOTHING, PIPGLA_SMOOTHING = 0.01, 0.25, 0.01
#: Of the ranges from which the paper draws theta's start, the middle of the first and 0.
PUBLISHED_START = {"strength": -5.0, "noise": 0.0}
#: The mean and the standard deviation of the pixels from which its particles start.
PUBLISHED_PIXELS = (50.0, 10.0)
#: The particles of the paper's algorithms and of the recommended one.
NUM_PARTICLES = 10
LEVEL = 0.9
#: Beyond this a learned noise is nothing to print.
LARGEST_LOG = 50.0


class Completed(NamedTuple):
    """What a method says; `None` where it says nothing.

    Attributes:
        mean: the completed matrix, on average over time and particles where it samples.
        particle, particle_mean: one particle at the end, and the mean over the particles.
        interval: the ends of 90 % intervals: of the entries without noise where the truth is
            known, of the held-out observations elsewhere.
        std: the posterior standard deviation of every entry.
        theta: the logarithm of the nuclear norm's strength, and its Monte-Carlo error.
        noise: what the run takes for the standard deviation of the noise.
        rank: of the matrix.
        finite: whether the run stayed finite.
    """

    mean: np.ndarray
    seconds: float
    particle: np.ndarray | None = None
    particle_mean: np.ndarray | None = None
    interval: tuple[np.ndarray, np.ndarray] | None = None
    std: np.ndarray | None = None
    theta: float | None = None
    theta_mcse: float | None = None
    noise: float | None = None
    rank: int | None = None
    finite: bool = True
    compile_seconds: float = 0.0
    num_steps: int | None = None


#: From a matrix, a number of steps and a seed.
Method = Callable[[Matrix, int, int], Completed]


def paper_algorithm(kind: str, approximation: str | None) -> Method:
    """MYPGD, MYIPLA or PIPGLA with the paper's numbers; its prox, or the exact one.

    The paper divides the updates of the two parts of theta by their numbers of entries: that is
    `theta_scale`.
    """

    def method(matrix: Matrix, num_steps: int, seed: int) -> Completed:
        observed = matrix.observed
        size, count = observed.shape[0] * observed.shape[1], len(observed.values)
        scale = {"strength": 1 / size, "noise": 1 / count}
        if kind == "PIPGLA":
            algorithm = PIPGLA(PUBLISHED_STEP, PIPGLA_SMOOTHING, theta_scale=scale)
        else:
            preset: Any = {"MYPGD": MYPGD, "MYIPLA": MYIPLA}[kind]
            algorithm = preset(PUBLISHED_STEP, PUBLISHED_SMOOTHING, theta_scale=scale)
        dtype = jnp.result_type(float)
        mean, std = PUBLISHED_PIXELS
        pixels = mean + std * np.random.default_rng(seed).standard_normal(
            (NUM_PARTICLES, *observed.shape)
        )
        theta = {name: jnp.asarray(value, dtype) for name, value in PUBLISHED_START.items()}
        result = _quiet_run(
            published_model(observed, approximation),
            algorithm,
            theta=theta,
            particles=jnp.asarray(pixels, dtype),
            num_steps=num_steps,
            burn_in=num_steps // 2,
            key=jax.random.key(seed),
        )
        return _from_run(result, float(result.theta_last["strength"]), result.theta_last["noise"])

    return method


def published_model(observed: Observed, approximation: str | None) -> Model:
    r"""$U = -d_x \theta_1 + d_y \theta_2 + |Mx - y|^2/(2 e^{2\theta_2}) + e^{\theta_1} |x|_*$."""
    select = Select((observed.rows, observed.columns), observed.shape)
    term = NuclearStrength(approximation=approximation).on(theta="strength")
    size, count = observed.shape[0] * observed.shape[1], len(observed.values)

    def smooth(theta: Any, x: Any, data: Any) -> Any:
        residual = (select.apply(x) - data.astype(x.dtype)) * jnp.exp(-theta["noise"])
        normaliser = count * theta["noise"] - size * theta["strength"]
        return 0.5 * jnp.sum(residual**2) + normaliser

    return Model(smooth, term, data=jnp.asarray(observed.values, jnp.result_type(float)))


def recommended_nuclear(matrix: Matrix, num_steps: int, seed: int) -> Completed:
    """`complete(prior="nuclear")` at the noise that generated the data."""
    found = complete(
        Triplets(*matrix.observed),
        prior="nuclear",
        noise=matrix.noise,
        num_steps=num_steps,
        seed=seed,
    )
    assert found.result is not None
    if not isinstance(found.strength, float):
        raise TypeError("a nuclear norm has one strength.")
    done = _from_run(found.result, float(np.log(found.strength)), None)
    relative = float(np.asarray(found.result.theta_mcse))
    return done._replace(
        seconds=found.result.seconds,
        theta_mcse=relative if np.isfinite(relative) else None,  # too short to say
        interval=_interval(found, matrix),
        std=_std(found, matrix),
        rank=found.rank,
    )


def factors(matrix: Matrix, num_steps: int, seed: int) -> Completed:
    """`complete`, with its default prior."""
    found = complete(Triplets(*matrix.observed), num_steps=num_steps, seed=seed)
    compiling = 0.0 if found.result is None else found.result.compile_seconds
    last = None if matrix.truth is None else found.draws.block(slice(None))[-1]
    return Completed(
        found.mean(),
        found.seconds - compiling,
        particle=last,
        interval=_interval(found, matrix),
        std=_std(found, matrix),
        noise=found.noise,
        rank=found.rank,
        compile_seconds=compiling,
        num_steps=num_steps,
    )


def soft_impute_cv(matrix: Matrix, num_steps: int, seed: int) -> Completed:
    """SoftImpute with a validated path; on ratings, of what the biases leave over."""
    began = time.perf_counter()
    if matrix.truth is None:
        found = peers.centred_soft_impute_cv(matrix.observed, seed, penalties=12, iterations=30)
        return Completed(found, time.perf_counter() - began)
    found = peers.soft_impute_cv(matrix.observed, seed)
    seconds = time.perf_counter() - began
    return Completed(found, seconds, rank=int(np.linalg.matrix_rank(found, tol=1e-3)))


def biased_mean(matrix: Matrix, num_steps: int, seed: int) -> Completed:
    """The mean, with shrunk biases of rows and columns."""
    began = time.perf_counter()
    mean, a, b = matrix.observed.biased_mean()
    return Completed(mean + a[:, None] + b[None], time.perf_counter() - began)


def learned_noises(
    observed: Observed, divisors: tuple[float, ...], num_steps: int
) -> list[list[float]]:
    r"""The noise that a run with a nuclear norm "learns", by the step size.

    An estimate would not depend on the step. Here the marginal likelihood rises as
    $\sigma \to 0$ (E17), and the run stops where its step does not resolve the noise: shorter
    steps "learn" less of it.
    """
    start, found = jnp.asarray(observed.filled(0.0), jnp.result_type(float)), []
    select = Select((observed.rows, observed.columns), observed.shape)
    likelihood = Gaussian(select, observed.values, None, theta="noise")
    model = Model(likelihood, NuclearStrength(normalised=True).on(theta="strength"))
    for divisor in divisors:
        steps = round(num_steps * np.sqrt(divisor))
        result = _quiet_run(
            model,
            RPL(STEP / divisor, first=10.0 * divisor),  # all begin with the same long steps
            theta={name: jnp.zeros((), start.dtype) for name in ("strength", "noise")},
            particles=jnp.broadcast_to(start, (2, *start.shape)),
            num_steps=steps,
            burn_in=steps // 2,
            key=jax.random.key(0),
        )
        found.append([STEP / divisor, float(np.exp(result.theta["noise"]))])
    return found


def _quiet_run(model: Model, algorithm: Any, **options: Any) -> Result:
    with warnings.catch_warnings():
        # What becomes of a published run is what the row is there to show.
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = run(model, algorithm, save=Save(moments_every=1), check=False, **options)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return result


def _from_run(result: Result, theta: float, log_noise: Any) -> Completed:
    particles = np.asarray(result.particles)
    average = particles.mean(axis=0) if result.x_mean is None else np.asarray(result.x_mean)
    return Completed(
        average,
        result.seconds,
        particle=particles[0],
        particle_mean=particles.mean(axis=0),
        theta=theta,
        noise=None if log_noise is None or log_noise > LARGEST_LOG else float(np.exp(log_noise)),
        finite=result.status is not Status.NONFINITE,
        compile_seconds=result.compile_seconds,
        num_steps=result.num_steps,
    )


def _interval(found: Completion, matrix: Matrix) -> tuple[np.ndarray, np.ndarray]:
    if matrix.test is None:
        return found.interval(LEVEL)
    return found.interval(LEVEL, matrix.test.rows, matrix.test.columns, noisy=True)


def _std(found: Completion, matrix: Matrix) -> np.ndarray | None:
    return found.std() if matrix.truth is not None else None
