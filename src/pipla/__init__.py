"""Maximum marginal likelihood and posterior sampling in latent variable models with kinks.

Proximal interacting particle Langevin algorithms on JAX. Start with `Model`, a term of
`pipla.prox`, an algorithm such as `PIPGLA`, and `run`.
"""

from pipla._threads import one_thread_per_device

one_thread_per_device()  # before JAX starts, which the imports below do not

from pipla import operators, problems, prox, tuning  # noqa: E402
from pipla._version import __version__  # noqa: E402
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
from pipla.engine.map_estimate import MapEstimate, map_estimate  # noqa: E402
from pipla.engine.result import Result, Status, load  # noqa: E402
from pipla.engine.run import resume, run  # noqa: E402
from pipla.engine.save import Save  # noqa: E402
from pipla.engine.sweep import SweepResult, sweep  # noqa: E402
from pipla.imaging.restoration import Restoration, restore  # noqa: E402
from pipla.models import likelihoods  # noqa: E402
from pipla.models.likelihoods import GaussianLikelihood  # noqa: E402
from pipla.models.model import Model  # noqa: E402
from pipla.models.noncentred import noncentred  # noqa: E402
from pipla.operators import blur  # noqa: E402
from pipla.tuning.rule import Recommended, recommended  # noqa: E402

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
    "__version__",
    "blur",
    "likelihoods",
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
