"""Figures of experiments about theta, drawn from results and series alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla.report import Figure, new_figure
from pipla_lab.experiments.results import Results
from pipla_lab.experiments.theta.findings import best_published, exponents
from pipla_lab.experiments.theta.rows import ThetaRow

COLOURS = {"published": "#b45309", "corrected": "#1d4ed8", "recommended": "#15803d"}
_GREY = "#94a3b8"


def table_figures(results: Results[ThetaRow]) -> dict[str, Figure]:
    """Traces, distance against evaluations, and bars of NMSE."""
    figures = {"distance": _distance(results)}
    if any(row.nmse_last is not None for row in results.rows):
        figures["nmse"] = _bars(results)
    figures["traces"] = _traces(results, results.rows, "Theta of up to eight runs of each row")
    return figures


def traces_figures(results: Results[ThetaRow]) -> dict[str, Figure]:
    """Theta from every start."""
    return {"traces": _traces(results, results.rows, "Theta from seven starting points")}


def _legend(axis: Any, **options: Any) -> None:
    """Add a legend if any line has a label."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=8, frameon=False, **options)


def _distance(results: Results[ThetaRow]) -> Figure:
    figure, axes = new_figure(2, width=10.5, height=4.0)
    best = best_published(results)
    for axis, name, title in (
        (axes[0], "rms", "the iterate itself"),
        (axes[1], "estimate_rms", "averaged over the last part of the run"),
    ):
        for row in results.rows:
            x, y = results.curve(row, "evaluations"), results.curve(row, name)
            if x is None or y is None or not np.isfinite(y).any():
                continue
            strong = row is best or row.variant == "recommended"
            axis.plot(
                x,
                y,
                color=COLOURS[row.variant] if strong else _GREY,
                lw=2.0 if strong else 0.7,
                zorder=3 if strong else 1,
                label=f"{row.label} ({'paper’s best' if row is best else 'ours'})"
                if strong
                else None,
            )
        axis.plot([], [], color=_GREY, lw=0.7, label="all other rows")
        error = results.reference.get("stderr") or 0.0
        if error:
            axis.axhline(error, color="black", lw=0.8, ls=":", label="error of the reference")
            axis.set_ylim(bottom=error / 10)  # room for the legend below
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="gradient evaluations per particle",
            ylabel="RMS distance to the reference",
            title=title,
        )
        _legend(axis, loc="lower left")
    return Figure(
        figure,
        "RMS over replicates of theta's distance to the reference maximiser, against the cost. "
        "Left: the iterates. Right: the estimate that would be reported at that cost.",
    )


def _bars(results: Results[ThetaRow]) -> Figure:
    from matplotlib.patches import Patch
    from matplotlib.ticker import LogFormatter

    figure, axes = new_figure(1, width=10.5, height=4.2)
    axis = axes[0]
    rows = [row for row in results.rows if row.nmse_last is not None]
    for place, row in enumerate(rows):
        printed = row.paper.get("nmse_last")
        if printed is not None:
            sd = row.paper.get("nmse_last_sd", 0.0)
            axis.bar(place - 0.2, printed, 0.38, color="#cbd5e1", yerr=sd, ecolor="#64748b")
        axis.bar(
            place + (0.2 if printed is not None else 0.0),
            row.nmse_last,
            0.38,
            color=COLOURS[row.variant],
            yerr=row.nmse_last_sd or 0.0,
            ecolor="#334155",
        )
    keys = [Patch(color="#cbd5e1", label="printed in the paper")]
    keys += [Patch(color=colour, label=f"ours, {name}") for name, colour in COLOURS.items()]
    truth = results.settings.get("truth")
    if truth:
        perfect = 100 * (results.reference["theta"] / truth - 1) ** 2
        keys.append(axis.axhline(perfect, color="black", lw=1, ls="--", label="of the maximiser"))
    heights = [h for r in rows for h in (r.nmse_last, r.paper.get("nmse_last")) if h]
    # The largest errors are hundreds of times the smallest.
    axis.set(yscale="log", ylim=(0.5 * min(heights, default=1.0), 3 * max(heights, default=1.0)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))
    axis.set_ylabel("NMSE of the last iterate, %")
    axis.set_xticks(range(len(rows)), [r.label for r in rows], rotation=50, ha="right", fontsize=8)
    axis.legend(handles=keys, fontsize=8, frameon=False)
    return Figure(
        figure,
        "NMSE against the generating theta: printed, reproduced, corrected and recommended. "
        "Whiskers: one standard deviation over runs. The dashed line is the NMSE of the "
        "maximiser itself (E6).",
    )


