"""Whether an answer may be believed: Monte-Carlo error, mixing, drift, and what was found.

Each statistic is here once, and every part of the library judges by it.
"""

from pipla.diagnostics.drift import still_moving
from pipla.diagnostics.findings import ConvergenceWarning, Finding, Severity, warn_of
from pipla.diagnostics.mixing import chance_of_differences, rhat
from pipla.diagnostics.monte_carlo import autocorrelation, monte_carlo_error

__all__ = [
    "ConvergenceWarning",
    "Finding",
    "Severity",
    "autocorrelation",
    "chance_of_differences",
    "monte_carlo_error",
    "rhat",
    "still_moving",
    "warn_of",
]
