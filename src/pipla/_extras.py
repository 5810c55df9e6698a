"""Optional dependencies: a missing one is named in a sentence with the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ImportError):
    """A package that an optional part of pipla needs is not installed."""


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Import optional packages inside this block.

    Arguments:
        name: the extra of pipla that brings them: `"imaging"`.
        purpose: what they are needed for, as the beginning of a sentence: `"reading images"`.

    >>> with extra("imaging", "reading images"):
    ...     import a_package_that_nobody_has
    Traceback (most recent call last):
    pipla._extras.MissingExtraError: reading images needs the package a_package_that_nobody_has; \
install it with: pip install 'pipla[imaging]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{purpose} needs the package {error.name}; install it with: "
            f"pip install 'pipla[{name}]'",
            name=error.name,
        ) from error
