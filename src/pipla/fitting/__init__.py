"""`pipla.fit` and what it is made of: the rule, the errors of theta and x, when to stop."""

from pipla.engine import storage
from pipla.fitting.extrapolation import Extrapolation, extrapolate
from pipla.fitting.files import check_consistent
from pipla.fitting.fitter import fit
from pipla.fitting.result import Fit

__all__ = ["Extrapolation", "Fit", "extrapolate", "fit"]

storage.register("fit", Fit, check_consistent)
