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


def finished(result: Result) -> Result:
    """The result of a run that came to its end, or an error."""
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if result.status is Status.NONFINITE:
        raise FloatingPointError(f"the matrix could not be completed: {result.message}")
    return result
