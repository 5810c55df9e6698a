"""The command line: parses, calls the library, prints. No mathematics."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pipla.operators.blur import Boundary

app = typer.Typer(
    help="Maximum marginal likelihood in latent variable models with kinks.",
    no_args_is_help=True,
    add_completion=False,
)

experiment = typer.Typer(
    help="The paper's tables and figures: as published, corrected, and by the recommended rule.",
    no_args_is_help=True,
)
app.add_typer(experiment, name="experiment")


def main() -> None:
    """The entry point `pipla`: one CPU device per core, so that sweeps use them all."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        import jax

        # Not by the variable: JAX read it when it was imported, and has not started yet.
        jax.config.update("jax_num_cpu_devices", cores)
    app()


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from pipla._version import __version__

        print(f"pipla {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the figures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
) -> None:
    """Learn theta of two small models with three algorithms; write a page about it."""
    from pipla.cli.demo import demo as run_demo

    with _one_line_errors():
        try:
            table = run_demo(out, seed)
        except KeyboardInterrupt:
            print("\nStopped; nothing was written.")
            raise typer.Exit(130) from None
    print(table.text())
    print(f"\nThe page: {out / 'report.html'}")


@experiment.command("list")
def experiment_list() -> None:
    """What there is, with its presets."""
    from pipla.experiments import find, names
    from pipla.report.page import Table

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


@experiment.command("run")
def experiment_run(
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
    """Run an experiment; run it again to go on where it was interrupted.

    With PIPLA_DATA set to a folder that holds the authors' files, their data are used.
    """
    import jax

    if float64:  # before the first array is made
        jax.config.update("jax_enable_x64", True)
    from pipla.experiments import run
    from pipla.experiments.page import summary_table

    wanted = None if algorithms is None else [a.strip() for a in algorithms.split(",") if a.strip()]
    with _one_line_errors():
        try:
            results = run(
                name,
                preset,
                algorithms=wanted,
                replicates=replicates,
                seed=seed,
                out=out,
                say=lambda line: print(line, flush=True),
            )
        except KeyboardInterrupt:
            print("\nStopped. Finished rows are kept; the same command goes on from here.")
            raise typer.Exit(130) from None
    print(f"\n{summary_table(results).text()}")


@experiment.command("compare")
def experiment_compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
) -> None:
    """Show several runs beside each other."""
    from pipla.experiments.page import comparison_table

    with _one_line_errors():
        print(comparison_table(folders).text())


@app.command()
def deblur(
    picture: Annotated[Path, typer.Argument(help="PNG, TIFF or NPY; grey or colour.")],
    blur: Annotated[str, typer.Option(help="box:9, gaussian:2 or a file psf.npy.")],
    boundary: Annotated[
        Boundary,
        typer.Option(help="What the blur saw beyond the edge: circular, reflect or renormalised."),
    ] = "circular",
    noise: Annotated[
        str, typer.Option(help="Standard deviation of the noise; auto estimates, learn learns it.")
    ] = "auto",
    isotropic: Annotated[bool, typer.Option("--isotropic", help="Isotropic variation.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder; by default beside the picture.")] = None,
) -> None:
    """Restore a blurred, noisy picture; how much to smooth is learned."""
    from pipla.cli.deblur import deblur as run_deblur

    out = out or picture.parent / f"{picture.stem}-restored"
    with _one_line_errors():
        try:
            run_deblur(
                picture,
                blur,
                boundary=boundary,
                noise=noise,
                isotropic=isotropic,
                seed=seed,
                out=out,
            )
        except KeyboardInterrupt:
            print("\nStopped before anything could be averaged; nothing was written.")
            raise typer.Exit(130) from None
    print(f"The page: {out / 'report.html'}")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of an experiment's run.")],
) -> None:
    """Rebuild an experiment's page and figures from its results."""
    from pipla.experiments.page import rebuild

    with _one_line_errors():
        print(f"The page: {rebuild(folder)}")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """What the user did wrong in one line and exit code 2, without a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        print(f"pipla: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(2) from None
