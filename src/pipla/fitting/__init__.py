"""`pipla.fit` and what it is made of: the rule, the errors of theta and x, when to stop."""

from pipla.fitting.extrapolation import Extrapolation, extrapolate
from pipla.fitting.fitter import fit
from pipla.fitting.result import Fit

__all__ = ["Extrapolation", "Fit", "extrapolate", "fit"]
