"""A chain over coefficients: what each kind of regression must offer, and where a chain is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import ClassVar, Protocol, Self

import numpy as np

from pipla.engine.archive import DamagedResultError
from pipla.regression._factors import Factors
from pipla.regression._state import Prior, Tally

#: Everything that changes from sweep to sweep, by name: arrays of real numbers.
Position = dict[str, np.ndarray]
#: The name of the random numbers in a position.
RANDOM = "random"


class Chain(Protocol):
    """One chain: coefficients of shape (size,), and the noise if there is one."""

    #: The names of the arrays that change.
    moving: ClassVar[tuple[str, ...]]
    size: int
    levels: int  # the number of intercepts
    noise: np.ndarray
    work: float  # numbers in the features that a sweep goes through
    factors: Factors  # columns that are the levels of a category
    rng: np.random.Generator
    correlated: bool = False  # whether features are strongly correlated
    backwards: bool = False  # from the last coefficient to the first

    def attend(self, inclusion: np.ndarray) -> None:
        """Prefer coefficients that have probably an effect, given what was learned so far."""

    def predicted(self, tally: Tally, sweeps: int) -> np.ndarray:
        """What determines predictions for (some of) the observations, after so many sweeps."""

    def square(self, d: np.ndarray, m: np.ndarray) -> float:
        """The square of a difference d of such predictions near m, as in `_precision`."""

    def sweep(
        self,
        prior: Prior,
        rates: np.ndarray,
        thin: int,
        tally: Tally,
        part: tuple[int, int] | None = None,
    ) -> None:
        """As many sweeps as there are rates; `tally` and, while learning, `prior` are updated.

        With `part`, those from its first to before its last number; one part follows the other.
        """

    def position(self) -> Position:
        """Where the chain is."""
        return {name: getattr(self, name).copy() for name in self.moving} | {
            RANDOM: _words_of(self.rng)
        }

    def at(self, position: Mapping[str, np.ndarray]) -> Self:
        """A chain over the same data at this position, which it does not change."""
        if set(position) != {*self.moving, RANDOM} or position[RANDOM].shape != (6,):
            raise DamagedResultError("a chain has other parts than those of this regression.")
        moved = copy.copy(self)
        for name in self.moving:
            own, there = getattr(self, name), position[name]
            if (there.shape, there.dtype) != (own.shape, own.dtype):
                raise DamagedResultError(f"{name} of a chain does not have the shape of the data.")
            setattr(moved, name, np.array(there, order="C"))
        moved.rng = _generator_of(position[RANDOM])
        return moved


def _words_of(rng: np.random.Generator) -> np.ndarray:
    """The state of random numbers as six words of 64 bits."""
    state = rng.bit_generator.state
    numbers = (state["state"]["state"], state["state"]["inc"])
    words = [word for number in numbers for word in divmod(number, 2**64)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _generator_of(words: np.ndarray) -> np.random.Generator:
    """The inverse of `_words_of`."""
    high, low, inc_high, inc_low, has_half, half = (int(word) for word in words)
    bits = np.random.PCG64(0)
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        "has_uint32": has_half,
        "uinteger": half,
    }
    return np.random.Generator(bits)
