"""Figures of restorations: curves against steps or evaluations, and strips of pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pipla.experiments.results import Results
from pipla.report import Figure, new_figure

COLOURS = {
    "published": "#b45309",
    "corrected": "#1d4ed8",
    "recommended": "#15803d",
    "peer": "#7c3aed",
    "oracle": "#64748b",
}
_STYLES = {"MYPGD": "-", "MYIPLA": "--", "PIPGLA": ":", "SAPG": "-", "SK-ROCK": "--"}
#: Pictures in a line of a strip, at most.
_COLUMNS = 7


def deblurring_figures(results: Results) -> dict[str, Figure]:
    """For each picture the strip and the curves of the paper."""
    return _by_picture(results, strip=strip, curves=_curves)


def benchmark_figures(results: Results) -> dict[str, Figure]:
    """Strength and PSNR against the cost, and the strip."""
    return _by_picture(results, cost=_cost, strip=strip)


def _by_picture(
    results: Results, **makers: Callable[[Results, str, list[dict[str, Any]]], Figure]
) -> dict[str, Figure]:
    pictures: dict[str, Figure] = {}
    for name in dict.fromkeys(row["detail"] for row in results.rows):
        rows = [row for row in results.rows if row["detail"] == name]
        pictures |= {f"{name}-{kind}": make(results, name, rows) for kind, make in makers.items()}
    return pictures


def strip(results: Results, name: str, rows: list[dict[str, Any]]) -> Figure:
    """Truth, observed, every row's picture, and the posterior standard deviation."""
    panels: list[tuple[str, np.ndarray]] = []
    for title in ("truth", "observed"):
        shown = results.curve(rows[0], title)
        if shown is not None:
            panels.append((title, shown))
    for row in rows:
        mean, best = results.curve(row, "mean"), results.curve(row, "best")
        alone = row["algorithm"] == "MAP"
        if mean is not None:
            what = "" if alone or row["deviation"] is None else ", mean"
            panels.append((_title(row, what, row["psnr"]), mean))
        if best is not None and row["variant"] == "recommended":
            panels.append((_title(row, ", MAP", row["map_psnr"]), best))
    ours = next((row for row in rows if row["variant"] == "recommended"), None)
    deviation = None if ours is None else results.curve(ours, "deviation")
    count = len(panels) + (deviation is not None)
    lines = max(-(-count // _COLUMNS), 1)
    columns = max(-(-count // lines), 1)
    height, width = panels[0][1].shape if panels else (1, 1)
    across = 11.0 / columns * min(1.0, 1.8 * width / height)
    figure, axes = new_figure(
        columns, columns * across, lines * (across * height / width + 0.55), rows=lines
    )
    for axis in axes:
        axis.set_axis_off()
    for axis, (title, picture) in zip(axes, panels, strict=False):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="antialiased")
        axis.set_title(title, fontsize=7)
    if deviation is not None:
        axis, top = axes[len(panels)], float(np.percentile(deviation.astype(np.float64), 99.5))
        image = axis.imshow(deviation.astype(np.float64), cmap="magma", vmin=0, vmax=top)
        axis.set_title("RPL, posterior\nstandard\ndeviation", fontsize=7)
        # Below the picture: beside it, it would push all columns apart.
        below = axis.inset_axes((0.02, -0.06, 0.96, 0.03))
        figure.colorbar(image, cax=below, orientation="horizontal")
        below.tick_params(labelsize=6)
    return Figure(
        figure,
        f"{name}: the truth, what was observed, and what each row made of it (posterior means "
        "where there are such), with the PSNR; last, the posterior standard deviation of every "
        "pixel in grey levels.",
    )


def _title(row: dict[str, Any], what: str, decibels: float) -> str:
    """In three lines: the guitar is narrow."""
    return f"{row['algorithm']}{what}\n{row['variant']}\n{decibels:.2f} dB"


def _curves(results: Results, name: str, rows: list[dict[str, Any]]) -> Figure:
    figure, axes = new_figure(3, width=11.0, height=3.9)
    panels = (
        ("trace_steps", "trace", "theta"),
        ("look_steps", "look_cloud_mse", "MSE of the cloud"),
        ("look_steps", "look_cloud_ssim", "SSIM of the cloud"),
    )
    for axis, (along, curve, title) in zip(axes, panels, strict=True):
        for row in rows:
            _line(axis, row, results.curve(row, along), results.curve(row, curve))
        axis.set(xscale="log", xlabel="step", title=title)
    axes[1].set_yscale("log")
    _reference(axes[0], results, name)
    # One legend for all, below: the lines of the three panels are the same.
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return Figure(
        figure,
        f"{name}: theta, and MSE and SSIM between the particles and the truth (means over the "
        "cloud, as in the paper), against the step. Dashed in black: the reference theta.",
    )


def _cost(results: Results, name: str, rows: list[dict[str, Any]]) -> Figure:
    figure, axes = new_figure(2, width=11.0, height=4.2)
    for row in rows:
        steps, trace = results.curve(row, "trace_steps"), results.curve(row, "trace")
        looks, level = results.curve(row, "look_steps"), results.curve(row, "look_psnr")
        if steps is None or trace is None:
            continue
        each = row["evaluations"] / row["num_steps"]
        _line(axes[0], row, steps * each, np.exp(trace))
        if looks is not None:
            _line(axes[1], row, looks * each, level)
    found = results.reference["pictures"][name]
    axes[0].axhspan(0.98 * found["strength"], 1.02 * found["strength"], color="black", alpha=0.12)
    axes[0].set(xscale="log", yscale="log", title="strength t", xlabel="evaluations, all particles")
    axes[0].set_ylim(0.8 * found["strength"], 8 * found["strength"])
    axes[1].axhspan(found["psnr"] - 0.05, found["psnr"] + 0.05, color="black", alpha=0.12)
    axes[1].set(xscale="log", title="PSNR of the posterior mean so far, dB")
    axes[1].set(xlabel="evaluations, all particles")
    axes[1].set_ylim(bottom=found["psnr"] - 5)
    axes[0].legend(fontsize=8, frameon=False)
    return Figure(
        figure,
        f"{name}: strength and posterior mean (over the last half of the steps so far) against the "
        "cost. Grey: within 2 % of the reference strength, and .05 dB of the reference's mean.",
    )


def _line(axis: Any, row: dict[str, Any], x: np.ndarray | None, y: np.ndarray | None) -> None:
    if x is None or y is None:
        return
    strong = row["variant"] == "recommended"
    axis.plot(
        x,
        y,
        color=COLOURS[row["variant"]],
        ls=_STYLES.get(row["algorithm"], "-"),
        lw=2.2 if strong else 1.2,
        zorder=3 if strong else 2,
        label=row["label"],
    )


def _reference(axis: Any, results: Results, name: str) -> None:
    theta = results.reference["pictures"][name]["theta"]
    axis.axhline(theta, color="black", lw=1, ls="--")
