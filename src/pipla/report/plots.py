"""Matplotlib figures in one style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipla._extras import extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    with extra("report", "drawing figures"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return figure, axes
