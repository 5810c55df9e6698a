"""Whether `pipla.fit` stops in time, and whether its error bars are true: many seeds.

Run with `python benchmarks/stopping.py [seeds] [problem ...]`. Each fit of a problem of the zoo
starts ten standard errors from the known maximiser, above and below by turns. Printed are

- stopped well: the share of fits that converged with an error of at most 1.5 tolerances
  (0.15 standard errors);
- Monte Carlo: the mean reported `theta_mcse`, and the spread of theta over the seeds;
- bias: the mean reported `theta_bias`, and the measured one of the same steps without
  extrapolation.
"""

from __future__ import annotations

import sys
import warnings

import jax
import numpy as np

import pipla
from pipla_lab import zoo
from pipla_lab.zoo.base import flat

PROBLEMS = (
    "laplace-location",
    "lasso",
    "laplace-scale-learned-noise",
    "poisson-regression",
    "tv-signal",
)


def main(seeds: int, names: list[str]) -> None:
    """Print a line for each part of theta of each problem."""
    warnings.simplefilter("ignore")
    print(
        f"{'problem':32s} {'stopped well':>12s} {'steps':>6s} {'mcse':>9s} {'spread':>9s} "
        f"{'bias':>9s} {'measured':>9s} {'± error':>9s}"
    )
    for name in names:
        problem = zoo.get(name)
        exact, stderr = flat(problem.answer.theta), flat(problem.answer.theta_stderr)
        thetas, errors, biases, fine, good, steps = [], [], [], [], [], []
        for seed in range(seeds):
            away = 10 * (-1) ** seed
            start = jax.tree.map(
                lambda theta, error, away=away: np.asarray(theta + away * error, np.float32),
                problem.answer.theta,
                problem.answer.theta_stderr,
            )
            fit = pipla.fit(problem.model, theta=start, x=problem.x, key=jax.random.key(seed))
            error = np.abs(flat(fit.theta) - exact)
            good.append(fit.converged and bool(np.all(error <= 0.15 * stderr)))
            thetas.append(flat(fit.theta))
            errors.append(flat(fit.theta_mcse))
            biases.append(flat(fit.theta_bias))
            fine.append(flat(fit.theta) + flat(fit.theta_bias))
            steps.append(fit.num_steps)
        for part in range(len(exact)):
            spread, measured = np.std(thetas, axis=0, ddof=1)[part], np.mean(fine, axis=0) - exact
            noise = np.std(fine, axis=0, ddof=1)[part] / np.sqrt(seeds)
            print(
                f"{name + f' [{part}]' * (len(exact) > 1):32s} "
                f"{f'{sum(good)} of {seeds}':>12s} {np.mean(steps):6.0f} "
                f"{np.mean(errors, axis=0)[part]:9.2g} {spread:9.2g} "
                f"{np.mean(biases, axis=0)[part]:9.2g} {measured[part]:9.2g} {noise:9.2g}",
                flush=True,
            )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    count = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 50
    main(count, arguments or list(PROBLEMS))
