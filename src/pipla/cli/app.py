"""The Typer application: registers the commands, and turns user errors into one line."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from pipla._extras import MissingExtraError
from pipla.cli import complete, deblur, demo, denoise, experiment, inpaint, regress, theory, zoo

app = typer.Typer(
    help="Maximum marginal likelihood in latent variable models with kinks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
experiments = typer.Typer(
    help="The paper's tables and figures: as published, corrected, and by the recommended rule.",
    no_args_is_help=True,
)
app.add_typer(experiments, name="experiment")
problems = typer.Typer(
    help="Small problems whose answers are known, and how far off a fit of them is.",
    no_args_is_help=True,
)
app.add_typer(problems, name="zoo")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from pipla._version import __version__

        print(f"pipla {__version__}")
        raise typer.Exit


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with user errors printed in one line, without a traceback; the exit code is 2."""

    @functools.wraps(command)  # Typer reads the options from the signature
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _one_line_warning
                command(*args, **options)
        except _USER_ERRORS as error:
            said = " ".join(str(error).split()) or type(error).__name__
            print(f"pipla: {said}", file=sys.stderr)
            raise typer.Exit(2) from None

    return wrapped


#: Warnings are among them for those who make warnings errors.
_USER_ERRORS = (
    *(ValueError, OSError, EOFError, ArithmeticError, MemoryError),
    *(MissingExtraError, UserWarning),
)


def _one_line_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"pipla: warning: {' '.join(str(message).split())}", file=sys.stderr)


app.command("demo")(one_line_errors(demo.command))
app.command("complete")(one_line_errors(complete.command))
app.command("deblur")(one_line_errors(deblur.command))
app.command("denoise")(one_line_errors(denoise.command))
app.command("inpaint")(one_line_errors(inpaint.command))
app.command("regress")(one_line_errors(regress.command))
app.command("report")(one_line_errors(experiment.report))
app.command("theory")(one_line_errors(theory.command))
experiments.command("list")(one_line_errors(experiment.list_all))
experiments.command("run")(one_line_errors(experiment.run))
experiments.command("compare")(one_line_errors(experiment.compare))
problems.command("list")(one_line_errors(zoo.list_all))
problems.command("run")(one_line_errors(zoo.run))
