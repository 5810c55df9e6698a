"""The command line: parses, calls the library, prints. No mathematics."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Maximum marginal likelihood in latent variable models with kinks.",
    no_args_is_help=True,
    add_completion=False,
)


def main() -> None:
    """The entry point `pipla`: one CPU device per core, so that sweeps use them all."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(cores))
    app()


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from pipla import __version__

        print(f"pipla {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the figures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
) -> None:
    """Learn theta of two small models with three algorithms; write a page about it."""
    from pipla.demo import demo as run_demo

    table = run_demo(out, seed)
    print(table.text())
    print(f"\nThe page: {out / 'report.html'}")
