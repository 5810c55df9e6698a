"""`pipla demo`: learn theta of two models with three algorithms, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import typer

from pipla.algorithms import MYIPLA, PIPGLA
from pipla.algorithms.base import Algorithm
from pipla.engine.result import Result, Status, provenance
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.imaging.restoration import check_seed
from pipla.models.model import Model
from pipla.models.noncentred import noncentred
from pipla.problems import Problem, logistic, toy
from pipla.report import Figure, Section, Table, Text, fixed, new_figure, write_page
from pipla.report.plots import require_matplotlib

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


def command(
    out: Annotated[Path, typer.Option(help="Folder for the page and the figures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
) -> None:
    """Learn theta of two small models with three algorithms, and write a page about it."""
    try:
        table = write_demo(out, seed)
    except KeyboardInterrupt:
        print("\nStopped; nothing was written.")
        raise typer.Exit(130) from None
    print(table.text())
    print(f"\nThe page: {out / 'report.html'}")


def write_demo(out: Path, seed: int = 0, progress: bool | None = None) -> Table:
    """Run the demo, write `out/report.html` and the figures, and return the table."""
    require_matplotlib()
    check_seed(seed)
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
            Section("Reproduce", [Text(f"pipla demo --seed {seed}", code=True), Text(_versions())]),
        ],
    )
    return table


_READING = (
    "“± error” is the Monte-Carlo error of the average, not the bias. The toy model’s marginal "
    "likelihood is known in closed form, so there the distance to the maximiser can be seen: up to "
    "about two errors it is chance, beyond that it is the bias of the step size (and, for MYIPLA, "
    "of the smoothing). The logistic data are drawn by the paper’s recipe; they are not the "
    "authors’ own, so the paper’s column says only roughly what to expect."
)


def _fit(problem: Problem, seed: int, progress: bool | None) -> list[Row]:
    start_key, run_key = jax.random.split(jax.random.key(seed))
    theta = jnp.asarray(START)
    start = problem.particles(start_key, NUM_PARTICLES, theta)
    model, back = noncentred(problem.model)
    z = jax.vmap(back.inverse, in_axes=(None, 0))(theta, start)
    # The curvature of g1 is 1 for the toy model and at most about 100 for the logistic model.
    step, smoothing = (0.1, 0.2) if problem.name == "toy" else (0.01, 0.02)
    runs: list[tuple[str, Model, Algorithm, Any, Save]] = [
        ("MYIPLA", problem.model, MYIPLA(step / 1.5, smoothing), start, Save()),
        ("PIPGLA", problem.model, PIPGLA(step), start, Save()),
        (
            "PIPGLA, non-centred, antithetic",
            model,
            PIPGLA(step, theta_scale=5 / problem.dimension, theta_noise=False, antithetic=True),
            z,
            Save(quantity=back),
        ),
    ]
    rows = []
    for name, model, algorithm, particles, save in runs:
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
        if result.status is Status.INTERRUPTED:  # a table of an unfinished run would mislead
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
        position = np.arange(len(mean)) + offset
        axes[0].errorbar(position, mean, 2 * sd, fmt=".", ms=4, lw=0.8, label=row.name)
    axes[0].set(xlabel="coefficient", ylabel="posterior mean ± 2 sd")
    axes[0].legend(fontsize=8, frameon=False, ncols=3)
    return Figure(
        figure, "The 50 coefficients of the logistic regression: mean and standard deviation."
    )


def _versions() -> str:
    return ", ".join(f"{name} {version}" for name, version in provenance().items())
