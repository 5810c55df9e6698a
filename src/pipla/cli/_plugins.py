"""Commands of other packages: entry points of the group `pipla.commands`.

An entry point is a Typer application or a function, and its name is the name of the command:

    [project.entry-points."pipla.commands"]
    zoo = "pipla_lab.cli.zoo:app"

It is loaded when its command is called, or when the help lists it. The library's own commands come
first: an entry point cannot replace one.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from pipla._extras import MissingExtraError, missing_lab
from pipla.cli._errors import one_line_errors

GROUP = "pipla.commands"
#: The commands of pipla-lab: where it is not installed, calling one of them says what to install.
LAB = ("experiment", "report", "theory", "zoo")


class Commands(TyperGroup):
    """The commands of an application, followed by those of other packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, as the help lists them."""
        own = super().list_commands(ctx)
        return own + sorted({found.name for found in entry_points(group=GROUP)} - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or `None`."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for found in entry_points(group=GROUP, name=cmd_name):
            return _loaded(found)
        if cmd_name in LAB:
            return _failing(cmd_name, missing_lab(f"the command 'pipla {cmd_name}'"))
        return None


def _loaded(found: EntryPoint) -> Any:
    """The command of an entry point; one that reports the error where it cannot be imported."""
    try:
        target = found.load()
    except Exception as error:  # somebody else's module
        said = f"the command {found.name!r} of {found.value} cannot be loaded: {error}"
        return _failing(found.name, MissingExtraError(said))
    if isinstance(target, typer.Typer):
        command: Any = get_command(target)
    else:
        command = _command(found.name, target)
    _report_errors(command)
    command.name = found.name
    return command


def _report_errors(command: Any) -> None:
    """Let the command, and each command inside it, print user errors in one line."""
    inside = getattr(command, "commands", None)
    for each in (inside or {}).values():
        _report_errors(each)
    if inside is None:
        command.callback = one_line_errors(command.callback)


def _failing(name: str, error: Exception) -> Any:
    """A command that reports this error, whatever its arguments are."""

    def fail() -> None:
        raise error

    anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    return _command(name, one_line_errors(fail), help=str(error), context_settings=anything)


def _command(name: str, function: Any, **options: Any) -> Any:
    application = typer.Typer(add_completion=False)
    application.command(name, **options)(function)
    return get_command(application)
