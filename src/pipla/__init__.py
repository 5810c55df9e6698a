"""Maximum marginal likelihood and posterior sampling in latent variable models with kinks.

Proximal interacting particle Langevin algorithms on JAX. Start with `Model`, a term of
`pipla.prox`, an algorithm such as `PIPGLA`, and `run`.
"""

from pipla.threads import one_thread_per_device

one_thread_per_device()  # before JAX starts, which the imports below do not

from pipla import blur, operators, problems, prox, tuning  # noqa: E402
from pipla.algorithms import (  # noqa: E402
    IPLA,
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
)
from pipla.likelihood import GaussianLikelihood  # noqa: E402
from pipla.map_estimate import MapEstimate, map_estimate  # noqa: E402
from pipla.model import Model  # noqa: E402
from pipla.recommended import Recommended, recommended  # noqa: E402
from pipla.reparametrise import noncentred  # noqa: E402
from pipla.restoration import Restoration, restore  # noqa: E402
from pipla.result import Result, Status, load  # noqa: E402
from pipla.run import resume, run  # noqa: E402
from pipla.save import Save  # noqa: E402
from pipla.sweep import SweepResult, sweep  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "IPLA",
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
    "GaussianLikelihood",
    "MapEstimate",
    "MetropolisAdjusted",
    "Model",
    "Recommended",
    "Restoration",
    "Result",
    "Save",
    "Status",
    "SweepResult",
    "blur",
    "load",
    "map_estimate",
    "noncentred",
    "operators",
    "problems",
    "prox",
    "recommended",
    "restore",
    "resume",
    "run",
    "sweep",
    "tuning",
]
