"""A fit as a table: to read at 80 columns, and for pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipla.report.numbers import Numbers, aligned, interval, more, numbers_of, paragraph

if TYPE_CHECKING:
    from pipla.fitting.result import Fit

#: What the columns mean.
EXPLAINED = (
    "std. error: what the data leave open of theta; more data make it smaller. mcse: the noise of "
    "this run; more steps make it smaller. bias: of the step size, already removed; it "
    "is uncertain by its own size. The interval holds the first two."
)


def summary_of(fit: Fit, most: int) -> str:
    """The table of `Fit.summary`."""
    verdict = "converged" if fit.converged else "NOT CONVERGED"
    lines = [
        f"{verdict} after {fit.num_steps} steps of {fit.num_particles} particles "
        f"({fit.seconds:.1f} s, {fit.compile_seconds:.1f} s to compile)"
    ]
    for sentence in fit.warnings:
        lines += paragraph(f"WARNING: {sentence}.")
    theta, x = theta_numbers(fit, most), x_numbers(fit, most)
    lines += ["", *aligned(*theta_table(fit, theta)), *more(len(theta.names), theta.total)]
    lines += ["", *aligned(*x_table(x)), *more(len(x.names), x.total)]
    lines += paragraph(EXPLAINED)
    for sentence in fit.reasons:
        lines += paragraph(f"chosen: {sentence}.")
    return "\n".join(lines)


def theta_numbers(fit: Fit, most: int | None = None) -> Numbers:
    """Theta: estimate, standard error, both ends of the interval, Monte-Carlo error, bias."""
    columns = (fit.theta, fit.theta_stderr, *fit.theta_interval, fit.theta_mcse, fit.theta_bias)
    return numbers_of("theta", columns, most)


def x_numbers(fit: Fit, most: int | None = None) -> Numbers:
    """The mean of x, its standard deviation and two quantiles."""
    return numbers_of("x", (fit.x_mean, fit.x_sd, *fit.x_interval), most)


def theta_table(fit: Fit, theta: Numbers) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of theta and of the parameters."""
    head = ["", "estimate", "std. error", "95 % interval", "mcse", "bias"]
    rows = [
        [name, f"{value:.4g}", f"{error:.3g}", interval(low, high), f"{mcse:.2g}", f"{bias:.1g}"]
        for name, (value, error, low, high, mcse, bias) in zip(
            theta.names, theta.values, strict=True
        )
    ]
    rows += [
        [name, f"{value:.4g}", "", interval(low, high), "", ""]
        for name, (value, low, high) in fit.parameters.items()
    ]
    return head, rows


def x_table(x: Numbers) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of x."""
    rows = [
        [name, f"{mean:.4g}", f"{sd:.3g}", interval(low, high)]
        for name, (mean, sd, low, high) in zip(x.names, x.values, strict=True)
    ]
    return ["", "mean", "sd", "5 % to 95 %"], rows


def columns_of(fit: Fit) -> dict[str, Any]:
    """The columns of `Fit.to_pandas`."""
    theta, x, parameters = theta_numbers(fit), x_numbers(fit), fit.parameters
    middle = np.asarray(list(parameters.values()), np.float64).reshape(-1, 3)
    counts = (theta.total, len(parameters), x.total)

    def column(of_theta: Any, of_parameters: Any, of_x: Any) -> np.ndarray:
        parts = zip((of_theta, of_parameters, of_x), counts, strict=True)
        return np.concatenate([np.broadcast_to(np.asarray(part), n) for part, n in parts])

    nothing = np.nan
    return {
        "name": [*theta.names, *parameters, *x.names],
        "part": column("theta", "parameter", "x"),
        "estimate": column(theta.values[:, 0], middle[:, 0], x.values[:, 0]),
        "std_error": column(theta.values[:, 1], nothing, nothing),
        "sd": column(nothing, nothing, x.values[:, 1]),
        "low": column(theta.values[:, 2], middle[:, 1], x.values[:, 2]),
        "high": column(theta.values[:, 3], middle[:, 2], x.values[:, 3]),
        "level": column(0.95, 0.95, 0.9),
        "mcse": column(theta.values[:, 4], nothing, nothing),
        "bias": column(theta.values[:, 5], nothing, nothing),
    }
