"""The algorithm family: schemes that share one kernel, and the paper's names for them."""

from pipla.algorithms.base import Algorithm, Info, Limits, State
from pipla.algorithms.envelope import EnvelopeEuler
from pipla.algorithms.euler import Euler
from pipla.algorithms.exponential import ExponentialFlow
from pipla.algorithms.forward_backward import ForwardBackward
from pipla.algorithms.full_prox import FullProx
from pipla.algorithms.langevin import Langevin
from pipla.algorithms.metropolis import MetropolisAdjusted
from pipla.algorithms.presets import (
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
)
from pipla.algorithms.skrock import StabilisedEuler
from pipla.algorithms.wrappers.adaptive import Adaptive
from pipla.algorithms.wrappers.annealed import Annealed

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
    "Algorithm",
    "Annealed",
    "EnvelopeEuler",
    "Euler",
    "ExponentialFlow",
    "ForwardBackward",
    "FullProx",
    "Info",
    "Langevin",
    "Limits",
    "MetropolisAdjusted",
    "StabilisedEuler",
    "State",
]
