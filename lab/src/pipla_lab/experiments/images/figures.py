"""Figures of restored images: curves against steps or evaluations, and panels of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pipla.report import Figure, new_figure
from pipla_lab.experiments.images.rows import ImageRow
from pipla_lab.experiments.results import Results

COLOURS = {
    "published": "#b45309",
    "corrected": "#1d4ed8",
    "recommended": "#15803d",
    "peer": "#7c3aed",
    "oracle": "#64748b",
}
_STYLES = {"MYPGD": "-", "MYIPLA": "--", "PIPGLA": ":", "SAPG": "-", "SK-ROCK": "--"}
#: The most images in a row of a panel.
_COLUMNS = 7


def deblurring_figures(results: Results[ImageRow]) -> dict[str, Figure]:
    """For each image the panel and the curves of the paper."""
    return _by_image(results, panel=panel, curves=_curves)


def benchmark_figures(results: Results[ImageRow]) -> dict[str, Figure]:
    """Strength and PSNR against the cost, and the panel."""
    return _by_image(results, cost=_cost, panel=panel)


def _by_image(
    results: Results[ImageRow], **makers: Callable[[Results[ImageRow], str, list[ImageRow]], Figure]
) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name in dict.fromkeys(row.image for row in results.rows):
        rows = [row for row in results.rows if row.image == name]
        figures |= {f"{name}-{kind}": make(results, name, rows) for kind, make in makers.items()}
    return figures


def panel(results: Results[ImageRow], name: str, rows: list[ImageRow]) -> Figure:
    """The truth, the observation, the image of every row, and the posterior standard deviation."""
    shown: list[tuple[str, np.ndarray]] = []
    for title in ("truth", "observed"):
        image = results.curve(rows[0], title)
        if image is not None:
            shown.append((title, image))
    for row in rows:
        mean, most_probable = results.curve(row, "mean"), results.curve(row, "map")
        alone = row.algorithm == "MAP"
        if mean is not None:
            what = "" if alone or row.std is None else ", mean"
            shown.append((_title(row, what, row.psnr), mean))
        if most_probable is not None and row.variant == "recommended":
            shown.append((_title(row, ", MAP", row.map_psnr), most_probable))
    ours = next((row for row in rows if row.variant == "recommended"), None)
    std = None if ours is None else results.curve(ours, "std")
    count = len(shown) + (std is not None)
    lines = max(-(-count // _COLUMNS), 1)
    columns = max(-(-count // lines), 1)
    height, width = shown[0][1].shape if shown else (1, 1)
    across = 11.0 / columns * min(1.0, 1.8 * width / height)
    figure, axes = new_figure(
        columns, columns * across, lines * (across * height / width + 0.55), rows=lines
    )
    for axis in axes:
        axis.set_axis_off()
    for axis, (title, image) in zip(axes, shown, strict=False):
        axis.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="antialiased")
        axis.set_title(title, fontsize=7)
    if std is not None:
        axis, values = axes[len(shown)], std.astype(np.float64)
        top = float(np.percentile(values, 99.5))
        drawn = axis.imshow(values, cmap="magma", vmin=0, vmax=top)
        axis.set_title("RPL, posterior\nstandard\ndeviation", fontsize=7)
        # Below the image: a colour bar beside it would push all columns apart.
        below = axis.inset_axes((0.02, -0.06, 0.96, 0.03))
        figure.colorbar(drawn, cax=below, orientation="horizontal")
        below.tick_params(labelsize=6)
    return Figure(
        figure,
        f"{name}: the truth, the observation, and the image of each row (the posterior mean "
        "where there is one), with the PSNR; last, the posterior standard deviation of every "
        "pixel in grey levels.",
    )


def _title(row: ImageRow, what: str, decibels: float | None) -> str:
    """Three lines, because the guitar is narrow."""
    return f"{row.algorithm}{what}\n{row.variant}\n{decibels:.2f} dB"


def _curves(results: Results[ImageRow], name: str, rows: list[ImageRow]) -> Figure:
    figure, axes = new_figure(3, width=11.0, height=3.9)
    panels = (
        ("trace_steps", "trace", "theta"),
        ("look_steps", "look_particle_mse", "mean MSE of the particles"),
        ("look_steps", "look_particle_ssim", "mean SSIM of the particles"),
    )
    for axis, (along, curve, title) in zip(axes, panels, strict=True):
        for row in rows:
            _line(axis, row, results.curve(row, along), results.curve(row, curve))
        axis.set(xscale="log", xlabel="step", title=title)
    axes[1].set_yscale("log")
    _reference(axes[0], results, name)
    # One legend below: the lines of the three panels are the same.
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return Figure(
        figure,
        f"{name}: theta, and MSE and SSIM between the particles and the truth (means over the "
        "particles, as in the paper), against the step. Dashed in black: the reference theta.",
    )


def _cost(results: Results[ImageRow], name: str, rows: list[ImageRow]) -> Figure:
    figure, axes = new_figure(2, width=11.0, height=4.2)
    for row in rows:
        steps, trace = results.curve(row, "trace_steps"), results.curve(row, "trace")
        looks, level = results.curve(row, "look_steps"), results.curve(row, "look_psnr")
        if steps is None or trace is None or not row.evaluations or not row.num_steps:
            continue
        each = row.evaluations / row.num_steps
        _line(axes[0], row, steps * each, np.exp(trace))
        if looks is not None:
            _line(axes[1], row, looks * each, level)
    found = results.reference["images"][name]
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


def _line(axis: Any, row: ImageRow, x: np.ndarray | None, y: np.ndarray | None) -> None:
    if x is None or y is None:
        return
    strong = row.variant == "recommended"
    axis.plot(
        x,
        y,
        color=COLOURS[row.variant],
        ls=_STYLES.get(row.algorithm, "-"),
        lw=2.2 if strong else 1.2,
        zorder=3 if strong else 2,
        label=row.label,
    )


def _reference(axis: Any, results: Results[ImageRow], name: str) -> None:
    theta = results.reference["images"][name]["theta"]
    axis.axhline(theta, color="black", lw=1, ls="--")
