r"""When to stop: chains sweep until their Monte-Carlo error no longer matters for predictions.

If the predicted mean $\mu_i$ of a response is off by $\delta_i$, the prediction loses
$\tfrac12 \delta_i^2 / V(\mu_i)$ nats to second order, $V$ being the variance of the response:
$\sigma^2$, $\mu (1 - \mu)$ or $\mu$. The Monte-Carlo error of the means is seen in how those of
parts of the chains differ: with $m_{ch}$ the predictions of half $h$ of chain $c$, $m_c$ and $m$
those of chains and of all, and $|d|^2$ the mean of $d_i^2 / V(m_i)$ over observations, both

$$ \tfrac14 |m_1 - m_2|^2 \quad\text{and}\quad \tfrac1{12} \sum_{c, h} |m_{ch} - m|^2 $$

estimate the mean of $\operatorname{Var} \delta_i / V(\mu_i)$; the first sees chains that stay in
different places, the second also both drifting the same way. The larger must not exceed `LOSS`. As
long as it does, a round of twice as many sweeps follows, and what came before is forgotten: it was
burn-in. The number of rounds depends on the work of a sweep and not on the clock, so that equal
seeds give equal answers on all machines.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: Sweeps of each chain in the first round; each round is twice as long as the one before.
FIRST = 300
#: The most rounds. There are few of them, so that a fit takes no longer than cross-validation,
#: unless that takes long, too: with strongly correlated features, or more numbers than `LARGE`.
FEW, MANY = 3, 6
LARGE = 1e6
#: The mean of Var(delta) / V that is small enough: half of it, in nats, is what a prediction loses,
#: and, relative to the noise, what the error of a linear regression grows by.
#: Sweeps for labels and counts cost more, and separable labels need many.
LOSS, LOSS_OF_LABELS = 1e-3, 4e-3
#: The work of all rounds of one chain: sweeps times numbers in the features.
WORK = 1.2e10
#: Potential scale reductions above this are warned of; for large data they are worth more rounds.
#: It takes long to know features that replace each other, or separate labels, and predictions do
#: not need it.
DISAGREE = 1.3

#: |d|² given d and m.
Square = Callable[[np.ndarray, np.ndarray], float]


def another_round(
    sweeps: int, error: float, rhat: float, linear: bool, work: float, correlated: bool
) -> bool:
    """Whether a round is followed by another.

    Arguments:
        sweeps: of the round.
        error, rhat: what it found.
        linear: whether this is a linear regression.
        work: of one sweep.
        correlated: whether features are strongly correlated.
    """
    large = work > LARGE
    longest = FIRST * 2 ** ((MANY if large or correlated else FEW) - 1)
    rounds_together = 4 * sweeps - FIRST  # with the next one, of 2 * sweeps
    if 2 * sweeps > longest or rounds_together * work > WORK:
        return False
    return error > (LOSS if linear else LOSS_OF_LABELS) or (large and rhat > DISAGREE)


def monte_carlo_error(parts: np.ndarray, square: Square) -> float:
    """The larger of both estimates; the first axes of `parts` are chains and halves."""
    halves = np.concatenate(parts)
    return max(_error_of(parts.mean(axis=1), square), _error_of(halves, square))


def _error_of(parts: np.ndarray, square: Square) -> float:
    """The variance of the mean of parts that are independent of each other."""
    count, mean = len(parts), parts.mean(axis=0)
    return sum(square(part - mean, mean) for part in parts) / (count * (count - 1))
