"""Blocks of sweeps of several chains in threads, as a sampler for the driver.

In the first blocks theta is learned, and after each of them the chains share what they learned.
Then rounds of two blocks each sample the posterior, every round twice as long as the one before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from pipla.engine.archive import DamagedResultError
from pipla.engine.driver import Started
from pipla.engine.hooks import View
from pipla.regression._chain import Chain, Position
from pipla.regression._mixture import learn
from pipla.regression._precision import FIRST, another_round
from pipla.regression._rounds import Round, round_of
from pipla.regression._state import Prior, Tally

#: Sweeps of the blocks in which theta is learned, and the rate in each.
LEARNING = ((30, 0.3), (30, 0.3), (40, 0.2), (60, 0.1), (120, 0.05))
#: The ratio of neighbouring variances of the grid.
RATIO = 4.0
#: The largest variance that the grid is extended to, for features of variance 1.
LARGEST = 4.0**8
#: Draws are kept as float32 numbers, at most this many.
MOST_NUMBERS = 60_000_000
MOST_DRAWS, FEWEST_DRAWS = 600, 100
#: The sweeps of all blocks in which theta is learned.
LEARNED = sum(count for count, _ in LEARNING)
#: The most blocks that are believed to be in a file.
MOST_BLOCKS = len(LEARNING) + 40


class Swept(NamedTuple):
    """What the chains have made so far: a history for the driver.

    Attributes:
        positions: of the chains.
        priors: of each chain; the weights change in every sweep.
        prior, noise: what was learned, the average of the chains after the last block.
        block: the number of complete blocks: those of learning, then two halves per round.
        tallies: of each chain in the block that is under way; none between blocks.
        half: those of the first half of the round, once it is complete.
        found: what the last complete round says.
        trace: see `Posterior`; one array per block.
        theta: what `Tally.theta` has of the first chain in all sweeps so far; one array per block.
        step: the sweeps.
        seconds, compile_seconds: as the driver has them.
        finite: False once a coefficient was not; the sweeps that made it so are left out.
    """

    positions: tuple[Position, ...]
    priors: tuple[Prior, ...]
    prior: Prior
    noise: float
    block: int = 0
    tallies: tuple[Tally, ...] = ()
    half: tuple[Tally, ...] = ()
    found: Round | None = None
    trace: tuple[np.ndarray, ...] = ()
    theta: tuple[np.ndarray, ...] = ()
    step: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    finite: bool = True


class Block(NamedTuple):
    """Sweeps after which chains are compared; between blocks all is computed again.

    Attributes:
        first: the sweeps before it.
        sweeps: their number.
        rate: of learning; below 0 theta is drawn.
        thin, draws: the sweeps from one draw to the next that is kept, and how many are.
    """

    first: int
    sweeps: int
    rate: float
    thin: int
    draws: int


class Sweeps(NamedTuple):
    """The sweeps of all chains, for the driver.

    Attributes:
        chains: over the data; where they are is in the history.
        linear: whether there is a noise to learn.
        equal: as for `sample`.
        scale: the units of theta in what callbacks see.
        rounds: the number of rounds there will be; by default `_precision` decides.
    """

    chains: tuple[Chain, ...]
    linear: bool
    equal: Sequence[np.ndarray] = ()
    scale: float = 1.0
    rounds: int | None = None

    @property
    def name(self) -> str:
        """A word for the progress bar."""
        return f"{len(self.chains)} chains"

    @property
    def unit(self) -> str:
        """What is counted."""
        return "sweeps"

    def start(self, history: Swept) -> Started[Swept]:
        """Compile what must be compiled."""
        return Started(self._advanced)

    def goal(self, history: Swept) -> int:
        """The steps that there will be, as far as is known."""
        number = round_number(history.block)
        begin = _sweeps_before(number)
        if number and history.step == begin and not self._another(history, number):
            return begin
        return _sweeps_before(number + 1)

    def ends(self, history: Swept) -> list[int]:
        """Steps beyond which the next piece must not go."""
        block = self.block(history.block)
        return [block.first + block.sweeps]

    def is_finite(self, history: Swept) -> bool:
        """Whether all is well, so that another piece can follow."""
        return history.finite

    def has_answer(self, history: Swept) -> bool:
        """Whether a block of the first round is complete."""
        return history.block > len(LEARNING)

    def view(self, history: Swept) -> View:
        """What callbacks see."""
        return SweepsView(self, history)

    def block(self, number: int) -> Block:
        """The block of this number."""
        if number < len(LEARNING):
            count, rate = LEARNING[number]
            return Block(sum(done for done, _ in LEARNING[:number]), count, rate, 1, 0)
        count = round_number(number)
        sweeps = FIRST * 2**count
        half = sweeps // 2
        size = max(self.chains[0].size, 1)
        draws = int(np.clip(MOST_NUMBERS // size, FEWEST_DRAWS, MOST_DRAWS)) // len(self.chains)
        thin = -(-sweeps // draws)
        first = _sweeps_before(count) + half * ((number - len(LEARNING)) % 2)
        return Block(first, half, -1.0, thin, half // thin)

    def check(self, history: Swept) -> None:
        """Raise an error where a history, which may come from a file, is not of these chains."""
        labels = len(history.prior.variances)
        priors = (history.prior, *history.priors)
        counts = (len(history.positions), len(history.priors))
        if counts != (len(self.chains),) * 2 or not 0 <= history.block <= MOST_BLOCKS:
            raise DamagedResultError("the state has other chains or blocks than a regression.")
        if any(part.shape != (labels,) for prior in priors for part in prior):
            raise DamagedResultError("the state has priors of different lengths.")
        block = self.block(history.block)
        under_way = history.step - block.first
        odd = history.block > len(LEARNING) and (history.block - len(LEARNING)) % 2 == 1
        expected = [(history.tallies, block, under_way > 0), (history.half, block, odd)]
        if not 0 <= under_way < block.sweeps:
            raise DamagedResultError("the state has a number of sweeps that cannot be.")
        for tallies, of, there in expected:
            blank = self._tallies(of, labels) if there else ()
            if [_shapes(each) for each in tallies] != [_shapes(each) for each in blank]:
                raise DamagedResultError("the state has sums of other shapes than the data.")
        for chain, position in zip(self.chains, history.positions, strict=True):
            chain.at(position)

    def _tallies(self, block: Block, labels: int) -> tuple[Tally, ...]:
        return tuple(
            Tally.empty(chain.size, labels, block.sweeps, block.draws, chain.levels)
            for chain in self.chains
        )

    def _advanced(self, history: Swept, count: int) -> Swept:
        """So many sweeps of each chain, within a block. The history that is given stays as it is.

        Ctrl-C waits for the threads, which work on copies.
        """
        block = self.block(history.block)
        done = history.step - block.first
        chains = self.at(history)
        priors = copies(history.priors)
        tallies = history.tallies or self._tallies(block, len(history.prior.variances))
        tallies = tuple(tally.continued() for tally in tallies)
        rates = np.full(block.sweeps, block.rate)

        def sweep(chain: Chain, prior: Prior, tally: Tally) -> None:
            chain.sweep(prior, rates, block.thin, tally, (done, done + count))

        with ThreadPoolExecutor(len(chains)) as pool:
            list(pool.map(sweep, chains, priors, tallies))
        positions = tuple(chain.position() for chain in chains)
        if not all(np.all(np.isfinite(position["b"])) for position in positions):
            return history._replace(finite=False)
        history = history._replace(
            positions=positions, priors=priors, tallies=tallies, step=history.step + count
        )
        return self._closed(history, chains) if done + count == block.sweeps else history

    def at(self, history: Swept) -> list[Chain]:
        """The chains where they are in this history."""
        pairs = zip(self.chains, history.positions, strict=True)
        return [chain.at(position) for chain, position in pairs]

    def _closed(self, history: Swept, chains: list[Chain]) -> Swept:
        """The history after the last sweep of a block."""
        tallies = history.tallies
        next_one = history._replace(
            block=history.block + 1, tallies=(), theta=(*history.theta, tallies[0].theta)
        )
        if history.block < len(LEARNING):
            prior = _pooled(chains, history.prior, tallies)
            zeros = tallies[0].counts[:, 0] / max(chains[0].size, 1)
            return next_one._replace(
                positions=tuple(chain.position() for chain in chains),
                priors=copies([prior] * len(chains)),
                prior=prior,
                noise=float(chains[0].noise[0]),
                trace=(*history.trace, np.stack([tallies[0].scores[:, 0], zeros], axis=1)),
            )
        if not history.half:
            return next_one._replace(half=tallies)
        halves = (history.half, tallies)
        return next_one._replace(half=(), found=round_of(chains, halves, self.linear, self.equal))

    def _another(self, history: Swept, number: int) -> bool:
        """Whether a round follows on the first `number`."""
        if self.rounds is not None:
            return number < self.rounds
        chain, found = self.chains[0], history.found
        assert found is not None
        seen = (found.error, found.rhat, self.linear)
        return another_round(FIRST * 2 ** (number - 1), *seen, chain.work, chain.correlated)


class SweepsView(View):
    """What a callback sees of a regression between sweeps.

    Attributes:
        at_end: whether a block of learning or a round has just ended.
    """

    def __init__(self, sweeps: Sweeps, history: Swept) -> None:
        super().__init__(history.step, sweeps.goal(history), LEARNED, history.seconds)
        self.at_end = not history.tallies and not history.half
        rows = history.theta
        if history.tallies:
            done = history.step - sweeps.block(history.block).first
            rows = (*rows, history.tallies[0].theta[:done])
        self._rows, self._positions, self._sweeps = rows, history.positions, sweeps

    @functools.cached_property
    def theta_trace(self) -> dict[str, np.ndarray]:
        variance, zeros, scale = np.concatenate([np.zeros((0, 3)), *self._rows]).T
        units = self._sweeps.scale
        found = {"zeros": zeros, "scale": units * scale}
        return found | ({"noise": units * np.sqrt(variance)} if self._sweeps.linear else {})

    @functools.cached_property
    def theta(self) -> dict[str, np.ndarray]:
        return {name: trace[-1] for name, trace in self.theta_trace.items()}

    @functools.cached_property
    def particles(self) -> np.ndarray:
        return np.stack([position["b"].ravel() for position in self._positions])


def round_number(block: int) -> int:
    """The rounds that are complete before this block."""
    return max(block - len(LEARNING), 0) // 2


def _sweeps_before(number: int) -> int:
    """The sweeps before the round of this number; each has twice as many as the one before."""
    return LEARNED + FIRST * (2**number - 1)


def copies(priors: Sequence[Prior]) -> tuple[Prior, ...]:
    """Priors whose weights may change."""
    return tuple(prior._replace(weights=prior.weights.copy()) for prior in priors)


def _shapes(tally: Tally) -> list[tuple[Any, Any]]:
    return [(part.shape, part.dtype) for part in tally]


def grid(smallest: float, largest: float = 4.0) -> Prior:
    """The prior before anything is learned: nine tenths at 0, the rest on a geometric grid."""
    count = max(int(np.ceil(np.log(largest / smallest) / np.log(RATIO))), 1)
    variances = np.concatenate([[0.0], largest * RATIO ** np.arange(-count, 1.0)])
    weights = np.full(len(variances), 0.1 / (len(variances) - 1))
    weights[0] = 0.9
    return Prior(variances, weights)


def _pooled(chains: Sequence[Chain], prior: Prior, tallies: Sequence[Tally]) -> Prior:
    """The prior after a block: the averages of both chains; the grid longer where it must be."""
    size = max(chains[0].size, 1)
    counts = np.concatenate([tally.counts[len(tally.counts) // 2 :] for tally in tallies])
    favoured = Prior(prior.variances, prior.weights.copy())
    learn(favoured, counts.mean(0), size, 1.0)
    weights = favoured.weights
    noise = np.mean([chain.noise[0] for chain in chains])
    found = np.mean([tally.slab for tally in tallies], axis=0) / len(tallies[0].counts)
    for chain in chains:
        chain.noise[0] = noise
        chain.attend(found)
    variances = prior.variances
    # More than a tenth of a coefficient at the end of the grid, and more than beside it.
    if weights[-1] * size > 0.1 and variances[-1] < LARGEST:
        variances = np.append(variances, variances[-1] * RATIO ** np.arange(1, 3))
        weights = np.append(weights, np.full(2, weights[-1] / 3))
        weights /= weights.sum()
    return Prior(variances, weights)
