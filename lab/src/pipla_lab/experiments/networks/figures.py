"""Figures of the experiments with networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipla.report import Figure, new_figure
from pipla_lab.experiments.networks.rows import NetworkRow
from pipla_lab.experiments.results import Results


def histograms(results: Results[NetworkRow], layer: str = "w") -> Figure | None:
    """The weights of one particle, a panel per row, each on its own scale."""
    shown = []
    for row in results.rows:
        density, edges = (results.curve(row, f"{name} {layer}") for name in ("density", "edges"))
        if density is not None and edges is not None:
            shown.append((row, density, edges))
    if not shown:
        return None
    count = -(-len(shown) // 4)
    figure, axes = new_figure(4, width=11, height=2.3 * count, rows=count)
    for axis in axes[len(shown) :]:
        axis.set_axis_off()
    for axis, (row, density, edges) in zip(axes, shown, strict=False):
        axis.stairs(density, edges, fill=True, alpha=0.6)
        axis.set_title(row.label, fontsize=8)
        axis.set_yticks([])
        axis.tick_params(labelsize=7)
    widths = [edges[-1] for _, _, edges in shown]
    return Figure(
        figure,
        "Weights of the first layer of one particle. Each panel has its own axis: the widest is "
        f"{max(widths) / min(widths):.3g} times the narrowest.",
    )


def traces(results: Results[NetworkRow], variants: Sequence[str]) -> Figure | None:
    """A learned scale against the steps, one line per row, a panel per variant."""
    panels = []
    for variant in variants:
        curves = [
            (row, results.curve(row, "trace")) for row in results.rows if row.variant == variant
        ]
        known = [(row, curve) for row, curve in curves if curve is not None]
        if known:
            panels.append((variant, known))
    if not panels:
        return None
    figure, axes = new_figure(len(panels), width=4 * len(panels), height=3.2)
    for axis, (variant, known) in zip(axes, panels, strict=True):
        for row, curve in known:
            axis.plot(curve[0], curve[1], label=_short(row))
        axis.set(title=variant, xlabel="step", ylabel="alpha")
        axis.legend(fontsize=7)
    return Figure(figure, "Alpha, the log scale of the first layer, against the steps.")


def collected(**figures: Figure | None) -> Mapping[str, Figure]:
    """Those figures that there are."""
    return {name: figure for name, figure in figures.items() if figure is not None}


def curves(
    results: Results[NetworkRow], names: Mapping[str, str], x: str, caption: str, **options: Any
) -> Figure | None:
    """Curves of the series against one of them, a panel per name.

    Arguments:
        names: of the series, with the labels of their axes.
        x: the name of the series that they are plotted against.
        options: of each axis.
    """
    known = [(row, results.curve(row, x)) for row in results.rows]
    shown = [(row, at) for row, at in known if at is not None]
    if not shown:
        return None
    figure, axes = new_figure(len(names), width=4 * len(names), height=3.4)
    for axis, (name, label) in zip(axes, names.items(), strict=True):
        for row, at in shown:
            curve = results.curve(row, name)
            if curve is not None:
                axis.plot(at, curve, marker=".", label=_short(row))
        axis.set(xlabel=x, ylabel=label, **options)
    axes[0].legend(fontsize=7)
    return Figure(figure, caption)


def _short(row: NetworkRow) -> str:
    return f"{row.algorithm}{', ' + row.detail if row.detail else ''}"
