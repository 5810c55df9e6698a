"""Whether `pipla.fit` gives the same answer wherever theta starts.

Run with `python benchmarks/starts.py [problem ...]`. Each problem of the zoo is fitted from 0, from
5 standard errors on either side of the known maximiser, and from far away (3 units of theta above,
a factor of 20 in a strength). Printed are the errors of theta in standard errors (the largest over
its parts), and what the fit says.
"""

from __future__ import annotations

import sys
import warnings

import jax
import numpy as np

import pipla
from pipla_lab import zoo

PROBLEMS = (
    "laplace-location",
    "laplace-scale-learned-noise",
    "uniform-log-half-width",
    "lasso-wide",
    "group-lasso",
    "logistic-location",
    "poisson-regression",
    "tv-signal",
)
FAR = 3.0


def main(names: list[str]) -> None:
    """Print a line for each fit."""
    warnings.simplefilter("ignore")
    for name in names:
        problem = zoo.get(name)
        answer = problem.answer
        starts = {
            "0": jax.tree.map(np.zeros_like, answer.theta),
            "-5 standard errors": jax.tree.map(
                lambda theta, error: theta - 5 * error, answer.theta, answer.theta_stderr
            ),
            "+5 standard errors": jax.tree.map(
                lambda theta, error: theta + 5 * error, answer.theta, answer.theta_stderr
            ),
            "far": jax.tree.map(lambda theta: theta + FAR, answer.theta),
        }
        for seed, (label, start) in enumerate(starts.items()):
            theta = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), start)
            key = jax.random.key(seed)
            try:
                fit = pipla.fit(problem.model, theta=theta, x=problem.x, key=key)
            except ValueError as error:  # a half-width of 0
                print(f"{name:28s} from {label:18s}: refused: {error}", flush=True)
                continue
            errors = jax.tree.map(
                lambda found, true, error: (found - true) / error,
                fit.theta,
                answer.theta,
                answer.theta_stderr,
            )
            worst = max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(errors))
            verdict = "converged" if fit.converged else "; ".join(map(str, fit.findings))
            print(
                f"{name:28s} from {label:18s}: off by {worst:.3f} standard errors after "
                f"{fit.num_steps} steps; {verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:] or list(PROBLEMS))
