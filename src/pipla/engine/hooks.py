"""A progress bar on the host, between compiled chunks: theta, steps and time left."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import PyTree


class Progress:
    """A context manager that shows how far a run is; does nothing when not wanted.

    `wanted=None` shows the bar on a terminal and nowhere else.
    """

    def __init__(self, name: str, total: int, wanted: bool | None = None) -> None:
        self._name, self._total = name, total
        self._shown = sys.stderr.isatty() if wanted is None else wanted
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[theta]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self._name, total=self._total, theta="compiling")
            self._bar.start()
        return self

    def update(self, done: int, theta: PyTree) -> None:
        """Show that `done` steps are done and where theta is."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, theta=summary(theta))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def summary(theta: PyTree, most: int = 3) -> str:
    """`theta -4.61` or `theta (0.12, -3.4, ...)`: the first few numbers, four digits each."""
    numbers = [f"{v:.4g}" for leaf in jax.tree.leaves(theta) for v in np.ravel(leaf)[: most + 1]]
    shown = ", ".join(numbers[:most]) + (", ..." if len(numbers) > most else "")
    return f"theta {shown}" if len(numbers) == 1 else f"theta ({shown})"
