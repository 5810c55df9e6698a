"""User errors as one line on standard error, without a traceback."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer

from pipla._extras import MissingExtraError

#: Warnings are among them for those who make warnings errors.
_USER_ERRORS = (
    *(ValueError, OSError, EOFError, ArithmeticError, MemoryError),
    *(MissingExtraError, UserWarning),
)


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


def _one_line_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"pipla: warning: {' '.join(str(message).split())}", file=sys.stderr)
