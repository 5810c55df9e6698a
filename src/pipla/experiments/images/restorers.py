"""Ways to restore a blurred picture, with one face: problem and amount in, `Restored` out."""

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
from pipla.experiments.images import peers
from pipla.experiments.images.watch import watch
from pipla.imaging.metrics import mse
from pipla.imaging.restoration import restore
from pipla.operators import blur
from pipla.problems.image_deblurring import Deblurring

#: Of the `bsnr30` protocol; the peers wrap around, as its blur does.
KERNEL = blur.box(9)


class Amount(NamedTuple):
    """How much to do: for the recommended rule and peers only the seed matters."""

    num_particles: int
    num_steps: int
    seed: int
    first: bool  # of the replicates: the one that figures show
    progress: bool | None


class Restored(NamedTuple):
    """What came out; `None` where a method has no such thing."""

    mean: np.ndarray  # the posterior mean, or a peer's only picture
    seconds: float
    compile_seconds: float = 0.0
    finite: bool = True
    deviation: np.ndarray | None = None
    best: np.ndarray | None = None  # the most probable picture
    theta: float | None = None
    trace: np.ndarray | None = None  # theta after every step
    cloud_mse: float | None = None
    step_size: float | None = None
    smoothing: float | None = None
    curves: dict[str, np.ndarray] | None = None


Restorer = Callable[[Deblurring, Amount], Restored]


def chain(make: Callable[[Deblurring], Algorithm]) -> Restorer:
    """Particles by an algorithm made for the problem; averages over the last half of the steps."""

    def restorer(problem: Deblurring, amount: Amount) -> Restored:
        algorithm = make(problem)
        seen = watch(
            problem,
            algorithm,
            num_particles=amount.num_particles,
            num_steps=amount.num_steps,
            key=jax.random.key(amount.seed),
            progress=amount.progress,
        )
        trace = np.asarray(seen.result.theta_trace, np.float64)
        theta = float(trace[len(trace) // 2 :].mean())
        best = None
        if not problem.published:  # theirs has no potential to maximise
            best = np.asarray(map_estimate(problem.model, theta, seen.mean).x)
        return Restored(
            mean=seen.mean,
            deviation=seen.deviation,
            best=best,
            theta=theta,
            trace=trace,
            cloud_mse=float(seen.curves["cloud_mse"][-1]),
            seconds=seen.result.seconds,
            compile_seconds=seen.result.compile_seconds,
            finite=seen.result.status is not Status.NONFINITE,
            step_size=_number(getattr(algorithm, "step_size", None)),
            smoothing=_number(getattr(algorithm, "smoothing", None)),
            curves=seen.curves,
        )

    return restorer


def recommended(problem: Deblurring, amount: Amount) -> Restored:
    """`pipla.restore`, and for the figures a second run like it that is looked at on the way."""
    found = restore(
        problem.operator,
        problem.observed,
        problem.noise,
        num_steps=amount.num_steps,
        num_particles=amount.num_particles,
        seed=amount.seed,
        progress=amount.progress,
    )
    cloud = np.asarray(found.result.particles)
    curves = None
    if amount.first:
        curves = watch(
            problem,
            RPL(),
            num_particles=amount.num_particles,
            num_steps=amount.num_steps,
            key=jax.random.key(amount.seed),
            progress=False,
        ).curves
    return Restored(
        mean=found.mean,
        deviation=found.std,
        best=found.map,
        theta=float(np.log(found.strength)),
        trace=np.asarray(found.result.theta_trace["strength"], np.float64),
        cloud_mse=float(np.mean([mse(x, problem.truth) for x in cloud])),
        seconds=found.seconds,
        compile_seconds=found.result.compile_seconds,
        step_size=_number(RPL().scheme.step_size),
        curves=curves,
    )


def oracle_strength(problem: Deblurring, amount: Amount) -> Restored:
    """The most probable picture at the strength that makes it nearest to the truth."""
    from scipy.optimize import minimize_scalar

    def error(theta: float) -> float:
        return mse(map_estimate(problem.model, theta, problem.observed).x, problem.truth)

    began = time.perf_counter()
    found = minimize_scalar(
        error, bounds=(np.log(0.005), np.log(0.3)), method="bounded", options={"xatol": 0.05}
    )
    best = np.asarray(map_estimate(problem.model, float(found.x), problem.observed).x)
    seconds = time.perf_counter() - began
    return Restored(mean=best, best=best, theta=float(found.x), seconds=seconds)


def unsupervised_wiener(problem: Deblurring, amount: Amount) -> Restored:
    """The Wiener filter that learns its balance."""
    return _timed(lambda: peers.unsupervised_wiener(problem.observed, KERNEL))


def oracle_wiener(problem: Deblurring, amount: Amount) -> Restored:
    """The Wiener filter at the best balance."""
    return _timed(lambda: peers.oracle_wiener(problem.observed, KERNEL, problem.truth))


def richardson_lucy(problem: Deblurring, amount: Amount) -> Restored:
    """Richardson-Lucy, stopped at the best moment."""
    apply, adjoint = (_as_numpy(f) for f in (problem.operator.apply, problem.operator.adjoint))
    return _timed(
        lambda: peers.oracle_richardson_lucy(problem.observed, apply, adjoint, problem.truth)
    )


def _timed(make: Callable[[], np.ndarray]) -> Restored:
    """One picture, and no strength."""
    began = time.perf_counter()
    mean = make()
    return Restored(mean=mean, seconds=time.perf_counter() - began)


def _as_numpy(function: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    compiled = jax.jit(lambda x: function(x))  # a method of an operator cannot be hashed
    return lambda x: np.asarray(compiled(x.astype(jnp.result_type(float))), np.float64)


def _number(value: Any) -> float | None:
    return None if value is None else float(f"{float(value):.6g}")
