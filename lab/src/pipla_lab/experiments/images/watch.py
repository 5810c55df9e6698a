"""A run that is recorded after 1, 2, 4, ... steps, four times per octave.

The estimate after n steps is the average over particles and over the last half of the steps. As
half of a recorded number of steps is recorded as well, running sums from the start are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from pipla.algorithms.base import Algorithm
from pipla.engine.hooks import Hook, View
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.imaging.metrics import mse, psnr, ssim
from pipla_lab.data import Deblurring

#: Makes the particles at the start of a run.
Start = Callable[[Deblurring, Key[Array, ""], int], Array]


class Watched(NamedTuple):
    """A recorded run.

    Attributes:
        result: the result of `pipla.run`.
        mean, std: posterior mean and standard deviation over the last half of the steps.
        curves: `steps` and, for each of them, `theta`, `particle_mse`, `particle_ssim`, `psnr` and
            `seconds`.
    """

    result: Result
    mean: np.ndarray
    std: np.ndarray
    curves: dict[str, np.ndarray]


def watch(
    problem: Deblurring,
    algorithm: Algorithm,
    *,
    num_particles: int,
    num_steps: int,
    key: Key[Array, ""],
    start: Start = Deblurring.particles,
    progress: bool | None = None,
) -> Watched:
    """Run an algorithm and record it on the way; a run that does not stay finite ends early."""
    start_key, run_key = jax.random.split(key)
    recorder = Recorder(problem, num_steps)
    result = run(
        problem.model,
        algorithm,
        theta=jnp.asarray(problem.theta, jnp.result_type(float)),
        particles=start(problem, start_key, num_particles),
        num_steps=num_steps,
        burn_in=0,
        key=run_key,
        save=Save(moments_every=1),
        progress=progress,
        check=False,  # the published settings break conditions of the theory
        callbacks=[recorder],
    )
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if result.num_steps > recorder.last:  # the run ended between two records, not finite
        recorder.record(
            result.num_steps,
            result.theta_last,
            result.particles,
            result.x_mean,
            result.x_variance,
            result.seconds,
        )
    if not recorder.last:
        raise FloatingPointError(f"no step stayed finite: {result.message}")
    mean, variance = recorder.average()
    return Watched(result, mean, np.sqrt(np.maximum(variance, 0.0)), recorder.curves())


def record_steps(num_steps: int) -> np.ndarray:
    """The numbers of steps after which a run is recorded."""
    octaves = 2.0 ** (np.arange(4 * int(np.ceil(np.log2(num_steps))) + 1) / 4)
    inside = np.round(octaves).astype(int)
    return np.unique(np.append(inside[inside < num_steps], num_steps))


class _Sums(NamedTuple):
    """Sums over steps of x and x², averaged over particles."""

    steps: int
    first: np.ndarray
    second: np.ndarray


class Recorder(Hook):
    """Records theta, the error of the particles and that of the posterior mean so far.

    Arguments:
        problem: the blurred image.
        num_steps: the steps of the run.
    """

    def __init__(self, problem: Deblurring, num_steps: int) -> None:
        zeros = np.zeros(problem.truth.shape)
        self._problem, self._at = problem, record_steps(num_steps)
        self._past = [_Sums(0, zeros, zeros)]
        self._records: list[dict[str, float]] = []

    @property
    def last(self) -> int:
        """The number of steps at the last record; 0 before the first."""
        return self._past[-1].steps

    def next_step(self, step: int) -> int | None:
        """The next step to record after `step`."""
        later = self._at[self._at > step]
        return int(later[0]) if len(later) else None

    def __call__(self, view: View) -> None:
        if view.step > self.last and view.step in self._at:
            self.record(
                view.step, view.theta, view.particles, view.x_mean, view.x_variance, view.seconds
            )

    def record(
        self, step: int, theta: Any, particles: Any, x_mean: Any, x_variance: Any, seconds: float
    ) -> None:
        """Add a record. The moments are those of all steps so far."""
        mean = np.asarray(x_mean, np.float64)
        square = np.asarray(x_variance, np.float64) + mean**2
        now = _Sums(step, step * mean, step * square)
        half = max(k for k, sums in enumerate(self._past) if 2 * sums.steps <= step)
        self._past = [*self._past[half:], now]
        truth = self._problem.truth
        self._records.append(
            {
                "steps": step,
                "theta": float(theta),
                # Means over the particles, as in the paper.
                "particle_mse": float(np.mean([mse(x, truth) for x in np.asarray(particles)])),
                "particle_ssim": float(np.mean([ssim(x, truth) for x in np.asarray(particles)])),
                "psnr": psnr(self.average()[0], truth),
                "seconds": seconds,
            }
        )

    def average(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance over the last half of the steps so far."""
        old, new = self._past[0], self._past[-1]
        count = new.steps - old.steps
        mean = (new.first - old.first) / count
        return mean, (new.second - old.second) / count - mean**2

    def curves(self) -> dict[str, np.ndarray]:
        """The records as one array per quantity."""
        return {name: np.array([r[name] for r in self._records]) for name in self._records[0]}
