"""Algorithms around algorithms: they set the numbers of another one as it goes, and nest."""

from pipla.algorithms.wrappers.adaptive import Adaptive
from pipla.algorithms.wrappers.annealed import Annealed
from pipla.algorithms.wrappers.minibatch import Minibatch
from pipla.algorithms.wrappers.paired import Paired
from pipla.algorithms.wrappers.wrapper import Wrapper, WrapperState

__all__ = ["Adaptive", "Annealed", "Minibatch", "Paired", "Wrapper", "WrapperState"]
