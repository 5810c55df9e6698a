"""Ways to restore a blurred image, with one signature: `restorer(problem, budget)`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import RPL
from pipla.algorithms.base import Algorithm
from pipla.engine.map_estimate import map_estimate
from pipla.engine.result import Status
from pipla.imaging.metrics import mse
from pipla.imaging.restoration import restore
from pipla.operators import blur
from pipla_lab.data import Deblurring
from pipla_lab.experiments.base import six_digits
from pipla_lab.experiments.images import peers
from pipla_lab.experiments.images.watch import Start, watch

#: The kernel of the `bsnr30` protocol. The peers wrap around at the edges, as its blur does.
KERNEL = blur.box(9)


class Budget(NamedTuple):
    """How much is run. Peers use none of it.

    Attributes:
        num_particles, num_steps, seed, progress: as in `pipla.run`.
        first: whether this is the first replicate, which the figures show.
    """

    num_particles: int
    num_steps: int
    seed: int
    first: bool
    progress: bool | None


class Restored(NamedTuple):
    """A restored image; `None` where a method has no such thing.

    Attributes:
        mean, std: the posterior mean (or a peer's only image) and standard deviation.
        map: the MAP estimate.
        seconds, compile_seconds: wall time.
        finite: whether the run stayed finite.
        theta, trace: the logarithm of the strength: its estimate, and its value after every step.
        particle_mse: the mean MSE of the particles at the end.
        step_size, smoothing: the numbers of the algorithm.
        curves: what `watch` recorded.
    """

    mean: np.ndarray
    seconds: float
    compile_seconds: float = 0.0
    finite: bool = True
    std: np.ndarray | None = None
    map: np.ndarray | None = None
    theta: float | None = None
    trace: np.ndarray | None = None
    particle_mse: float | None = None
    step_size: float | None = None
    smoothing: float | None = None
    curves: dict[str, np.ndarray] | None = None


Restorer = Callable[[Deblurring, Budget], Restored]


def chain(
    make: Callable[[Deblurring], Algorithm],
    *,
    start: Start = Deblurring.particles,
    find_map: bool = True,
) -> Restorer:
    """Run an algorithm and average over the last half of the steps.

    Arguments:
        make: makes the algorithm for a problem.
        start: the particles at the start.
        find_map: whether the MAP estimate is computed; the published model has no potential to
            maximise.
    """

    def restorer(problem: Deblurring, budget: Budget) -> Restored:
        algorithm = make(problem)
        seen = watch(
            problem,
            algorithm,
            start=start,
            num_particles=budget.num_particles,
            num_steps=budget.num_steps,
            key=jax.random.key(budget.seed),
            progress=budget.progress,
        )
        trace = np.asarray(seen.result.theta_trace, np.float64)
        theta = float(trace[len(trace) // 2 :].mean())
        most_probable = None
        if find_map:
            most_probable = np.asarray(map_estimate(problem.model, theta, seen.mean).x)
        return Restored(
            mean=seen.mean,
            std=seen.std,
            map=most_probable,
            theta=theta,
            trace=trace,
            particle_mse=float(seen.curves["particle_mse"][-1]),
            seconds=seen.result.seconds,
            compile_seconds=seen.result.compile_seconds,
            finite=seen.result.status is not Status.NONFINITE,
            step_size=six_digits(algorithm.numbers().get("step_size")),
            smoothing=six_digits(algorithm.numbers().get("smoothing")),
            curves=seen.curves,
        )

    return restorer


def recommended(problem: Deblurring, budget: Budget) -> Restored:
    """`imaging.restore`, and for the figures a second run with the same settings under `watch`."""
    found = restore(
        problem.observed,
        problem.operator,
        noise=problem.noise,
        num_steps=budget.num_steps,
        num_particles=budget.num_particles,
        seed=budget.seed,
        progress=budget.progress,
    )
    particles = np.asarray(found.result.particles)
    curves = None
    if budget.first:
        curves = watch(
            problem,
            RPL(),
            num_particles=budget.num_particles,
            num_steps=budget.num_steps,
            key=jax.random.key(budget.seed),
            progress=False,
        ).curves
    return Restored(
        mean=found.mean,
        std=found.std,
        map=found.map,
        theta=float(np.log(found.strength)),
        trace=np.asarray(found.result.theta_trace["strength"], np.float64),
        particle_mse=float(np.mean([mse(x, problem.truth) for x in particles])),
        seconds=found.seconds,
        compile_seconds=found.result.compile_seconds,
        step_size=six_digits(RPL().step_size),
        curves=curves,
    )


def oracle_strength(problem: Deblurring, budget: Budget) -> Restored:
    """The MAP estimate at the strength with the smallest error."""
    from scipy.optimize import minimize_scalar

    def error(theta: float) -> float:
        return mse(map_estimate(problem.model, theta, problem.observed).x, problem.truth)

    began = time.perf_counter()
    found = minimize_scalar(
        error, bounds=(np.log(0.005), np.log(0.3)), method="bounded", options={"xatol": 0.05}
    )
    best = np.asarray(map_estimate(problem.model, float(found.x), problem.observed).x)
    seconds = time.perf_counter() - began
    return Restored(mean=best, map=best, theta=float(found.x), seconds=seconds)


def unsupervised_wiener(problem: Deblurring, budget: Budget) -> Restored:
    """The Wiener filter that learns its regularisation."""
    return _timed(lambda: peers.unsupervised_wiener(problem.observed, KERNEL))


def oracle_wiener(problem: Deblurring, budget: Budget) -> Restored:
    """The Wiener filter with the best regularisation."""
    return _timed(lambda: peers.oracle_wiener(problem.observed, KERNEL, problem.truth))


def richardson_lucy(problem: Deblurring, budget: Budget) -> Restored:
    """Richardson-Lucy, stopped at the smallest error."""
    apply, adjoint = (_as_numpy(f) for f in (problem.operator.apply, problem.operator.adjoint))
    return _timed(
        lambda: peers.oracle_richardson_lucy(problem.observed, apply, adjoint, problem.truth)
    )


def _timed(make: Callable[[], np.ndarray]) -> Restored:
    """A single image, without a strength."""
    began = time.perf_counter()
    mean = make()
    return Restored(mean=mean, seconds=time.perf_counter() - began)


def _as_numpy(function: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    compiled = jax.jit(lambda x: function(x))  # a method of an operator cannot be hashed
    return lambda x: np.asarray(compiled(x.astype(jnp.result_type(float))), np.float64)
