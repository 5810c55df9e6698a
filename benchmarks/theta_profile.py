"""What intervals can do for theta of a logistic lasso: its marginal likelihood, without `fit`.

Run with `python benchmarks/theta_profile.py [replicates] [sweeps] [problem]`, the problems being
`separable` (the default) and `logistic` of `theta_intervals.py`, on the same data. The marginal
likelihood of each replicate is computed by an exact Gibbs sampler (`polya_gamma.py`; needs
numba), and from it the normal interval (maximum ± 1.96 standard errors, from its curvature there)
and the likelihood-ratio interval (twice the log likelihood at most 3.84 below the maximum).

Where a linear predictor separates the classes, the likelihood does not vanish as the scale grows:
beyond some size it is flat. In some replicates it has its maximum there, within `FLAT`: theta
has no finite estimate, and the normal interval is the whole line.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import theta_intervals
from polya_gamma import draws_of, log_marginal_likelihood

GRID = np.linspace(-2.0, 2.5, 451)
#: The largest thetas of the grid, whose mean likelihood stands for that of an infinite one.
LAST = GRID > 2.0
#: A log likelihood that falls by no more than this has no maximum; its errors are about .03.
FLAT = 0.1
#: The reach of the parabola at the maximum.
REACH = 0.2


def check() -> None:
    """Raise where the Polya-Gamma variables have wrong moments (within 6 standard errors)."""
    for tilt in (0.5, 2.0, 3.5, 10.0, 40.0):
        draws = draws_of(tilt, 100_000)
        mean = np.tanh(tilt / 2) / (2 * tilt)
        variance = (np.sinh(tilt) - tilt) / (4 * tilt**3 * np.cosh(tilt / 2) ** 2)
        assert abs(draws.mean() - mean) < 6 * np.sqrt(variance / len(draws)), tilt
        assert abs(draws.var() / variance - 1) < 0.1, tilt


def main(replicates: int, sweeps: int, name: str) -> None:
    """Print a line for each replicate, and how often both intervals hold."""
    check()
    begun = time.process_time()
    flat, unbounded, normal, ratio, errors = 0, 0, 0, 0, []
    for i in range(replicates):
        features, labels, truth = theta_intervals.classes(
            name, theta_intervals.random_numbers(name, i)
        )
        curve = log_marginal_likelihood(features, labels, GRID, sweeps, i)
        best = int(np.argmax(curve))
        fall = float(curve[best] - curve[LAST].mean())
        below = 2 * float(curve[best] - np.interp(truth, GRID, curve))
        near = np.abs(GRID - GRID[best]) <= REACH
        bend, slope, _ = np.polyfit(GRID[near] - GRID[best], curve[near], 2)
        theta, error = np.inf, np.inf
        if fall > FLAT and bend < 0:
            theta, error = GRID[best] - slope / (2 * bend), (-2 * bend) ** -0.5
            errors.append((theta - truth, error))
        flat += not np.isfinite(theta)
        unbounded += 2 * fall < 3.84
        ratio += below <= 3.84
        normal += not np.isfinite(theta) or abs(theta - truth) <= 1.96 * error
        print(
            f"  {i}: theta {theta:.3f} ± {error:.3f}; at the true one 2 log L is {below:.2f} "
            f"below its maximum, at infinity {2 * fall:.2f}",
            flush=True,
        )
    deviations, found = np.array(errors).T
    print(
        f"{name}: of {replicates} replicates {flat} have no finite estimate, and the others mean "
        f"standard error {found.mean():.3f}, sd of the estimates {deviations.std():.3f}. Normal "
        f"intervals hold theta in {normal}, likelihood-ratio intervals in {ratio}, of which "
        f"{unbounded} have no upper end. {time.process_time() - begun:.0f} s of CPU."
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    numbers = [int(each) for each in arguments if each.isdigit()]
    names = [each for each in arguments if not each.isdigit()]
    main(*(numbers + [200, 24_000][len(numbers) :]), *(names or ["separable"]))
