"""Maximum marginal likelihood and posterior sampling in latent variable models with kinks.

Proximal interacting particle Langevin algorithms on JAX. Start with `Model`, a term of
`pipla.prox`, and `fit`; with an algorithm such as `PIPGLA` and `run`, every choice is yours.
`pipla.regression`, `pipla.imaging`, `pipla.completion` and `pipla.networks` are applications.
"""

from pipla import algorithms, config, diagnostics, operators, problems, prox, tuning
from pipla._extras import lazy
from pipla._version import __version__
from pipla.algorithms import (
    IPLA,
    IRPL,
    MYIPLA,
    MYPGD,
    MYULA,
    PGD,
    PGLA,
    PIPGLA,
    PIPULA,
    PPGD,
    RPL,
    SAPG,
    SKROCK,
    SOUL,
    Adaptive,
    Annealed,
    MetropolisAdjusted,
    Minibatch,
)
from pipla.diagnostics import ConvergenceWarning
from pipla.engine import hooks
from pipla.engine.map_estimate import MapEstimate, map_estimate
from pipla.engine.result import Result, Status
from pipla.engine.run import resume, run
from pipla.engine.save import Save
from pipla.engine.storage import load
from pipla.engine.sweep import SweepResult, sweep
from pipla.fitting import Extrapolation, Fit, extrapolate, fit
from pipla.models import likelihoods
from pipla.models.model import Model
from pipla.models.noncentred import noncentred

__all__ = [
    "IPLA",
    "IRPL",
    "MYIPLA",
    "MYPGD",
    "MYULA",
    "PGD",
    "PGLA",
    "PIPGLA",
    "PIPULA",
    "PPGD",
    "RPL",
    "SAPG",
    "SKROCK",
    "SOUL",
    "Adaptive",
    "Annealed",
    "ConvergenceWarning",
    "Extrapolation",
    "Fit",
    "MapEstimate",
    "MetropolisAdjusted",
    "Minibatch",
    "Model",
    "Result",
    "Save",
    "Status",
    "SweepResult",
    "__version__",
    "algorithms",
    "config",
    "diagnostics",
    "extrapolate",
    "fit",
    "hooks",
    "likelihoods",
    "load",
    "map_estimate",
    "noncentred",
    "operators",
    "problems",
    "prox",
    "resume",
    "run",
    "sweep",
    "tuning",
]

# Imported when they are first used.
__getattr__ = lazy(
    __name__, "completion", "imaging", "networks", "regression", "testing", lab=("zoo",)
)
