"""What commands on tables have in common: options, and the folder that they write."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipla import _files

Level = Annotated[float, typer.Option(help="The probability of all intervals.")]
Keep = Annotated[
    list[str] | None,
    typer.Option(help="A column to use though it seems to number the rows; may be repeated."),
]
Decimal = Annotated[
    Literal["auto", ".", ","], typer.Option(help="The decimal mark; auto: the file tells.")
]
Seed = Annotated[int, typer.Option(help="Seed of the random numbers.")]
Out = Annotated[Path | None, typer.Option(help="Folder; by default beside the table.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the folder of an earlier run.")]


def refuse_earlier(out: Path, names: Collection[str], force: bool) -> None:
    """Refuse to replace an earlier result; call it after all other arguments have been checked.

    Other folders are refused by `_files.claim`.
    """
    if force or not os.path.lexists(out) or not _files.may_replace(out, names):
        return
    if any(out.iterdir()):
        raise FileExistsError(
            f"path {str(out)!r} holds an earlier result; add --force to replace it, or choose "
            "another with --out."
        )
