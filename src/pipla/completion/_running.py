"""What the runs behind both priors share: how many draws they keep, and how they end."""

from __future__ import annotations

import numpy as np

from pipla.engine.result import Result, Status


def thinning(num_late: int, num_particles: int, most: int) -> int:
    """The steps from one saved draw to the next, for at most `most` draws after burn-in."""
    return max(1, -(-num_late * num_particles // most))


def saved_steps(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """The numbers, from 1, of the steps whose particles were saved; which are after burn-in."""
    every = result.snapshot.particles_every or 1
    steps = np.arange(every, result.num_steps + 1, every)
    return steps, steps > result.burn_in


def with_draws(result: Result) -> Result:
    """The result of a run that has draws after burn-in, or an error."""
    if result.status is Status.NONFINITE:
        raise FloatingPointError(f"the matrix could not be completed: {result.message}")
    if ended_early(result) and not np.any(saved_steps(result)[1]):
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        raise RuntimeError(f"{result.message}, before there was a draw after burn-in.")
    return result


def ended_early(result: Result) -> bool:
    """Whether Ctrl-C or a callback ended the run."""
    return result.status in (Status.INTERRUPTED, Status.STOPPED)
