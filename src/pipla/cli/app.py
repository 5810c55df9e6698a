"""The Typer application: registers the commands; other packages may add more."""

from __future__ import annotations

from typing import Annotated

import typer

from pipla.cli import complete, deblur, demo, denoise, inpaint, regress
from pipla.cli._errors import one_line_errors
from pipla.cli._plugins import Commands

app = typer.Typer(
    cls=Commands,
    help="Maximum marginal likelihood in latent variable models with kinks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from pipla._version import __version__

        print(f"pipla {__version__}")
        raise typer.Exit


app.command("demo")(one_line_errors(demo.command))
app.command("complete")(one_line_errors(complete.command))
app.command("deblur")(one_line_errors(deblur.command))
app.command("denoise")(one_line_errors(denoise.command))
app.command("inpaint")(one_line_errors(inpaint.command))
app.command("regress")(one_line_errors(regress.command))
