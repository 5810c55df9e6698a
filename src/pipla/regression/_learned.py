r"""Sampling the coefficients under a prior whose shape is learned.

The prior is $\pi_0 \delta_0 + \sum_k \pi_k N(0, v_k)$ on a geometric grid of variances. Several
chains sweep over the coefficients in threads (`_linear`, `_kernels`). First the weights, and the
noise of a linear regression, are learned by stochastic EM (the maximum of the marginal likelihood,
with a little in favour of 0), in blocks after which the chains share what they learned and the
grid is extended where the data ask for it. Then the chains sample the coefficients together with
theta, under a prior of theta that weighs little, until predictions are known well enough
(`_precision`). Held at its maximum, theta would give intervals that are too short where the shape
is uncertain (dense effects, for example).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipla.engine.driver import drive
from pipla.engine.hooks import Callback
from pipla.engine.result import Status
from pipla.regression._chain import Chain
from pipla.regression._rounds import Round, round_of
from pipla.regression._state import Prior
from pipla.regression._sweeps import Sweeps, Swept, copies, grid, round_number

#: Independent chains: one per thread of a small machine, and two can be compared.
CHAINS = 2


class Posterior(NamedTuple):
    """What was learned and drawn, for standardised features.

    Attributes:
        variances, weights: the prior that maximises the marginal likelihood; the first variance
            is 0.
        noise: sigma there; NaN where there is none.
        mean: the posterior mean of each coefficient.
        slab: the posterior probability that it is not 0.
        draws, levels: of coefficients and intercepts, one row per draw, chain after chain.
        trace: the learned noise and weight of 0 after each sweep of the first chain.
        rhat: the largest potential scale reduction over what was monitored: the largest
            coefficients, and the squared residuals of a linear regression.
        worst: the coefficient that it is of; -1 for the residuals.
        error: the Monte-Carlo error of predictions, as `_precision` defines it.
        theta_rhat: the largest potential scale reduction of the logarithms of theta.
        theta: draws of (sigma, the weight of 0, the standard deviation of the others).
        acceptance: the part of proposals that were accepted; 1 for exact conditionals.
        sweeps, seconds: of each chain, and the time they took.
        factors: columns that are the levels of a category; effects are relative to the first.
        status, message: how the sampling ended. Where it was interrupted, the answer is that of
            the last complete round, or of the first half of the first.
        history: what `resume` needs.
    """

    variances: np.ndarray
    weights: np.ndarray
    noise: float
    mean: np.ndarray
    slab: np.ndarray
    draws: np.ndarray
    levels: np.ndarray
    trace: np.ndarray
    rhat: float
    worst: int
    error: float
    theta_rhat: float
    theta: np.ndarray
    acceptance: float
    sweeps: int
    seconds: float
    factors: tuple[tuple[int, ...], ...]
    status: Status
    message: str
    history: Swept

    @property
    def prior_sd(self) -> float:
        """The standard deviation of the learned prior."""
        return float(np.sqrt(self.weights @ self.variances))


def sample(
    chains: Sequence[Chain],
    smallest: float,
    degrees: float,
    start: Prior | None = None,
    callbacks: Sequence[Callback] = (),
    equal: Sequence[np.ndarray] = (),
    *,
    scale: float = 1.0,
    earlier: Posterior | None = None,
    rounds: int | None = None,
) -> Posterior:
    """Learn the prior and sample the posterior.

    Arguments:
        chains: at their starting points.
        smallest: the smallest variance of the grid.
        degrees: the degrees of freedom of the residuals; 0 where there is no noise.
        start: an earlier prior to start from.
        callbacks: as for `pipla.run`.
        equal: groups of coefficients whose features are equal. The posterior does not change if
            they change places, which is a step that the chains themselves would hardly ever make.
        scale: the units of theta in what callbacks see.
        earlier: what is resumed, bit for bit as if it had never stopped.
        rounds: the rounds that are completed now; by default `_precision` decides, and where it
            asks for none, `earlier` gets one more.

    Raises:
        KeyboardInterrupt: Ctrl-C came before anything was sampled; later, what there is is kept.
        FloatingPointError: a coefficient became non-finite.
    """
    for place, chain in enumerate(chains):
        chain.backwards = place % 2 == 1
    sweeps = Sweeps(tuple(chains), bool(degrees), equal, scale)
    history = _beginning(sweeps, grid(smallest) if start is None else start)
    if earlier is not None:
        history = _resumed(sweeps, earlier)
        complete = round_number(history.block)
        if rounds is None and sweeps.goal(history) == history.step:
            rounds = 1
        sweeps = sweeps._replace(rounds=None if rounds is None else complete + rounds)
    history, status, message = drive(sweeps, history, callbacks)
    if status is Status.NONFINITE:
        raise FloatingPointError(
            f"a coefficient became non-finite after {history.step} sweeps: are there features or "
            "responses of extreme size?"
        )
    found = history.found
    if found is None and history.half:
        found = round_of(sweeps.at(history), [history.half], sweeps.linear, equal)
    if found is None:  # nothing but Ctrl-C ends so early
        raise KeyboardInterrupt
    return Posterior(
        variances=history.prior.variances,
        weights=history.prior.weights,
        noise=float(np.sqrt(history.noise)) if degrees else float("nan"),
        trace=np.concatenate(history.trace),
        sweeps=history.step,
        seconds=history.seconds,
        status=status,
        message=message,
        history=history._replace(found=None),  # which is here
        **found._asdict(),
    )


def _beginning(sweeps: Sweeps, prior: Prior) -> Swept:
    """Nothing yet."""
    positions = tuple(chain.position() for chain in sweeps.chains)
    noise = float(sweeps.chains[0].noise[0])
    return Swept(positions, copies([prior] * len(positions)), prior, noise)


def _resumed(sweeps: Sweeps, earlier: Posterior) -> Swept:
    """The history that an earlier answer comes from."""
    sweeps.check(earlier.history)
    history = earlier.history
    if not round_number(history.block):  # the first round is not complete
        return history
    return history._replace(found=Round(*(getattr(earlier, name) for name in Round._fields)))