def _traces(results: Results[ThetaRow], rows: list[ThetaRow], caption: str) -> Figure:
    shown = [row for row in rows if results.curve(row, "sample") is not None]
    columns = min(4, max(len(shown), 1))
    lines = -(-len(shown) // columns)
    figure, axes = new_figure(columns, width=10.5, height=2.1 * lines + 0.3, rows=lines)
    target = results.reference["theta"]
    curves = {row.id: np.asarray(results.curve(row, "sample")) for row in shown}
    starts = [sample[:, 0] for sample in curves.values()]
    finite = np.concatenate([s[np.isfinite(s)] for s in starts] + [np.array([target])])
    low, high = finite.min(), finite.max()
    margin = 0.08 * (high - low) + 1e-9
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    for axis, row in zip(axes, shown, strict=False):
        axis.plot(
            results.curve(row, "steps"),
            curves[row.id].T,
            color=COLOURS[row.variant],
            lw=0.8,
            alpha=0.8,
        )
        axis.axhline(target, color="black", lw=1, ls="--")
        axis.set_ylim(low - margin, high + margin)
        second = "" if row.label == row.variant else row.variant
        axis.set_title(f"{row.label}\n{second}", fontsize=8)
        axis.set(xscale="log", xlim=(1, row.num_steps))
        if not len(curves[row.id]):
            axis.text(0.5, 0.3, "no run stayed finite", ha="center", transform=axis.transAxes)
        axis.minorticks_off()  # on twenty small axes minor ticks take most of the drawing time
        axis.tick_params(labelsize=7)
    figure.supxlabel("step", fontsize=9)
    figure.supylabel("theta", fontsize=9)
    return Figure(figure, f"{caption}; steps on a log scale; dashed: the reference maximiser.")


def rate_figures(results: Results[ThetaRow]) -> dict[str, Figure]:
    """Log variance against log N with the fitted slope, and NMSE against the steps."""
    figure, axes = new_figure(1, width=6.5, height=4.2)
    axis = axes[0]
    colours = dict(zip(exponents(results), ("#b45309", "#1d4ed8", "#15803d"), strict=False))
    for name, exponent in exponents(results).items():
        rows = [r for r in results.rows if r.algorithm == name and r.theta_variance]
        n = np.array([row.num_particles for row in rows], float)
        v = np.array([row.theta_variance for row in rows])
        level = np.exp(np.mean(np.log(v)) - exponent * np.mean(np.log(n)))
        axis.plot(n, v, "o", color=colours[name])
        axis.plot(
            n, level * n**exponent, color=colours[name], label=f"{name}: slope {exponent:.2f}"
        )
    if colours:
        axis.plot(n, 2.5 * v[0] * n[0] / n, color="black", ls=":", label="slope -1")
    axis.set(xscale="log", yscale="log", xlabel="particles N", ylabel="variance of theta")
    _legend(axis)
    evolution, axes = new_figure(max(len(colours), 1), width=10.5, height=3.8)
    for axis, name in zip(axes, colours, strict=False):
        rows = [r for r in results.rows if r.algorithm == name]
        for shade, row in zip(np.linspace(0.3, 1.0, len(rows)), rows, strict=True):
            x, y = results.curve(row, "steps"), results.curve(row, "nmse")
            if x is not None and y is not None:
                axis.plot(x, y, color=colours[name], alpha=shade, lw=1.2, label=row.detail)
        axis.set(title=name, xlabel="step", ylabel="NMSE, %", xscale="log", yscale="log")
        _legend(axis)
    return {
        "rate": Figure(
            figure,
            "Variance of theta over runs against the number of particles, with fitted lines.",
        ),
        "evolution": Figure(evolution, "Mean NMSE over runs against the step, for each N."),
    }


def ablation_figures(results: Results[ThetaRow]) -> dict[str, Figure]:
    """NMSE against the smoothing with confidence bands, for both proxes."""
    names = list(dict.fromkeys(row.algorithm for row in results.rows))
    figure, axes = new_figure(max(len(names), 1), width=11.0, height=3.8)
    for axis, name in zip(axes, names, strict=False):
        for prox, variant in (("approximate", "published"), ("exact", "corrected")):
            rows = [
                r
                for r in results.rows
                if (r.algorithm, r.prox) == (name, prox) and r.nmse_last is not None
            ]
            if not rows:
                continue
            x = np.array([row.smoothing for row in rows])
            y = np.array([row.nmse_last for row in rows])
            half = 1.96 * np.array([r.nmse_last_sd or 0.0 for r in rows])
            half /= np.sqrt([max(r.replicates * r.finite, 1) for r in rows])
            axis.plot(x, y, "o-", ms=3, color=COLOURS[variant], label=f"{prox} prox")
            axis.fill_between(
                x, np.maximum(y - half, 1e-3 * y), y + half, color=COLOURS[variant], alpha=0.2, lw=0
            )
        step = next(row.step_size for row in results.rows if row.algorithm == name)
        axis.set(title=f"{name}, step {step:g}", xscale="log", yscale="log")
        axis.set(xlabel="smoothing lam", ylabel="NMSE of the last iterate, %")
        _legend(axis)
    return {
        "ablation": Figure(
            figure,
            "NMSE over a grid of smoothings at the published step, with the published "
            "approximation of the prox and with the exact one; bands: 95 % confidence of the mean.",
        )
    }
