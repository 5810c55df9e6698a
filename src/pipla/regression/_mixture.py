r"""The prior $\pi_0 \delta_0 + \sum_k \pi_k N(0, v_k)$ of a coefficient, in machine code (numba).

If the log-likelihood of one coefficient $t$ with the others held fixed is
$q t - \tfrac h2 t^2$ up to a constant, its label has the probabilities

$$ w_k \propto \pi_k (1 + h v_k)^{-1/2} \exp\left(\tfrac12 \frac{q^2 v_k}{1 + h v_k}\right), $$

with the coefficient integrated out, so that labels do not stick, and given the label $k$ the
coefficient is $N(q v_k / (1 + h v_k), v_k / (1 + h v_k))$. Labels give the weights.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipla.regression._state import Prior, Tally
from pipla.regression._vector_math import compiled, exp, inlined

#: The coefficients that are not 0, as far as is known before anything is seen. Of those that data
#: cannot tell from 0, so many are not; with more, ranks are not uniform where effects are sparse.
EFFECTS = 8.0
#: That counts as much as one observation, and as this part of all coefficients.
CERTAINTY = 0.01


@compiled
def mixture(q: float, h: float, prior: Prior, w: np.ndarray) -> tuple[float, float]:
    """Fill in the probabilities of the labels; their sum before that is total times e^top."""
    last = prior.variances[w.size - 1]
    top = 0.5 * q * q * last / (1.0 + h * last)  # the exponent grows with the variance
    total = 0.0
    for k in range(w.size):
        v = prior.variances[k]
        rest = 1.0 / (1.0 + h * v)
        w[k] = prior.weights[k] * math.sqrt(rest) * exp(max(0.5 * q * q * v * rest - top, -700.0))
        total += w[k]
    for k in range(w.size):
        w[k] /= total
    return top, total


@compiled
def tabulate(h: float, prior: Prior, table: np.ndarray) -> None:
    """What does not depend on q: for each label, its factor and v / (1 + h v)."""
    for k in range(prior.variances.size):
        rest = 1.0 / (1.0 + h * prior.variances[k])
        table[0, k] = prior.weights[k] * math.sqrt(rest)
        table[1, k] = prior.variances[k] * rest


@compiled
def tabulated(q: float, table: np.ndarray, w: np.ndarray) -> float:
    """`mixture` from a table, half as long; the mean of the coefficient."""
    half = 0.5 * q * q
    top = half * table[1, w.size - 1]  # the exponent grows with the variance
    total = mean = 0.0
    for k in range(w.size):
        w[k] = table[0, k] * exp(max(half * table[1, k] - top, -700.0))
        total += w[k]
        mean += w[k] * table[1, k]
    for k in range(w.size):
        w[k] /= total
    return q * mean / total


@inlined
def choose(w: np.ndarray, u: float) -> int:
    """The label at the quantile u."""
    k, reached = 0, w[0]
    while reached < u and k < w.size - 1:
        k += 1
        reached += w[k]
    return k


@compiled
def draw(q: float, h: float, v: float, rng: Any) -> float:
    """The coefficient given its label."""
    if v == 0.0:
        return 0.0
    spread = 1.0 + h * v
    return q * v / spread + math.sqrt(v / spread) * rng.standard_normal()


@compiled
def record(j: int, mean: float, w: np.ndarray, k: int, t: int, tally: Tally) -> None:
    """Add one coefficient to the tally, with the mean of its conditional."""
    for i in range(w.size):
        tally.counts[t, i] += w[i]
    tally.mean[j] += mean
    tally.slab[j] += 1.0 - w[0]
    tally.labels[k] += 1.0


@compiled
def labels_given(b: float, prior: Prior, w: np.ndarray) -> None:
    """Fill in the probabilities of the labels of a coefficient b that is not 0."""
    total = w[0] = 0.0
    least = 0.5 * b * b / prior.variances[w.size - 1]
    for k in range(1, w.size):
        v = prior.variances[k]
        w[k] = prior.weights[k] / math.sqrt(v) * exp(max(least - 0.5 * b * b / v, -700.0))
        total += w[k]
    for k in range(1, w.size):
        w[k] /= total


@compiled
def record_state(
    j: int, b: float, prior: Prior, w: np.ndarray, rng: Any, t: int, tally: Tally
) -> None:
    """Add one coefficient as it is: where proposals may be rejected, w is not its conditional."""
    tally.mean[j] += b
    if b == 0.0:
        tally.counts[t, 0] += 1.0
        tally.labels[0] += 1.0
        return
    tally.slab[j] += 1.0
    labels_given(b, prior, w)
    for k in range(1, w.size):
        tally.counts[t, k] += w[k]
    tally.labels[max(choose(w, rng.random()), 1)] += 1.0


@inlined
def favour_of(size: int) -> float:
    """Coefficients that count as 0 before anything is seen, beyond one."""
    return CERTAINTY * size


@inlined
def others_of(size: int) -> float:
    """Coefficients that count as not 0 before anything is seen: for `EFFECTS` of `size`.

    With fewer coefficients than that, the weight of 0 is nearly uniform a priori.
    """
    return (1.0 + favour_of(size)) * min(EFFECTS / max(size, 1), 1.0)


@compiled
def draw_weights(prior: Prior, rng: Any, tally: Tally) -> None:
    """Draw the weights given the labels of all coefficients: Dirichlet.

    A priori 0 counts as 1 + `favour_of`, and the others share `others_of`, large effects less of
    it: where labels can be separated, nothing else bounds the variances.
    """
    size = tally.mean.size
    share = 0.0
    for k in range(1, prior.weights.size):
        share += 1.0 / (1.0 + prior.variances[k])
    total = 0.0
    for k in range(prior.weights.size):
        if k == 0:
            seen = 1.0 + favour_of(size)
        else:
            seen = others_of(size) / (1.0 + prior.variances[k]) / share
        prior.weights[k] = rng.standard_gamma(tally.labels[k] + seen) + 1e-300
        total += prior.weights[k]
    for k in range(prior.weights.size):
        prior.weights[k] /= total


@compiled
def record_theta(prior: Prior, noise: float, t: int, tally: Tally) -> None:
    """Note the noise, the weight of 0 and the standard deviation of the others."""
    others = second = 0.0
    for k in range(1, prior.weights.size):
        others += prior.weights[k]  # added up: 1 less the weight of 0 is rounding where that is 1
        second += prior.weights[k] * prior.variances[k]
    tally.theta[t, 0] = noise
    tally.theta[t, 1] = prior.weights[0]
    tally.theta[t, 2] = math.sqrt(second / others)


@compiled
def learn(prior: Prior, counts: np.ndarray, size: int, rate: float) -> None:
    """One step of stochastic EM on the weights; a little mass keeps every label possible.

    0 gets a little more: data cannot tell it from small variances (compare Stephens 2017).
    """
    favour = favour_of(size)
    total = size + favour + 1e-3 * counts.size
    for k in range(counts.size):
        share = (counts[k] + 1e-3 + favour * (k == 0)) / total
        prior.weights[k] += rate * (share - prior.weights[k])


@compiled
def keep(t: int, thin: int, b: np.ndarray, level: float, tally: Tally) -> None:
    """Keep every `thin`-th draw, as long as there is room."""
    if (t + 1) % thin == 0 and (t + 1) // thin <= tally.draws.shape[0]:
        place = (t + 1) // thin - 1
        for j in range(b.size):
            tally.draws[place, j] = b[j]
        tally.levels[place] = level
