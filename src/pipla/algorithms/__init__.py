"""The algorithm family: schemes that share one kernel, the paper's names for them, wrappers."""

from pipla.algorithms.base import (
    Algorithm,
    Condition,
    Curvature,
    Geometry,
    Info,
    Number,
    number,
    register,
)
from pipla.algorithms.block_gibbs import BlockGibbs
from pipla.algorithms.envelope import EnvelopeEuler
from pipla.algorithms.euler import Euler
from pipla.algorithms.exponential import ExponentialFlow
from pipla.algorithms.forward_backward import ForwardBackward
from pipla.algorithms.full_prox import FullProx
from pipla.algorithms.kinetic import Kinetic
from pipla.algorithms.langevin import Langevin, Move, Noise, Scales, State
from pipla.algorithms.metropolis import MetropolisAdjusted
from pipla.algorithms.presets import (
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
)
from pipla.algorithms.skrock import StabilisedEuler
from pipla.algorithms.wrappers import Adaptive, Annealed, Minibatch, Paired, Wrapper, WrapperState

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
    "Algorithm",
    "Annealed",
    "BlockGibbs",
    "Condition",
    "Curvature",
    "EnvelopeEuler",
    "Euler",
    "ExponentialFlow",
    "ForwardBackward",
    "FullProx",
    "Geometry",
    "Info",
    "Kinetic",
    "Langevin",
    "MetropolisAdjusted",
    "Minibatch",
    "Move",
    "Noise",
    "Number",
    "Paired",
    "Scales",
    "StabilisedEuler",
    "State",
    "Wrapper",
    "WrapperState",
    "number",
    "register",
]
