"""`pipla demo`: learn theta of two models with three algorithms, in a minute, and look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipla.algorithms import MYIPLA, PIPGLA
from pipla.algorithms.base import Algorithm
from pipla.engine.result import Result, Status, provenance
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.models.model import Model
from pipla.models.noncentred import noncentred
from pipla.problems import Problem, logistic, toy
from pipla.report import Figure, Section, Table, Text, fixed, new_figure, write_page

NUM_PARTICLES = 50
NUM_STEPS = 10_000
START = 0.0

#: What the paper's table 1 implies for theta on *its* logistic data: -4 (1 ± sqrt(NMSE)).
PAPER = {
    ("logistic, laplace", "MYIPLA"): "-4.84 (NMSE 4.42 %)",
    ("logistic, laplace", "PIPGLA"): "-4.61 (NMSE 2.30 %)",
}


class Row(NamedTuple):
    """One run of the demo."""

    problem: Problem
    name: str
    result: Result


def demo(out: Path, seed: int = 0, progress: bool | None = None) -> Table:
    """Run it, write `out/report.html` and the figures, and return the table."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [row for problem in (toy(), logistic()) for row in _fit(problem, seed, progress)]
    table = _table(rows)
    figures = [_traces(rows), _coefficients(rows)]
    for number, figure in enumerate(figures, start=1):
        (out / f"figure-{number}.png").write_bytes(figure.png())
    write_page(
        out / "report.html",
        "pipla demo",
        "Theta is the centre of a Laplace prior on 50 latent variables. It is learned by maximum "
        "marginal likelihood while the latent variables are sampled.",
        [
            Section("Estimates", [table, Text(_READING)]),
            Section("Theta", [figures[0]]),
            Section("The posterior", [figures[1]]),
            Section("Reproduce", [Text(f"pipla demo --seed {seed}", code=True), Text(_where())]),
        ],
    )
    return table


_READING = (
    "“± error” is the Monte-Carlo error of the average, not the bias. The toy model’s marginal "
    "likelihood is known in closed form, so there the distance to the maximiser can be seen: up to "
    "about two errors it is chance, beyond that the bias of the step size (and, for MYIPLA, of the "
    "smoothing). The logistic data are drawn by the paper’s recipe, not the authors’ own, so the "
    "paper’s column says what to expect roughly, not exactly."
)


def _fit(problem: Problem, seed: int, progress: bool | None) -> list[Row]:
    start_key, run_key = jax.random.split(jax.random.key(seed))
    theta = jnp.asarray(START)
    cloud = problem.cloud(start_key, NUM_PARTICLES, theta)
    plain, back = noncentred(problem.model)
    z = jax.vmap(back.inverse, in_axes=(None, 0))(theta, cloud)
    # By the curvature of g1: 1 for the toy, about 100 at most for the logistic model.
    step, smoothing = (0.1, 0.2) if problem.name == "toy" else (0.01, 0.02)
    jobs: list[tuple[str, Model, Algorithm, Any, Save]] = [
        ("MYIPLA", problem.model, MYIPLA(step / 1.5, smoothing), cloud, Save()),
        ("PIPGLA", problem.model, PIPGLA(step), cloud, Save()),
        (
            "PIPGLA, non-centred, antithetic",
            plain,
            PIPGLA(step, theta_scale=5 / problem.dimension, theta_noise=False, antithetic=True),
            z,
            Save(quantity=back),
        ),
    ]
    rows = []
    for name, model, algorithm, particles, save in jobs:
        result = run(
            model,
            algorithm,
            theta=theta,
            particles=particles,
            num_steps=NUM_STEPS,
            key=run_key,
            save=save,
            progress=progress,
            check=False,
        )
        if result.status is Status.INTERRUPTED:  # a table of half a run would mislead
            raise KeyboardInterrupt
        rows.append(Row(problem, name, result))
    return rows


def _table(rows: list[Row]) -> Table:
    return Table(
        ("model", "algorithm", "theta", "± error", "exact maximiser", "paper", "seconds"),
        [
            (
                row.problem.name,
                row.name,
                fixed(row.result.theta, 4),
                fixed(row.result.theta_stderr, 4),
                fixed(row.problem.maximiser, 4),
                PAPER.get((row.problem.name, row.name)),
                fixed(row.result.seconds, 2),
            )
            for row in rows
        ],
        f"{NUM_PARTICLES} particles, {NUM_STEPS} steps, started at theta = {START:g}; averages "
        "over the second half.",
    )


def _traces(rows: list[Row]) -> Figure:
    names = list(dict.fromkeys(row.problem.name for row in rows))
    figure, axes = new_figure(len(names), width=9.0)
    for axis, name in zip(axes, names, strict=True):
        for row in rows:
            if row.problem.name == name:
                axis.plot(
                    1 + np.arange(row.result.num_steps),
                    row.result.theta_trace,
                    lw=1,
                    label=row.name,
                )
        maximiser = next(row.problem.maximiser for row in rows if row.problem.name == name)
        if maximiser is not None:
            axis.axhline(maximiser, color="black", lw=1, ls="--", label="exact maximiser")
        axis.set(title=name, xlabel="step", ylabel="theta", xscale="log")
        axis.legend(fontsize=8, frameon=False)
    return Figure(figure, "Theta after each step, for each algorithm; the steps on a log scale.")


def _coefficients(rows: list[Row]) -> Figure:
    figure, axes = new_figure(1, width=9.0)
    chosen = [row for row in rows if row.problem.name != "toy"]
    for offset, row in zip((-0.25, 0.0, 0.25), chosen, strict=True):
        mean, sd = np.asarray(row.result.x_mean), np.sqrt(np.asarray(row.result.x_variance))
        place = np.arange(len(mean)) + offset
        axes[0].errorbar(place, mean, 2 * sd, fmt=".", ms=4, lw=0.8, label=row.name)
    axes[0].set(xlabel="coefficient", ylabel="posterior mean ± 2 sd")
    axes[0].legend(fontsize=8, frameon=False, ncols=3)
    return Figure(figure, "The 50 coefficients of the logistic regression: mean and spread.")


def _where() -> str:
    return ", ".join(f"{name} {version}" for name, version in provenance().items())
