"""One figure of a run: theta's traces, their autocorrelation, the step size, marginals of x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from pipla.report.plots import COLUMNS, new_mosaic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The answer, what it is compared with, and what is left out.
BLUE, ORANGE, GREY = "#1f6fb4", "#e08214", "#8a8a8a"
#: Marginals of x in one row.
MOST_MARGINALS = 4


class StepSizes(NamedTuple):
    """Estimates at a step size, at its half, and extrapolated to 0."""

    step_size: float
    estimates: tuple[float, float, float]
    errors: tuple[float, float, float]  # of Monte Carlo
    stderr: float  # of the maximiser
    order: float  # the power of the step size that the bias is proportional to


class Series(NamedTuple):
    """One number of theta over the steps of a run.

    Attributes:
        name: of the number.
        traces: by label; the one that the estimate is from comes last.
        burn_in: the steps that are left out of the estimate.
        estimate: the estimate.
        correlation: the autocorrelation of the last trace after burn-in, at the lags 0, 1, ….
        effective_size: the number of independent values that this trace is worth.
        interval: the ends of an interval, where there is one, and its name.
        step_sizes: what the step size does to the estimate, where that is known.
    """

    name: str
    traces: Mapping[str, Float[np.ndarray, " t"]]
    burn_in: int
    estimate: float
    correlation: Float[np.ndarray, " lags"]
    effective_size: float
    interval: tuple[float, float] | None = None
    interval_name: str = "90 % interval"
    step_sizes: StepSizes | None = None


class Marginal(NamedTuple):
    """Samples of one number of x, with its mean and the ends of an interval."""

    name: str
    samples: Float[np.ndarray, " n"]
    mean: float
    interval: tuple[float, float] | None = None


def run_figure(series: Sequence[Series], marginals: Sequence[Marginal], title: str) -> Figure:
    """A row of axes for each number of theta, and one for x."""
    wide = any(each.step_sizes is not None for each in series)
    rows: list[dict[str, int]] = []
    for i in range(len(series)):
        extrapolation = {f"step {i}": 3} if wide else {}
        rows.append({f"trace {i}": 6 if wide else 9, f"lags {i}": 3} | extrapolation)
    if marginals:
        rows.append({f"x {i}": COLUMNS // MOST_MARGINALS for i in range(len(marginals))})
    figure, axes = new_mosaic(rows, 10.0, 2.1)
    for i, each in enumerate(series):
        _draw_traces(axes[f"trace {i}"], each)
        _draw_correlation(axes[f"lags {i}"], each)
        if each.step_sizes is not None:
            _draw_step_sizes(axes[f"step {i}"], each.step_sizes)
    for i, marginal in enumerate(marginals):
        _draw_marginal(axes[f"x {i}"], marginal)
    if series:
        last = len(series) - 1
        axes["trace 0"].set_title("trace", fontsize=9)
        axes["lags 0"].set_title("autocorrelation", fontsize=9)
        axes[f"trace {last}"].set_xlabel("step", fontsize=8)
        axes[f"lags {last}"].set_xlabel("lag in steps", fontsize=8)
        handles, labels = axes["trace 0"].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), fontsize=8)
        if wide:
            axes["step 0"].set_title("estimate by step size", fontsize=9)
            axes[f"step {last}"].set_xlabel("step size", fontsize=8)
    for axis in axes.values():
        axis.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return figure


def _draw_traces(axis: Any, series: Series) -> None:
    colours = [ORANGE] * (len(series.traces) - 1) + [BLUE]
    for (label, values), colour in zip(series.traces.items(), colours, strict=True):
        axis.plot(np.arange(1, len(values) + 1), values, color=colour, lw=0.7, label=label)
    length = max(map(len, series.traces.values()))
    axis.axvspan(0, series.burn_in, color=GREY, alpha=0.25, lw=0, label="burn-in")
    if series.interval is not None and np.all(np.isfinite(series.interval)):
        span, label = [series.burn_in, length], series.interval_name
        axis.fill_between(span, *series.interval, color=BLUE, alpha=0.15, lw=0, label=label)
    line = {"color": "black", "lw": 1.0, "ls": (0, (5, 3)), "label": "estimate"}
    axis.hlines(series.estimate, series.burn_in, length, **line)
    axis.set_xlim(0, length)
    axis.set_ylim(*_limits(series))
    axis.set_ylabel(_short(series.name), fontsize=8)


def _limits(series: Series) -> tuple[float, float]:
    """Room for what comes after burn-in and the interval; of the way there, for as much again."""
    settled = [values[series.burn_in :] for values in series.traces.values()]
    ends = [end for end in series.interval or () if np.isfinite(end)]
    wanted = np.concatenate([*settled, ends, [series.estimate]])
    everything = np.concatenate([*series.traces.values(), wanted])
    low, high = np.min(wanted), np.max(wanted)
    room = max(high - low, 1e-3 * abs(series.estimate), 1e-12)
    low, high = max(everything.min(), low - room / 2), min(everything.max(), high + room / 2)
    return float(low - 0.06 * room), float(high + 0.06 * room)


def _draw_correlation(axis: Any, series: Series) -> None:
    """Up to three times the lag at which it has died out."""
    usable = series.correlation[: max(len(series.correlation) // 2, 2)]
    died_out = int(np.argmax(usable < 0.05)) or len(usable)
    shown = usable[: max(3 * died_out, 20)]
    axis.fill_between(np.arange(len(shown)), shown, color=BLUE, alpha=0.3, lw=0)
    axis.plot(shown, color=BLUE, lw=1)
    axis.axhline(0, color="black", lw=0.6)
    axis.set_ylim(min(-0.1, float(shown.min())), 1.02)
    axis.set_xlim(0, max(len(shown) - 1, 1))
    if np.isfinite(series.effective_size):
        text = f"effective size {series.effective_size:.0f}"
        axis.text(0.97, 0.93, text, transform=axis.transAxes, ha="right", va="top", fontsize=8)


def _draw_step_sizes(axis: Any, step_sizes: StepSizes) -> None:
    """The band is a tenth of the standard error: what the fit tolerates by default."""
    size, estimates = step_sizes.step_size, step_sizes.estimates
    places = [size, size / 2, 0.0]
    if np.isfinite(step_sizes.stderr):
        width = step_sizes.stderr / 10
        axis.axhspan(estimates[2] - width, estimates[2] + width, color=BLUE, alpha=0.15, lw=0)
    curve = np.linspace(0.0, 1.0, 40)
    bias = (estimates[0] - estimates[2]) * curve**step_sizes.order
    axis.plot(size * curve, estimates[2] + bias, color=GREY, lw=1, ls="--")
    dots = zip(places, estimates, step_sizes.errors, (ORANGE, BLUE, "black"), strict=True)
    for place, estimate, error, colour in dots:
        axis.errorbar(place, estimate, error, color=colour, fmt="o", ms=4, capsize=3)
    axis.set_xlim(-0.15 * size, 1.15 * size)
    axis.set_xticks(places, [f"{place:.3g}" for place in places])


def _draw_marginal(axis: Any, marginal: Marginal) -> None:
    finite = marginal.samples[np.isfinite(marginal.samples)]
    bins = int(np.clip(np.sqrt(len(finite)), 8, 40))
    axis.hist(finite, bins=bins, density=True, color=BLUE, alpha=0.45)
    axis.axvline(marginal.mean, color="black", lw=1.2)
    for end in marginal.interval or ():
        if np.isfinite(end):
            axis.axvline(end, color="black", lw=0.9, ls=":")
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.set_title(_short(marginal.name), fontsize=9)


def _short(name: str) -> str:
    return name if len(name) <= 24 else "…" + name[-23:]


def spread_out(total: int, most: int) -> list[int]:
    """The numbers of at most `most` of `total` things, evenly spaced from the first to the last.

    >>> spread_out(10, 4), spread_out(2, 4)
    ([0, 3, 6, 9], [0, 1])
    """
    return np.linspace(0, total - 1, min(most, total)).round().astype(int).tolist()
