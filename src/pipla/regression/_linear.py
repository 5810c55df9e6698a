r"""Gibbs sweeps over the coefficients of a linear regression in machine code (numba).

As a function of one coefficient $t$ with the others held fixed, the log-likelihood is
$q t - \tfrac h2 t^2$ up to a constant, and `_mixture` has the conditional under the prior.

Single coefficients cannot leave each other's place: where features are correlated, one of them must
go before another can come, and neither step is likely. So, before each sweep, effects change
places. Of a coefficient $j$ that is not 0 the label $k$ is drawn; a coefficient $i$ is proposed
with a probability $\pi_i$ that does not depend on the state. If it is 0, the pair of labels
$(k, 0)$ becomes $(0, k)$, both coefficients integrated out, with probability

$$ \min\left(1, \frac{\pi_j}{\pi_i}
\frac{(1 + h_i v_k)^{-1/2} \exp(\tfrac12 q_i^2 v_k / (1 + h_i v_k))}
{(1 + h_j v_k)^{-1/2} \exp(\tfrac12 q_j^2 v_k / (1 + h_j v_k))}\right) $$

where $q_i$ and $q_j$ are those without either of them, and the coefficient that is not 0 is drawn.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pipla.regression._factors import Factors, propose
from pipla.regression._mixture import (
    choose,
    draw,
    draw_weights,
    keep,
    labels_given,
    learn,
    record,
    record_theta,
    tabulate,
    tabulated,
)
from pipla.regression._state import Columns, Prior, Tally
from pipla.regression._vector_math import compiled

#: The exchanges before a sweep, as a part of all coefficients; one per effect at most.
EXCHANGES = 0.25


class Responses(NamedTuple):
    """Features and responses of a linear regression.

    Attributes:
        columns: X, whose rows are scaled by the roots of the weights; with `gram`, X'X.
        squares: the squared norm of each column, after centring.
        shifts: the inner product of each column with `root`; 0 where columns are centred.
        root: the direction of the intercept, of norm 1; only read for compressed columns.
        rows: the degrees of freedom: observations, less 1 for an intercept.
        gram: see above.
        factors: columns that are the levels of a category.
    """

    columns: Columns
    squares: np.ndarray
    shifts: np.ndarray
    root: np.ndarray
    rows: float
    gram: bool
    factors: Factors


@compiled
def correlation(data: Responses, r: np.ndarray, level: np.ndarray, j: int) -> float:
    """The inner product of a centred column with the residuals."""
    if data.gram:
        return r[j]
    total = 0.0
    if data.columns.dense.size == 0:
        total = -data.shifts[j] * level[0]
        for i in range(data.columns.starts[j], data.columns.starts[j + 1]):
            total += data.columns.values[i] * r[data.columns.rows[i]]
    else:
        x = data.columns.dense[j]
        for i in range(r.size):
            total += x[i] * r[i]
    return total


@compiled
def change(
    data: Responses, b: np.ndarray, r: np.ndarray, level: np.ndarray, j: int, new: float
) -> None:
    """Give a coefficient another value, and bring the residuals up to date."""
    step = new - b[j]
    b[j] = new
    if data.gram:
        r[b.size] += step * (step * data.squares[j] - 2.0 * r[j])
    if data.columns.dense.size == 0:
        for i in range(data.columns.starts[j], data.columns.starts[j + 1]):
            r[data.columns.rows[i]] -= data.columns.values[i] * step
        level[0] -= data.shifts[j] * step
    else:
        x = data.columns.dense[j]
        for i in range(x.size):
            r[i] -= x[i] * step


@compiled
def evidence(q: float, h: float, v: float) -> float:
    """The logarithm of the likelihood of a normal coefficient, relative to 0."""
    rest = 1.0 / (1.0 + h * v)
    return 0.5 * (q * q * v * rest + math.log(rest))


@compiled
def exchange(
    data: Responses,
    b: np.ndarray,
    r: np.ndarray,
    level: np.ndarray,
    noise: float,
    places: np.ndarray,
    prior: Prior,
    w: np.ndarray,
    rng: Any,
) -> None:
    """Effects change places; `places` are the sums of the first probabilities (see the top)."""
    active = np.flatnonzero(b)
    if active.size == 0 or active.size == b.size:
        return
    for _ in range(min(active.size, math.ceil(EXCHANGES * b.size))):
        chosen = int(rng.random() * active.size)
        j = active[chosen]
        i = np.searchsorted(places, rng.random() * places[b.size - 1], side="right")
        i = min(i, b.size - 1)
        if b[i] != 0.0:
            continue
        old = b[j]
        labels_given(old, prior, w)
        v = prior.variances[max(choose(w, rng.random()), 1)]
        change(data, b, r, level, j, 0.0)
        h, h_new = data.squares[j] / noise, data.squares[i] / noise
        q = correlation(data, r, level, j) / noise
        q_new = correlation(data, r, level, i) / noise
        gain = evidence(q_new, h_new, v) - evidence(q, h, v)
        here = places[j] - (places[j - 1] if j > 0 else 0.0)
        there = places[i] - (places[i - 1] if i > 0 else 0.0)
        if math.log(rng.random()) < gain + math.log(here / there):
            change(data, b, r, level, i, draw(q_new, h_new, v, rng))
            active[chosen] = i
        else:
            change(data, b, r, level, j, draw(q, h, v, rng))


@compiled
def change_levels(
    data: Responses,
    b: np.ndarray,
    r: np.ndarray,
    level: np.ndarray,
    noise: float,
    prior: Prior,
    w: np.ndarray,
    rng: Any,
) -> None:
    """Draw all effects of each factor together, and the intercept with them (see `_factors`)."""
    of = data.factors
    for factor in range(of.starts.size - 1):
        part = slice(of.starts[factor], of.starts[factor + 1])
        members, totals, s = of.members[part], of.totals[part], of.scales[part]
        u, new = np.empty(members.size), np.empty(members.size)
        centre = 0.0
        for i in range(members.size):
            effect = b[members[i]] / s[i]
            centre += effect * totals[i] / np.sum(totals)
            u[i] = effect + s[i] * correlation(data, r, level, members[i]) / totals[i]
        # With centred responses, the intercept given all coefficients is normal around 0.
        alpha = math.sqrt(noise / np.sum(totals)) * rng.standard_normal() - centre
        _, gain = propose(alpha, u - centre, totals / noise, s, prior, w, new, rng)
        if math.log(rng.random()) < gain:
            for i in range(members.size):
                if new[i] != b[members[i]]:
                    change(data, b, r, level, members[i], new[i])


@compiled
def linear_sweeps(
    data: Responses,
    b: np.ndarray,
    r: np.ndarray,
    level: np.ndarray,
    noise: np.ndarray,
    places: np.ndarray,
    backwards: bool,
    prior: Prior,
    rates: np.ndarray,
    part: tuple[int, int],
    thin: int,
    rng: Any,
    tally: Tally,
) -> None:
    r"""Sweeps of exact Gibbs for $y \sim N(Xb, \sigma^2)$, the intercept integrated out.

    Arguments:
        data: the features, and what else is known.
        b, r: the coefficients and y - Xb; with `gram`, X'(y - Xb) and, at its end, |y - Xb|².
        level: the inner product of r with `root`, an array of one number.
        noise: sigma squared, an array of one number.
        places: sums of the probabilities to which a coefficient may change its place.
        backwards: from the last coefficient to the first. Of features that can replace each other
            the first tends to be chosen and to stay: chains that begin at either end show it.
        prior: the mixture.
        rates: the rate of learning in each sweep. 0 leaves theta where it is, and below 0 it is
            drawn from its posterior, too.
        part: the first of these sweeps that is made now, and the first that is not. Cut into
            parts, sweeps give the same numbers.
        thin, rng, tally: see `Tally`.
    """
    w, table = np.empty(prior.variances.size), np.empty((2, prior.variances.size))
    if part[0] == 0:
        level[0] = 0.0
        if data.columns.dense.size == 0:
            for i in range(r.size):
                level[0] += data.root[i] * r[i]
    for t in range(part[0], part[1]):
        exchange(data, b, r, level, noise[0], places, prior, w, rng)
        change_levels(data, b, r, level, noise[0], prior, w, rng)
        tally.labels[:] = 0.0
        of_table = -1.0
        for place in range(b.size):
            j = b.size - 1 - place if backwards else place
            h = data.squares[j] / noise[0]
            q = correlation(data, r, level, j) / noise[0] + h * b[j]
            if h != of_table:  # the same for all standardised features
                of_table = h
                tabulate(h, prior, table)
            mean = tabulated(q, table, w)
            k = choose(w, rng.random())
            new = draw(q, h, prior.variances[k], rng)
            record(j, mean, w, k, t, tally)
            if new != b[j]:
                change(data, b, r, level, j, new)
        total = 0.0
        if data.gram:
            total = max(r[b.size], 0.0)
        else:
            for i in range(r.size):
                total += r[i] * r[i]
            total = max(total - level[0] * level[0], 0.0)
        tally.scores[t, 0] = total
        if rates[t] > 0.0:
            learn(prior, tally.counts[t], b.size, rates[t])
            # Never 0: where nothing is left of y, the noise is 1e-5 of it.
            noise[0] += rates[t] * (max(total / data.rows, 1e-10) - noise[0])
        elif rates[t] < 0.0:
            draw_weights(prior, rng, tally)
            noise[0] = max(0.5 * total / rng.standard_gamma(0.5 * data.rows), 1e-10)
        record_theta(prior, noise[0], t, tally)
        keep(t, thin, b, 0.0, tally)
