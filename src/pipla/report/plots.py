"""Matplotlib figures in one style."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipla._extras import extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The width of a figure of several axes, in the units of `new_mosaic`.
COLUMNS = 12


def require_matplotlib() -> None:
    """Raise the error about a missing matplotlib now, before a long run and not after it."""
    with extra("report", "drawing figures"):
        import matplotlib  # noqa: F401


def new_figure(
    columns: int = 1, width: float = 7.0, height: float = 3.4, rows: int = 1
) -> tuple[Figure, list[Any]]:
    """A matplotlib figure and its axes, row by row; pyplot's global state is not touched.

    Arguments:
        columns, rows: the grid of axes.
        width, height: of the whole figure, in inches.
    """
    figure = _empty_figure(width, height)
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    _style(axes)
    return figure, axes


def new_mosaic(
    rows: Sequence[Mapping[str, int]], width: float, row_height: float
) -> tuple[Figure, dict[str, Any]]:
    """A matplotlib figure with rows of axes of different widths, and the axes by name.

    Arguments:
        rows: for each row the names of its axes with their widths, in twelfths of the figure; the
            rest of the row stays empty.
        width, row_height: in inches.
    """
    figure = _empty_figure(width, row_height * len(rows))
    layout: list[Any] = []
    for row in rows:
        names = [name for name, span in row.items() for _ in range(span)]
        layout.append(names + ["."] * (COLUMNS - len(names)))
    axes = figure.subplot_mosaic(layout, empty_sentinel=".")
    _style(axes.values())
    return figure, axes


def _empty_figure(width: float, height: float) -> Figure:
    with extra("report", "drawing figures"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _style(axes: Iterable[Any]) -> None:
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
