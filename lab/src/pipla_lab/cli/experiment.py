"""`pipla experiment list`, `run` and `compare`, and `pipla report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipla.report import Table

app = typer.Typer(
    help="The paper's tables and figures: as published, corrected, and by the recommended rule.",
    no_args_is_help=True,
)


@app.command("list")
def list_all() -> None:
    """List the experiments and their presets."""
    from pipla_lab.experiments import find, names

    rows = []
    for name in names():
        found = find(name)
        presets = ", ".join(
            f"{preset} ({amount.replicates} replicates)"
            for preset, amount in found.presets.items()
            if preset != "tiny"  # for tests
        )
        rows.append((name, found.title, len(found.entries), presets))
    print(Table(("name", "what", "rows", "presets"), rows).text())


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="Which one; see `pipla experiment list`.")],
    preset: Annotated[str, typer.Option(help="How much of it: quick or paper.")] = "quick",
    algorithms: Annotated[
        str | None,
        typer.Option(help="Only these algorithms or variants, separated by commas."),
    ] = None,
    replicates: Annotated[
        int | None, typer.Option(help="Runs of each row, instead of the preset's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for results, figures and page.")] = None,
    float64: Annotated[bool, typer.Option("--float64", help="Double precision.")] = False,
) -> None:
    """Run an experiment. If it was interrupted, the same command resumes it.

    If PIPLA_DATA is set to a folder with the authors' files, their data are used.
    """
    import jax

    from pipla_lab import checks

    checks.seed(seed)
    if float64:  # before the first array is made
        jax.config.update("jax_enable_x64", True)
    from pipla_lab.experiments import run as run_experiment
    from pipla_lab.experiments.page import summary_table

    wanted = None if algorithms is None else [a.strip() for a in algorithms.split(",") if a.strip()]
    try:
        results = run_experiment(
            name,
            preset,
            algorithms=wanted,
            replicates=replicates,
            seed=seed,
            out=out,
            log=lambda line: print(line, flush=True),
        )
    except KeyboardInterrupt:
        print("\nStopped. Finished rows are kept; run the same command again to resume.")
        raise typer.Exit(130) from None
    print(f"\n{summary_table(results).text()}")


@app.command()
def compare(folders: Annotated[list[Path], typer.Argument(help="Folders of runs.")]) -> None:
    """Compare several runs in one table."""
    from pipla_lab.experiments.page import comparison_table

    print(comparison_table(folders).text())


def report(folder: Annotated[Path, typer.Argument(help="The folder of an experiment.")]) -> None:
    """Rebuild the page and the figures of an experiment from its results."""
    from pipla_lab.experiments.page import rebuild

    print(f"The page: {rebuild(folder)}")
