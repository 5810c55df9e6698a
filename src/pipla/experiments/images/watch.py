"""A run that is looked at on the way: after 1, 2, 4, ... steps, four times an octave.

The estimate after n steps is the average over particles and over the last half of the steps. With
four looks an octave, half of a number of steps is a look, too, and sums from the start are enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms.base import Algorithm
from pipla.engine.hooks import Progress
from pipla.engine.result import Result, Status
from pipla.engine.run import resume, run
from pipla.engine.save import Save
from pipla.imaging.metrics import mse, psnr, ssim
from pipla.problems import Deblurring

Start = Any


class Watched(NamedTuple):
    """What was seen: curves over the looks, and the last estimate."""

    result: Result
    mean: np.ndarray
    std: np.ndarray
    curves: dict[str, np.ndarray]


class _Sums(NamedTuple):
    steps: int
    first: np.ndarray  # of x over steps, averaged over particles
    second: np.ndarray  # of x²


def looks(num_steps: int) -> np.ndarray:
    """The steps after which to look."""
    octaves = 2.0 ** (np.arange(4 * int(np.ceil(np.log2(num_steps))) + 1) / 4)
    inside = np.round(octaves).astype(int)
    return np.unique(np.append(inside[inside < num_steps], num_steps))


def watch(
    problem: Deblurring,
    algorithm: Algorithm,
    *,
    num_particles: int,
    num_steps: int,
    key: Any,
    start: Start = Deblurring.particles,
    progress: bool | None = None,
) -> Watched:
    """Run an algorithm; a run that does not stay finite ends early."""
    start_key, run_key = jax.random.split(key)
    result: Result | None = None
    past = [_Sums(0, np.zeros(problem.truth.shape), np.zeros(problem.truth.shape))]
    curves: dict[str, list[float]] = {name: [] for name in ("steps", *_MEASURES)}
    name = getattr(algorithm, "name", "") or type(algorithm).__name__
    with Progress(name, num_steps, progress) as bar:
        for step in looks(num_steps):
            if result is None:
                result = run(
                    problem.model,
                    algorithm,
                    theta=jnp.asarray(problem.theta, jnp.result_type(float)),
                    particles=start(problem, start_key, num_particles),
                    num_steps=int(step),
                    burn_in=0,
                    key=run_key,
                    save=Save(moments_every=1),
                    progress=False,
                    check=False,  # the published settings break conditions, as they should
                )
            else:
                result = resume(
                    result, problem.model, num_steps=int(step) - result.num_steps, progress=False
                )
            if result.status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            past = _recent(past, _sums(result))
            estimate = _average(past)[0]
            for measure, value in _seen(problem, result, estimate).items():
                curves[measure].append(value)
            bar.update(result.num_steps, result.theta_last)
            if result.status is Status.NONFINITE:
                break
    assert result is not None
    mean, variance = _average(past)
    return Watched(
        result,
        mean,
        np.sqrt(np.maximum(variance, 0.0)),
        {name: np.asarray(values) for name, values in curves.items()},
    )


#: MSE and SSIM of the cloud are means over its particles, as the paper has them.
_MEASURES = ("theta", "particle_mse", "particle_ssim", "psnr", "seconds")


def _seen(problem: Deblurring, result: Result, estimate: np.ndarray) -> dict[str, float]:
    particles = np.asarray(result.particles)
    return {
        "steps": result.num_steps,
        "theta": float(result.theta_last),
        "particle_mse": float(np.mean([mse(x, problem.truth) for x in particles])),
        "particle_ssim": float(np.mean([ssim(x, problem.truth) for x in particles])),
        "psnr": psnr(estimate, problem.truth),
        "seconds": result.seconds,
    }


def _sums(result: Result) -> _Sums:
    mean = np.asarray(result.x_mean, np.float64)
    square = np.asarray(result.x_variance, np.float64) + mean**2
    return _Sums(result.num_steps, result.num_steps * mean, result.num_steps * square)


def _recent(past: list[_Sums], now: _Sums) -> list[_Sums]:
    """The sums from half of the steps on."""
    first = max(k for k, sums in enumerate(past) if 2 * sums.steps <= now.steps)
    return [*past[first:], now]


def _average(past: list[_Sums]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance between the first and the last of these sums."""
    old, new = past[0], past[-1]
    count = new.steps - old.steps
    mean = (new.first - old.first) / count
    return mean, (new.second - old.second) / count - mean**2
