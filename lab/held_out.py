"""`pipla.fit` on ordinary problems that nobody tuned it on, beside an exact sampler.

Run with `python lab/held_out.py [problem ...]`. Each is answered twice: by Hamiltonian Monte
Carlo with the exact density and Newton steps on Louis' identity, with the prior written down once
more (`lab/answers/ordinary.py`, `unprepared.py`), and by `pipla.fit` from two starts, with
nothing chosen. Printed are the largest error of a part of theta in its standard errors, the worst
errors of posterior means (in sds) and sds (relative), and the verdict of the fit. They were new
when written. Since then `MISMATCH` was chosen with wine, iris and grouped-labels in view, and the
rule that confirms a bias after correlated-net had failed; units of free leaves after large-counts:
these five are no longer held out. On `units` the fit does not converge, and says to rescale the
features; on `volatility` it is right, but x has not mixed after 20 000 steps, and it says so. Add
new ones before claiming anything of problems nobody tuned on.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import pipla
from answers import ordinary, unprepared
from answers.base import Found, flat
from answers.differentiated import Differentiated
from answers.ordinary import Problem

PROBLEMS = ordinary.PROBLEMS | unprepared.PROBLEMS


def scores(problem: Problem) -> None:
    """Print the slope of the log marginal likelihood, by Fisher's identity."""
    rng, target = np.random.default_rng(0), problem.target
    x = 0.01 * rng.standard_normal((60, flat(problem.x).size))
    for theta in problem.slopes:
        phi, found = np.array([theta]), []
        target.tuning = True
        for _ in range(2):
            draws = []
            for _ in range(40):
                x = target.sweep(phi, x, rng)
                draws.append(x)
            target.adapt(np.concatenate(draws[10:]))
        for _ in range(60):
            x = target.sweep(phi, x, rng)
            found.append(target.scores(phi, x)[:, 0])
        chains = np.mean(found, axis=0)
        print(
            f"  slope at theta {theta:g}: {chains.mean():.2f} ± {chains.std() / np.sqrt(60):.2f}",
            flush=True,
        )


def numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def main(names: list[str]) -> None:
    """Print the truth of each problem and a line for each fit."""
    warnings.simplefilter("ignore")
    for name in names:
        problem, begun = PROBLEMS[name](), time.process_time()
        true = None
        if problem.slopes:
            print(f"{name}: no maximum")
            scores(problem)
        else:
            target = problem.target
            true = target.answer(problem.thetas[0], problem.x, problem.chains, problem.sweeps)
            check(problem, target, true)
            print(
                f"{name}: theta {numbers(true.theta)} ± {numbers(true.theta_error)}, standard "
                f"error {numbers(true.theta_stderr)}; {true.notes}; "
                f"{time.process_time() - begun:.0f} s of CPU",
                flush=True,
            )
        for start in problem.thetas:
            report(problem, start, true)


def report(problem: Problem, start: Any, true: Found | None) -> None:
    """Print a line for the fit from this start."""
    begun = time.process_time()
    fit = pipla.fit(problem.model, theta=start, x=problem.x)
    line = f"  from {numbers(flat(start))}: theta {numbers(flat(fit.theta))}"
    if true is not None:
        off = (flat(fit.theta) - true.theta) / true.theta_stderr
        worst = np.argmax(np.abs(off))
        mcse = (flat(fit.theta_mcse) / true.theta_stderr)[worst]
        ratio = flat(fit.theta_stderr) / true.theta_stderr
        means = (flat(fit.x_mean) - true.x_mean) / true.x_sd
        sds = flat(fit.x_sd) / true.x_sd - 1
        line += (
            f", off by {off[worst]:+.3f} standard errors (mcse {mcse:.3f}); standard errors "
            f"times {numbers(ratio)}; means {np.max(np.abs(means)):.3f}, sds "
            f"{np.max(np.abs(sds)):.3f}"
        )
    verdict = "converged" if fit.converged else "; ".join(map(str, fit.findings))
    chosen, spent = "; ".join(fit.reasons[1:]), time.process_time() - begun
    print(f"{line}; {fit.num_steps} steps, {spent:.0f} s of CPU; {verdict}; {chosen}", flush=True)


def check(problem: Problem, target: Differentiated, true: Found) -> None:
    """Both densities are the same up to a constant."""
    rng = np.random.default_rng(0)
    theta_of, x_of = ravel_pytree(problem.thetas[0])[1], ravel_pytree(problem.x)[1]
    apart = []
    for _ in range(4):
        theta = true.theta + 0.1 * rng.normal(size=true.theta.size)
        x = true.x_mean + true.x_sd * rng.uniform(-0.5, 0.5, size=true.x_mean.size)
        x = np.abs(x) if problem.positive else x
        own = target.density(theta, x)
        there = theta_of(jnp.asarray(theta)), x_of(jnp.asarray(x))
        apart.append(float(problem.model.potential(*there)) - own)
    assert np.ptp(apart) < 1e-3 * (1 + abs(own)), apart


if __name__ == "__main__":
    main(sys.argv[1:] or list(PROBLEMS))
