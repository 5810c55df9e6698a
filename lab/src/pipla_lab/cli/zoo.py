"""`pipla zoo list` and `pipla zoo run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Small problems whose answers are known, and how far off a fit of them is.",
    no_args_is_help=True,
)


@app.command("list")
def list_all() -> None:
    """List the problems."""
    from pipla.report import Table
    from pipla_lab import zoo

    rows = [(problem.name, problem.about) for problem in zoo.all()]
    print(Table(("name", "what"), rows).text())


@app.command()
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which problems; all by default.")
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="Put these beside fit, with as many gradients: PIPGLA, MYIPLA, PIPULA, MYPGD, "
            "recommended (the rule before fit); separated by commas."
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option(help="The most gradients of each of these on a problem.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="The most seconds of each of these on a problem.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the table as a page there.")] = None,
    float64: Annotated[bool, typer.Option("--float64", help="Double precision.")] = False,
) -> None:
    """Fit problems whose answers are known, and show how far off the fits are."""
    import jax

    if float64:  # before the first array is made
        jax.config.update("jax_enable_x64", True)
    from pipla.report import Section, write_page
    from pipla_lab.zoo.accuracy import counts, measure, table

    peers = [] if algorithm is None else [each.strip() for each in algorithm.split(",")]
    rows = []
    for row in measure(names, peers, seed, most, seconds):
        rows.append(row)
        print(f"{row.problem} {row.algorithm}: {row.verdict}", flush=True)
    found = table(rows, most, seconds)
    print(f"\n{found.text()}\n\n{found.caption}")
    fits = [row for row in rows if row.algorithm == "fit"]
    right = sum(row.right for row in fits)
    silent = sum(row.verdict == "WRONG" for row in fits)
    words = f"fit is right on {right} of {len(fits)}, and wrong without a word on {silent}."
    print(words)
    sections = [Section("Errors", [found])]
    if peers:
        verdicts = counts(rows)
        print(f"\n{verdicts.text()}")
        sections.insert(0, Section("Verdicts", [verdicts]))
    if out is not None:
        print(f"page: {write_page(out, 'The zoo', words, sections)}")
