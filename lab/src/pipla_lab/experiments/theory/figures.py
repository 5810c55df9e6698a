"""The figures of the experiment `theory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipla.report import Figure, new_figure
from pipla_lab.experiments.results import Results

#: One colour per algorithm, in all figures.
_COLOURS = {"MYIPLA": "C0", "PIPGLA": "C1", "MYPGD": "C2", "PIPULA": "C3"}
_VARIABLES = {"N": "particles N", "n": "steps n", "gamma": r"step size $\gamma$"}


def theory_figures(results: Results[Any]) -> Mapping[str, Figure]:
    """Errors and bounds, terms, minimisers, chaos; those whose rows there are."""
    found = {
        "bounds": _bounds(results),
        "terms": _terms(results),
        "minimisers": _minimisers(results),
        "chaos": _chaos(results),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _rows(results: Results[Any], quantity: str) -> list[Any]:
    return [row for row in results.rows if row.quantity == quantity]


def _bounds(results: Results[Any]) -> Figure | None:
    rows = _rows(results, "error and bound")
    if not rows:
        return None
    figure, axes = new_figure(len(rows), width=2.6 * len(rows) + 0.6, height=3.2)
    for row, axis in zip(rows, axes, strict=True):
        grid = results.curve(row, "grid")
        assert grid is not None
        particles, error, stderr, bound = grid[:, 2], grid[:, 4], grid[:, 5], grid[:, 6]
        for number, count in enumerate(np.unique(particles)):
            chosen = particles == count
            axis.errorbar(
                bound[chosen],
                error[chosen],
                2 * stderr[chosen],
                fmt="o",
                ms=3,
                color=f"C{number}",
                label=f"N = {count:.0f}",
            )
        ends = [0.5 * float(error.min()), 2 * float(bound.max())]
        axis.plot(ends, ends, color="black", lw=0.8)
        axis.set(xscale="log", yscale="log", title=row.subject, xlabel="bound")
    axes[0].set_ylabel("error of theta")
    axes[0].legend(fontsize="small")
    text = (
        "Measured root mean square errors against their bounds, for all step sizes, smoothings, "
        "particles and checkpoints; bars are two standard errors. On the line the bound would be "
        "attained; above it, broken."
    )
    return Figure(figure, text)


def _terms(results: Results[Any]) -> Figure | None:
    known = ("concentration", "convergence", "discretisation")
    kinds = [kind for kind in known if _rows(results, kind)]
    if not kinds:
        return None
    figure, axes = new_figure(len(kinds), width=3.6 * len(kinds), height=3.4)
    for kind, axis in zip(kinds, axes, strict=True):
        for row in _rows(results, kind):
            x, y, limit = (results.curve(row, name) for name in ("x", "y", "bound"))
            colour = _COLOURS[row.subject]
            axis.plot(x, y, "-" if kind == "convergence" else "o-", ms=3, color=colour)
            axis.plot(x, limit, "--", color=colour, lw=1)
            axis.plot([], [], color=colour, label=f"{row.subject} {row.slope:.2f}")
        variable = _VARIABLES[_rows(results, kind)[0].variable]
        axis.set(title=kind, xlabel=variable, yscale="log")
        if kind != "convergence":
            axis.set_xscale("log")
        axis.legend(fontsize="small", title="slope")
    axes[0].set_ylabel("error of theta")
    text = (
        "What each term bounds (solid), and the term (dashed). Left: standard deviation of theta. "
        "Middle: distance between two copies with the same noise, the slope in units of "
        "log(1 - mu gamma). Right: distance to the target with infinitely many particles."
    )
    return Figure(figure, text)


def _minimisers(results: Results[Any]) -> Figure | None:
    rows = _rows(results, "smoothing")
    if not rows:
        return None
    figure, axes = new_figure(len(rows), width=2.7 * len(rows) + 0.4, height=3.3)
    for row, axis in zip(rows, axes, strict=True):
        x, y, limit = (results.curve(row, name) for name in ("x", "y", "bound"))
        axis.plot(x, y, "o-", ms=3, label=f"quadrature, slope {row.slope:.2f}")
        axis.plot(x, limit, "--", label="bound")
        paper = results.curve(row, "paper")
        if paper is not None:
            axis.plot(x, paper, ":", color="C3", label="the paper's bound")
        axis.set(xscale="log", yscale="log", title=row.subject, xlabel=r"smoothing $\lambda$")
        assert x is not None
        axis.set_xticks(x[::2], [f"{value:.2g}" for value in x[::2]])
        axis.set_xticks([], minor=True)
        axis.legend(fontsize="x-small")
    axes[0].set_ylabel(r"$|\theta^*_\lambda - \theta^*|$")
    text = (
        "How far smoothing moves the maximiser of the marginal likelihood. The order is one, as "
        "the paper's proposition has it, or two where the gradient of g2 has one length. At a "
        "one-sided kink the constant of the proposition is too small (E20)."
    )
    return Figure(figure, text)


def _chaos(results: Results[Any]) -> Figure | None:
    rows = _rows(results, "propagation of chaos")
    if not rows:
        return None
    figure, (axis,) = new_figure(1, width=9.0)
    row = rows[0]
    x, y, stderr = (results.curve(row, name) for name in ("x", "y", "se"))
    assert x is not None
    assert y is not None
    assert stderr is not None
    axis.errorbar(x, y, 2 * stderr, fmt="o", ms=4, label=f"slope {row.slope:.3f}")
    middle = np.exp(np.mean(np.log(x))), np.exp(np.mean(np.log(y)))
    axis.plot(x, middle[1] * np.sqrt(middle[0] / x), "--", lw=1, label=r"$N^{-1/2}$")
    axis.set(
        xscale="log",
        yscale="log",
        xlabel=_VARIABLES["N"],
        ylabel=r"$\max_{t \leq T} |\theta^N_t - \theta_t|$",
    )
    axis.legend()
    text = (
        "Propagation of chaos: the largest distance over time between theta of MYIPLA with N "
        "particles and theta with infinitely many, computed on a grid. Bars are two standard "
        "errors over replicates."
    )
    return Figure(figure, text)
