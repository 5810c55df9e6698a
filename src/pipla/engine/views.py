"""A run as a table, as a figure, and as draws for ArviZ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from pipla import _trees
from pipla.diagnostics import autocorrelation, monte_carlo_error
from pipla.report.inference_data import inference_data, variables
from pipla.report.numbers import aligned, more, numbers_of, paragraph
from pipla.report.run_figure import MOST_MARGINALS, Marginal, Series, run_figure, spread_out

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipla.engine.result import Result


def summary_of(result: Result, most: int) -> str:
    """The table of `Result.summary`."""
    label = "" if result.algorithm is None else f"{result.algorithm.label}: "
    count = _trees.num_particles(_trees.split(result.particles)[0])
    lines = [
        f"{label}{result.status.value} after {result.num_steps} steps of {count} particles "
        f"({result.seconds:.1f} s, {result.compile_seconds:.1f} s to compile)"
    ]
    for finding in result.findings:
        lines += paragraph(f"WARNING: {finding}.")
    theta = numbers_of("theta", [result.theta, result.theta_mcse, result.theta_last], most)
    rows = [
        [name, f"{mean:.4g}", f"{error:.2g}", f"{last:.4g}"]
        for name, (mean, error, last) in zip(theta.names, theta.values, strict=True)
    ]
    lines += ["", *aligned(["", "average", "mcse", "last"], rows)]
    lines += more(len(theta.names), theta.total)
    if result.x_mean is not None:
        x = numbers_of("x", [result.x_mean, result.x_variance], most)
        rows = [
            [name, f"{mean:.4g}", f"{np.sqrt(variance):.3g}"]
            for name, (mean, variance) in zip(x.names, x.values, strict=True)
        ]
        lines += ["", *aligned(["", "mean", "sd"], rows), *more(len(x.names), x.total)]
    lines += paragraph(
        "average, mcse: of theta over the steps after burn-in, and its Monte-Carlo error, which "
        "more steps make smaller. It includes neither bias nor what the data leave open: "
        "pipla.fit estimates those, too."
    )
    return "\n".join(lines)


def figure_of(result: Result, most: int) -> Figure:
    """The figure of `Result.plot`."""
    traces = rows_of(result.theta_trace)
    names = numbers_of("theta", [_trees.first(result.theta_trace)]).names
    first = min(result.burn_in, len(traces) - 1)
    series = [
        series_of(name, {"theta": trace}, first, float(trace[first:].mean(dtype=np.float64)))
        for name, trace in zip(names[:most], traces.T, strict=False)
    ]
    found = _samples(result)
    samples = rows_of(found, axes=2)
    x = numbers_of("x", [jax.tree.map(lambda leaf: leaf[0, 0], found)])
    marginals = [
        Marginal(x.names[i], samples[..., i].ravel(), float(samples[..., i].mean()))
        for i in spread_out(x.total, MOST_MARGINALS)
    ]
    return run_figure(series, marginals, repr(result))


def draws_of(result: Result) -> Any:
    """The draws of `Result.to_arviz`."""
    first = min(result.burn_in, max(result.num_steps - 1, 0))
    trace = jax.tree.map(lambda leaf: leaf[first:][None], result.theta_trace)
    samples = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), _samples(result))
    return inference_data(
        {"posterior": variables("x", samples), "theta": variables("theta", trace)}
    )


def series_of(
    name: str,
    traces: Mapping[str, Float[np.ndarray, " t"]],
    burn_in: int,
    estimate: float,
    **more: Any,
) -> Series:
    """One number of theta with the autocorrelation of its last trace; `more` is as in `Series`."""
    settled = list(traces.values())[-1][burn_in:]
    error = float(monte_carlo_error(settled))
    size = float(settled.var(dtype=np.float64)) / error**2 if error > 0 else float("nan")
    return Series(name, traces, burn_in, estimate, autocorrelation(settled), size, **more)


def rows_of(tree: PyTree, axes: int = 1) -> Float[np.ndarray, "... numbers"]:
    """The leaves of a tree side by side; their first `axes` axes stay."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(*leaf.shape[:axes], -1) for leaf in leaves], axis=axes)


def _samples(result: Result) -> PyTree:
    """Particles saved after burn-in (draws, particles, x); without them, the last ones.

    The last particles are draws of one chain: with one draw each, chains would say nothing.
    """
    every = result.snapshot.particles_every
    before = 0 if every is None else result.burn_in // every
    saved = jax.tree.map(lambda leaf: leaf[before:], result.saved_particles)
    if jax.tree.leaves(saved) and len(jax.tree.leaves(saved)[0]):
        return saved
    learned = _trees.split(result.particles)[0]
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], learned)
