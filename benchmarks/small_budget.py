"""What `pipla.fit` reaches with 1000 steps of 20 particles, on two data sets of scikit-learn.

Run with `python benchmarks/small_budget.py [seeds]`. Printed are the rms (with its own standard
error: that of 10 seeds is known to a quarter only) and the largest relative error over the seeds of
each named parameter (scale, noise), the reported Monte-Carlo error and standard error of theta, and
the seconds of CPU after the first fit, which compiles.
"""

from __future__ import annotations

import sys
import time
import warnings

import jax
import numpy as np

import pipla
from pipla_lab import zoo
from pipla_lab.zoo.base import flat

PROBLEMS = ("diabetes", "breast-cancer")


def main(seeds: int) -> None:
    """Print a line for each problem."""
    warnings.simplefilter("ignore")
    for name in PROBLEMS:
        problem = zoo.get(name)
        model, exact = problem.model, problem.answer.theta
        known = model.nonsmooth.parameters(exact) | model.smooth.parameters(exact)
        errors, mcse, stderr, spent = [], [], [], []
        for seed in range(-1, seeds):
            begun = time.process_time()
            fit = pipla.fit(
                model,
                theta=problem.theta,
                x=problem.x,
                num_particles=20,
                max_steps=1000,
                key=jax.random.key(max(seed, 0)),
            )
            if seed < 0:
                continue
            spent.append(time.process_time() - begun)
            errors.append([fit.parameters[key][0] / float(known[key]) - 1 for key in known])
            mcse.append(flat(fit.theta_mcse))
            stderr.append(flat(fit.theta_stderr) / flat(problem.answer.theta_stderr))
        rms, most = np.sqrt(np.mean(np.square(errors), 0)), np.max(np.abs(errors), 0)
        # By the delta method, from the spread of the squares.
        error = np.std(np.square(errors), axis=0, ddof=1) / np.sqrt(seeds) / (2 * rms)
        each = ", ".join(
            f"{key} {100 * r:.2f} ± {100 * e:.2f} % (at most {100 * m:.2f})"
            for key, r, e, m in zip(known, rms, error, most, strict=True)
        )
        print(
            f"{name}: rms error over {seeds} seeds: {each}; mcse of theta {np.mean(mcse, 0)}; "
            f"standard errors times {np.mean(stderr, 0)}; {np.mean(spent):.2f} s of CPU",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
