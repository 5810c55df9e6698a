"""`pipla demo`: learn theta of two models, by `pipla.fit` and by two algorithms of the paper."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jaxtyping import Array

from pipla import _checks
from pipla.algorithms import MYIPLA, PIPGLA
from pipla.algorithms.base import Algorithm
from pipla.diagnostics import ConvergenceWarning, Finding
from pipla.engine.result import Status, provenance
from pipla.engine.run import run
from pipla.fitting import Fit, fit
from pipla.problems import Problem, logistic, toy
from pipla.report import Figure, Section, Table, Text, fixed, new_figure, write_page
from pipla.report.numbers import paragraph
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
    """One algorithm on one problem."""

    problem: Problem
    name: str
    theta: float
    mcse: float
    interval: str | None
    trace: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    seconds: float
    findings: tuple[Finding, ...] = ()

    @property
    def doubts(self) -> list[str]:
        """What speaks against this row, with its name."""
        return [f"{self.problem.name}, {self.name}: {finding}." for finding in self.findings]


def command(
    out: Annotated[Path, typer.Option(help="Folder for the page and the figures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
) -> None:
    """Learn theta of two small models by fit and by the paper's algorithms, and write a page."""
    try:
        table, doubts = write_demo(out, seed)
    except KeyboardInterrupt:
        print("\nStopped; nothing was written.")
        raise typer.Exit(130) from None
    print(table.text())
    for sentence in doubts:
        print("\n".join(paragraph(f"WARNING: {sentence}")))
    print(f"\nThe page: {out / 'report.html'}")


def write_demo(out: Path, seed: int = 0, progress: bool | None = None) -> tuple[Table, list[str]]:
    """Run the demo, write `out/report.html` and the figures; the table, and doubts about rows."""
    require_matplotlib()
    _checks.seed(seed)
    out.mkdir(parents=True, exist_ok=True)
    rows = [row for problem in (toy(), logistic()) for row in _fit(problem, seed, progress)]
    table, doubts = _table(rows), [sentence for row in rows for sentence in row.doubts]
    figures = [_traces(rows), _coefficients(rows)]
    for number, figure in enumerate(figures, start=1):
        (out / f"figure-{number}.png").write_bytes(figure.png())
    write_page(
        out / "report.html",
        "pipla demo",
        "Theta is the centre of a Laplace prior on 50 latent variables. It is learned by maximum "
        "marginal likelihood while the latent variables are sampled.",
        [
            Section("Estimates", [table, *map(Text, doubts), Text(_conclusion(doubts))]),
            Section("How to read it", [Text(_READING)]),
            Section("Theta", [figures[0]]),
            Section("The posterior", [figures[1]]),
            Section("Reproduce", [Text(f"pipla demo --seed {seed}", code=True), Text(_versions())]),
        ],
    )
    return table, doubts


def _conclusion(doubts: list[str]) -> str:
    """What to conclude from the table."""
    if not doubts:
        return "No run had anything to say against its own answer: the rows can be compared."
    return (
        "Do not rely on the errors of the rows that are named above: these runs were too short, "
        "or their steps too long. Rely on the other rows, of which fit chooses its own steps and "
        "stops when it has converged."
    )


_READING = (
    "“± error” is the Monte-Carlo error of the average, not the bias. The toy model’s marginal "
    "likelihood is known in closed form, so there the distance to the maximiser can be seen: up to "
    "about two errors it is chance, beyond that it is the bias of the step size (and, for MYIPLA, "
    "of the smoothing), which fit removes. Its interval is about theta itself: what the data leave "
    "open. The logistic data are drawn by the paper’s recipe; they are not the authors’ own, so "
    "the paper’s column says only roughly what to expect."
)


def _fit(problem: Problem, seed: int, progress: bool | None) -> list[Row]:
    start_key, run_key = jax.random.split(jax.random.key(seed))
    theta = jnp.asarray(START)
    start = problem.particles(start_key, NUM_PARTICLES, theta)
    with warnings.catch_warnings():  # the rows say them, with their names
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _rows(problem, theta, start, run_key, progress)


def _rows(
    problem: Problem, theta: Array, start: Array, key: Array, progress: bool | None
) -> list[Row]:
    found = fit(problem.model, theta=theta, particles=start, key=key, progress=progress)
    rows = [_fitted(problem, found)]
    # The curvature of g1 is 1 for the toy model and at most about 100 for the logistic model.
    step, smoothing = (0.1, 0.2) if problem.name == "toy" else (0.01, 0.02)
    algorithms: list[Algorithm] = [MYIPLA(step / 1.5, smoothing), PIPGLA(step)]
    for algorithm in algorithms:
        result = run(
            problem.model,
            algorithm,
            theta=theta,
            particles=start,
            num_steps=NUM_STEPS,
            key=key,
            progress=progress,
            check=False,
        )
        _stop_if_interrupted(result.status)
        sd = np.sqrt(np.asarray(result.x_variance))
        mean = np.asarray(result.x_mean)
        numbers = (float(result.theta), float(result.theta_mcse), None, result.theta_trace)
        rest = (mean, sd, result.seconds, result.findings)
        rows.append(Row(problem, algorithm.label, *numbers, *rest))
    return rows


def _fitted(problem: Problem, found: Fit) -> Row:
    _stop_if_interrupted(found.status)
    low, high = map(float, found.theta_interval)
    interval = f"{low:.2f} to {high:.2f}" if np.isfinite(high - low) else None
    numbers = (float(found.theta), float(found.theta_mcse), interval, found.theta_trace.fine)
    mean, sd = np.asarray(found.x_mean), np.asarray(found.x_sd)
    return Row(problem, "fit", *numbers, mean, sd, found.seconds, found.findings)


def _stop_if_interrupted(status: Status) -> None:
    if status is Status.INTERRUPTED:  # a table of an unfinished run would mislead
        raise KeyboardInterrupt


def _table(rows: list[Row]) -> Table:
    return Table(
        ("model", "algorithm", "theta", "± error", "90 %", "exact maximiser", "paper", "seconds"),
        [
            (
                row.problem.name,
                row.name,
                fixed(row.theta, 4),
                fixed(row.mcse, 4),
                row.interval,
                fixed(row.problem.maximiser, 4),
                PAPER.get((row.problem.name, row.name)),
                fixed(row.seconds, 2),
            )
            for row in rows
        ],
        f"{NUM_PARTICLES} particles, started at theta = {START:g}. MYIPLA and PIPGLA: {NUM_STEPS} "
        "steps by hand-set numbers, averages over the second half; fit chooses and stops by "
        "itself.",
    )


def _traces(rows: list[Row]) -> Figure:
    names = list(dict.fromkeys(row.problem.name for row in rows))
    figure, axes = new_figure(len(names), width=9.0)
    for axis, name in zip(axes, names, strict=True):
        for row in rows:
            if row.problem.name == name:
                axis.plot(1 + np.arange(len(row.trace)), row.trace, lw=1, label=row.name)
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
        position = np.arange(len(row.mean)) + offset
        axes[0].errorbar(position, row.mean, 2 * row.sd, fmt=".", ms=4, lw=0.8, label=row.name)
    axes[0].set(xlabel="coefficient", ylabel="posterior mean ± 2 sd")
    axes[0].legend(fontsize=8, frameon=False, ncols=3)
    return Figure(
        figure, "The 50 coefficients of the logistic regression: mean and standard deviation."
    )


def _versions() -> str:
    return ", ".join(f"{name} {version}" for name, version in provenance().items())
