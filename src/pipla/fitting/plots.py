"""A fit as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from pipla._intervals import LEVEL, percent
from pipla.diagnostics import monte_carlo_error
from pipla.engine.views import rows_of, series_of
from pipla.fitting.summary import theta_numbers, x_numbers
from pipla.report.run_figure import (
    MOST_MARGINALS,
    Marginal,
    Series,
    StepSizes,
    run_figure,
    spread_out,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipla.fitting.result import Fit


def figure_of(fit: Fit, most: int, level: float = LEVEL) -> Figure:
    """The figure of `Fit.plot`."""
    theta, x = theta_numbers(fit, most, level), x_numbers(fit, None, level)
    coarse, fine = rows_of(fit.theta_trace.coarse), rows_of(fit.theta_trace.fine)
    series = [
        _series(fit, name, values, coarse[:, i], fine[:, i], level)
        for i, (name, values) in enumerate(zip(theta.names, theta.values, strict=True))
    ]
    samples = fit.record.fine_samples(fit.burn_in)
    marginals = []
    for i in spread_out(x.total, MOST_MARGINALS):
        mean, _, low, high = x.values[i]
        marginals.append(Marginal(x.names[i], samples[..., i].ravel(), mean, (low, high)))
    verdict = "converged" if fit.converged else "NOT converged"
    title = f"{verdict} after {fit.num_steps} steps of {fit.num_particles} particles"
    if theta.total > most:
        title += f"; {most} of {theta.total} numbers of theta"
    return run_figure(series, marginals, title)


def _series(
    fit: Fit,
    name: str,
    values: Float[np.ndarray, " columns"],
    coarse: Float[np.ndarray, " t"],
    fine: Float[np.ndarray, " t"],
    level: float = LEVEL,
) -> Series:
    estimate, stderr, low, high, mcse, _ = map(float, values)
    settled = [trace[fit.burn_in :].astype(np.float64) for trace in (coarse, fine)]
    means = [float(trace.mean()) for trace in settled]
    errors = [float(monte_carlo_error(trace)) for trace in settled]
    step_sizes = StepSizes(
        step_size=fit.step_size,
        estimates=(means[0], means[1], estimate),
        errors=(errors[0], errors[1], mcse),
        stderr=stderr,
        order=fit.order,
    )
    traces = {"step size": coarse, "half of it": fine}
    return series_of(
        name,
        traces,
        fit.burn_in,
        estimate,
        interval=(low, high),
        interval_name=f"{percent(level)} interval",
        step_sizes=step_sizes,
    )
