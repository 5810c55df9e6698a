"""A fit as a table: to read at 80 columns, and for pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipla._intervals import LEVEL, percent
from pipla.report.numbers import Numbers, aligned, interval, more, numbers_of, paragraph

if TYPE_CHECKING:
    from pipla.fitting.result import Fit

#: What the columns mean.
EXPLAINED = (
    "The std. error is the uncertainty of theta given the data: more data make it smaller. The "
    "mcse is the Monte-Carlo error of this run: more steps make it smaller. The interval covers "
    "both. The bias is what the step size did to theta. It has been removed, and may be wrong by "
    "as much as it is large."
)


def summary_of(fit: Fit, most: int, level: float = LEVEL) -> str:
    """The table of `Fit.summary`."""
    verdict = "converged" if fit.converged else "NOT CONVERGED"
    lines = [
        f"{verdict} after {fit.num_steps} steps of {fit.num_particles} particles "
        f"({fit.seconds:.1f} s, {fit.compile_seconds:.1f} s to compile)"
    ]
    for finding in fit.findings:
        lines += paragraph(f"WARNING: {finding}.")
    theta, x = theta_numbers(fit, most, level), x_numbers(fit, most, level)
    for table, numbers in ((theta_table(fit, theta, level), theta), (x_table(x, level), x)):
        how = f"fit.summary(most={numbers.total}) shows all"
        lines += ["", *aligned(*table), *more(len(numbers.names), numbers.total, how)]
    lines += paragraph(EXPLAINED)
    for sentence in fit.reasons:
        lines += paragraph(f"chosen: {sentence}.")
    return "\n".join(lines)


def conclusions(fit: Fit, theta: Numbers, level: float = LEVEL) -> list[str]:
    """For each number of theta, what a reader may conclude, in one sentence."""
    found = []
    for name, (value, error, low, high, *_) in zip(theta.names, theta.values, strict=True):
        if not np.isfinite(error):
            found.append(
                f"{name}: do not use the estimate {value:.3g}: it has no standard error, and the "
                "warnings say why."
            )
        elif not fit.converged:
            found.append(
                f"{name} is about {value:.3g}, but the fit has not converged: do not rely on the "
                "estimate or its interval before you have read the warnings."
            )
        else:
            found.append(
                f"{name} is between {low:.3g} and {high:.3g} ({percent(level)} interval), most "
                f"likely {value:.3g}. The fit has converged: if the model is right, you can rely "
                "on this."
            )
    return found


def theta_numbers(fit: Fit, most: int | None = None, level: float = LEVEL) -> Numbers:
    """Theta: estimate, standard error, both ends of the interval, Monte-Carlo error, bias."""
    ends = fit.intervals(level).theta
    columns = (fit.theta, fit.theta_stderr, *ends, fit.theta_mcse, fit.theta_bias)
    return numbers_of("theta", columns, most)


def x_numbers(fit: Fit, most: int | None = None, level: float = LEVEL) -> Numbers:
    """The mean of x, its standard deviation and two quantiles."""
    return numbers_of("x", (fit.x_mean, fit.x_sd, *fit.intervals(level).x), most)


def theta_table(
    fit: Fit, theta: Numbers, level: float = LEVEL
) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of theta and of the parameters."""
    head = ["", "estimate", "std. error", f"{percent(level)} interval", "mcse", "bias"]
    rows = [
        [name, f"{value:.4g}", f"{error:.3g}", interval(low, high), f"{mcse:.2g}", f"{bias:.1g}"]
        for name, (value, error, low, high, mcse, bias) in zip(
            theta.names, theta.values, strict=True
        )
    ]
    rows += [
        [name, f"{value:.4g}", "", interval(low, high), "", ""]
        for name, (value, low, high) in fit.intervals(level).parameters.items()
    ]
    return head, rows


def x_table(x: Numbers, level: float = LEVEL) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of x."""
    rows = [
        [name, f"{mean:.4g}", f"{sd:.3g}", interval(low, high)]
        for name, (mean, sd, low, high) in zip(x.names, x.values, strict=True)
    ]
    return ["", "mean", "sd", f"{percent(level)} interval"], rows


def columns_of(fit: Fit, level: float = LEVEL) -> dict[str, Any]:
    """The columns of `Fit.to_pandas`."""
    theta, x = theta_numbers(fit, None, level), x_numbers(fit, None, level)
    parameters = fit.intervals(level).parameters
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
        "level": column(level, level, level),
        "mcse": column(theta.values[:, 4], nothing, nothing),
        "bias": column(theta.values[:, 5], nothing, nothing),
    }
