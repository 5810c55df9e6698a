"""Optional dependencies: imported when they are needed; a missing one is named in a sentence."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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


def missing_lab(purpose: str) -> MissingExtraError:
    """What to say where pipla-lab is needed and not installed.

    >>> print(missing_lab("pipla.zoo"))
    pipla.zoo needs the package pipla-lab; install it with: pip install pipla-lab \
(in a checkout: pip install -e lab)
    """
    return MissingExtraError(
        f"{purpose} needs the package pipla-lab; install it with: pip install pipla-lab "
        "(in a checkout: pip install -e lab)",
        name="pipla_lab",
    )


def lazy(
    package: str, *modules: str, lab: tuple[str, ...] = (), **names: tuple[str, ...]
) -> Callable[[str], Any]:
    """A `__getattr__` for a package, which imports when something is first asked for.

    Arguments:
        package: its name, `__name__`.
        modules: modules of it.
        lab: modules of `pipla_lab`, the distribution pipla-lab, which may not be installed.
        names: for a module of it, the names that the package itself offers:
            `estimators=("TVDenoiser",)`.

    >>> lazy("pipla", "networks")("networks").__name__
    'pipla.networks'
    >>> lazy("pipla.completion", estimators=("LowRankCompletion",))("LowRankCompletion").__name__
    'LowRankCompletion'
    """
    homes = {name: module for module, inside in names.items() for name in inside}

    def getattribute(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        if name in lab:
            try:
                return importlib.import_module(f"pipla_lab.{name}")
            except ModuleNotFoundError as error:
                if error.name != "pipla_lab":
                    raise
                raise missing_lab(f"{package}.{name}") from error
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattribute
