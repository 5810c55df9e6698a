"""A fit as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipla import _files
from pipla._intervals import LEVEL
from pipla.fitting.plots import figure_of
from pipla.fitting.summary import (
    EXPLAINED,
    conclusions,
    theta_numbers,
    theta_table,
    x_numbers,
    x_table,
)
from pipla.report.page import Figure, Section, Table, Text, sortable, write_page

if TYPE_CHECKING:
    from pipla.fitting.result import Fit

#: At most this many numbers of x are on the page.
MOST_X = 200
#: At most this many numbers of theta are drawn.
MOST_DRAWN = 5

CAPTION = (
    "Left: theta at the step size and at half of it, with burn-in, the estimate and its "
    "interval. Middle: the autocorrelation of the trace after burn-in. Right: the estimates at "
    "both step sizes and extrapolated to 0, with Monte-Carlo errors; the band is a tenth of the "
    "standard error. Below: particles of x after burn-in, with their mean and their "
    "interval."
)


def write_report(fit: Fit, path: str | Path, level: float = LEVEL) -> Path:
    """Write the page of `Fit.report`."""
    target = _files.checked_path("path", path)
    theta, x = theta_numbers(fit, None, level), x_numbers(fit, MOST_X, level)
    caption = ""
    if x.total > MOST_X:
        caption = f"The first {MOST_X} of {x.total} numbers; fit.to_pandas() has them all."
    sections = [
        *(
            [Section("Warnings", [Text(f"{finding}.") for finding in fit.findings])]
            if fit.findings
            else []
        ),
        Section("What to conclude", [Text(each) for each in conclusions(fit, theta, level)]),
        Section("Theta", [sortable(*theta_table(fit, theta, level)), Text(EXPLAINED)]),
        Section("How theta was found", [Figure(figure_of(fit, MOST_DRAWN, level), CAPTION)]),
        Section("x, given theta and the data", [sortable(*x_table(x, level), caption)]),
        Section("What was chosen", [Text(f"{sentence}.") for sentence in fit.reasons]),
        Section("How it ran", [_run_table(fit)]),
    ]
    verdict = "Converged" if fit.converged else "NOT converged"
    lead = f"{verdict} after {fit.num_steps} steps of {fit.num_particles} particles."
    with _files.named_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        return write_page(target, "A fit by pipla", lead, sections)


def _run_table(fit: Fit) -> Table:
    facts = {
        "steps": fit.num_steps,
        "burn-in": fit.burn_in,
        "particles": fit.num_particles,
        "evaluations of the gradient": fit.evaluations,
        "seconds": f"{fit.seconds:.2f}",
        "seconds to compile": f"{fit.compile_seconds:.2f}",
        **fit.versions,
    }
    return Table(["", ""], [[name, str(value)] for name, value in facts.items()])
