r"""Sweeps over the coefficients of a generalised linear model in machine code (numba).

As a function of one coefficient $t$ with the others held fixed, the log-likelihood is approximately
$q t - \tfrac h2 t^2$ up to a constant, and `_mixture` has the conditional under the prior.

The loop over sweeps belongs to this application and runs on the host: a sweep is thousands of
dependent updates of one number each, for which XLA is not made.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipla.regression._factors import Factors, propose
from pipla.regression._mixture import (
    choose,
    draw,
    draw_weights,
    keep,
    labels_given,
    learn,
    mixture,
    record_state,
    record_theta,
)
from pipla.regression._state import Columns, Prior, Tally
from pipla.regression._vector_math import compiled, exp, inlined, log1p

#: By how much the curvature is overstated in some of the updates.
DAMPED = 4.0
#: By how much it is understated in others, and the part that these are.
LENGTHENED, LONG = 4.0, 0.1
#: The part of the updates in which a coefficient keeps its label.
SAME_LABEL = 0.1
#: The part of the sweeps in which all effects of each factor are drawn together: that costs about
#: as much as four other coefficients.
TOGETHER = 0.25
#: Steps of Newton to the maximum of a level, at most this long; and the precision of a normal prior
#: that gives levels a maximum whose labels are all alike (only for the proposal).
NEWTON, LONGEST, LITTLE = 6, 2.0, 0.05


@inlined
def observation(poisson: bool, eta: float) -> tuple[float, float, float]:
    """The cumulant A(eta) with its first and second derivative."""
    if poisson:
        mean = exp(min(max(eta, -700.0), 700.0))
        return mean, mean, mean
    small = exp(max(-abs(eta), -700.0))
    above = 1.0 / (1.0 + small)
    mean = above if eta >= 0.0 else small * above
    return max(eta, 0.0) + log1p(small), mean, small * above * above


@compiled
def observations(
    poisson: bool, eta: np.ndarray, a: np.ndarray, first: np.ndarray, second: np.ndarray
) -> None:
    """`observation` of each; a function of its own, or the loop is not vectorised (3 times)."""
    if poisson:
        for i in range(eta.size):
            a[i], first[i], second[i] = observation(True, eta[i])
    else:
        for i in range(eta.size):
            a[i], first[i], second[i] = observation(False, eta[i])


@compiled
def maxima(
    poisson: bool, rest: np.ndarray, y: np.ndarray, weights: np.ndarray, at: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each level, what is to be added to the predictors of its observations, and precisions."""
    n = y.size
    eta, a, first, second = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    u, h = np.zeros(count), np.empty(count)
    for _ in range(NEWTON):
        for i in range(n):
            eta[i] = rest[i] + u[at[i]]
        observations(poisson, eta, a, first, second)
        slope = -LITTLE * u
        h[:] = LITTLE
        for i in range(n):
            slope[at[i]] += weights[i] * (y[i] - first[i])
            h[at[i]] += weights[i] * second[i]
        for k in range(count):
            u[k] += min(max(slope[k] / h[k], -LONGEST), LONGEST)
    return u, h


@compiled
def change_levels(
    of: Factors,
    y: np.ndarray,
    weights: np.ndarray,
    eta: np.ndarray,
    b: np.ndarray,
    level: np.ndarray,
    level_variance: float,
    poisson: bool,
    prior: Prior,
    w: np.ndarray,
    rng: Any,
) -> None:
    """Draw all effects of each factor together, and the intercept with them (see `_factors`)."""
    n = y.size
    moved, a, first, second = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for factor in range(of.starts.size - 1):
        part = slice(of.starts[factor], of.starts[factor + 1])
        members, s, lows = of.members[part], of.scales[part], of.lows[part]
        at = of.levels[factor] - of.starts[factor]
        old, new = b[members], np.empty(members.size)
        alpha = level[0] + np.sum(lows * old)
        rest = eta - alpha - (old / s)[at]
        u, h = maxima(poisson, rest, y, weights, at, members.size)
        alpha_new, gain = propose(alpha, u, h, s, prior, w, new, rng)
        level_new = alpha_new - np.sum(lows * new)
        gain -= 0.5 * (level_new * level_new - level[0] * level[0]) / level_variance
        # The likelihood, less the one that was expanded.
        gain += 0.5 * np.sum(h * ((u - alpha_new - new / s) ** 2 - (u - alpha - old / s) ** 2))
        observations(poisson, eta, a, first, second)
        for i in range(n):
            gain += weights[i] * (a[i] - y[i] * eta[i])
            moved[i] = rest[i] + alpha_new + new[at[i]] / s[at[i]]
        observations(poisson, moved, a, first, second)
        for i in range(n):
            gain += weights[i] * (y[i] * moved[i] - a[i])
        if math.log(rng.random()) < gain:
            b[members] = new
            level[0] = level_new
            eta[:] = moved


@compiled
def glm_sweeps(
    columns: Columns,
    factors: Factors,
    y: np.ndarray,
    weights: np.ndarray,
    eta: np.ndarray,
    terms: np.ndarray,
    b: np.ndarray,
    level: np.ndarray,
    level_variance: float,
    poisson: bool,
    backwards: bool,
    visits: np.ndarray,
    prior: Prior,
    rates: np.ndarray,
    part: tuple[int, int],
    thin: int,
    rng: Any,
    tally: Tally,
) -> None:
    r"""Metropolis-within-Gibbs sweeps for $\sum_i w_i [y_i \eta_i - A(\eta_i)]$.

    At the current value $s$ of a coefficient the log-likelihood has derivatives $g$ and $-h$. The
    proposal is the exact conditional under the expansion to second order: $q = g + h s$. With
    $Q_s(t) = g (t - s) - \tfrac h2 (t - s)^2$ and $Z(s)$ the normaliser of prior times $e^{Q_s}$,
    the proposal t is accepted with probability

    $$ \min\left(1, \exp[\ell(t) - \ell(s) + Q_t(s) - Q_s(t)] \, Z(s) / Z(t)\right): $$

    the prior cancels. The rule is valid for any g and h. In a part of the updates, chosen at
    random, they are half of the gradient and `DAMPED` times the curvature: a short Langevin step.
    In another part the curvature is `LENGTHENED` times smaller, a long step: the log-likelihood of
    a few labels levels off for large coefficients, which its expansion at 0 hardly ever proposes,
    so that the way back to 0 would hardly ever be accepted. In a part of all updates, also chosen
    whatever the state is, the coefficient keeps its label: 0 stays 0, and others move under the
    normal of a label that is drawn given the coefficient. Where a feature separates the labels, the
    likelihood is flat, and nearly all other proposals are 0 or small, and rejected. A proposal of
    0 at 0 costs nothing more, so that a sweep over a sparse vector costs little more than two
    products with X.

    Arguments:
        columns: X.
        factors: columns that are the levels of a category.
        y, weights: the responses and the weights of the observations.
        eta: the linear predictors, with any offset; kept up to date.
        terms: what the likelihood of each observation is there: A, and its weighted derivatives;
            kept up to date; (3, observations).
        b, level: the coefficients and the intercept (an array of one number), kept up to date.
        level_variance: the variance of its normal prior; 0 for no intercept.
        poisson: counts with $A = e^\eta$ instead of labels with $A = \log(1 + e^\eta)$.
        backwards: as for `linear_sweeps`.
        visits: the probability that a sweep updates a coefficient, one for each. They must not
            depend on the state; below 1 they save the time of what is nearly always 0.
        prior, rates, part, thin, rng, tally: as for `linear_sweeps`. The first score is the number
            of accepted proposals, less those of 0 at 0, and the second the number of proposals.
    """
    n = y.size
    w = np.empty(prior.variances.size)
    normal = Prior(np.array([level_variance]), np.ones(1))
    one = np.empty(1)
    sparse = columns.dense.size == 0
    ones = np.ones(n)
    a, u, c = terms[0], terms[1], terms[2]
    eta_new, a_new, u_new, c_new = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    first = 0 if level_variance == 0.0 else -1
    damping = 0.25 if poisson else 0.1
    for t in range(part[0], part[1]):
        together = factors.starts.size > 1 and rng.random() < TOGETHER
        if together:
            change_levels(
                factors, y, weights, eta, b, level, level_variance, poisson, prior, w, rng
            )
        if together or t == 0:
            for i in range(n):
                value, mean, curvature = observation(poisson, eta[i])
                a[i], u[i], c[i] = value, weights[i] * (y[i] - mean), weights[i] * curvature
        tally.labels[:] = 0.0
        for place in range(first, b.size):
            is_level = place < 0
            j = b.size - 1 - place if backwards and not is_level else place
            if not is_level and visits[j] < 1.0 and rng.random() >= visits[j]:
                record_state(j, b[j], prior, w, rng, t, tally)
                continue
            same_label = not is_level and rng.random() < SAME_LABEL
            if same_label and b[j] == 0.0:
                record_state(j, 0.0, prior, w, rng, t, tally)
                continue
            compressed = sparse and not is_level
            x = ones if is_level or sparse else columns.dense[j]
            start = columns.starts[j] if compressed else 0
            count = columns.starts[j + 1] - start if compressed else n
            old = level[0] if is_level else b[j]
            g = h = 0.0
            if compressed:
                for e in range(start, start + count):
                    value, i = columns.values[e], columns.rows[e]
                    g += value * u[i]
                    h += value * value * c[i]
            else:
                for i in range(n):
                    g += x[i] * u[i]
                    h += x[i] * x[i] * c[i]
            # Where the curvature changes much, a whole Newton step would always be rejected.
            of_g, of_h = 1.0, 1.0
            kind = rng.random()
            if kind < damping:
                of_g, of_h = 0.5, DAMPED
            elif kind < damping + LONG:
                of_h = 1.0 / LENGTHENED
            g, h = of_g * g, of_h * h
            q = g + h * old
            single = is_level or same_label
            if is_level:
                normal.variances[0] = level_variance
            elif same_label:
                labels_given(old, prior, w)
                normal.variances[0] = prior.variances[max(choose(w, rng.random()), 1)]
            if single:
                top, total = mixture(q, h, normal, one)
                new = draw(q, h, normal.variances[0], rng)
            else:
                top, total = mixture(q, h, prior, w)
                k = choose(w, rng.random())
                new = draw(q, h, prior.variances[k], rng)
            step = new - old
            if step == 0.0:
                if not is_level:
                    record_state(j, old, prior, w, rng, t, tally)
                continue
            gain = g_new = h_new = 0.0
            if compressed:
                for e in range(count):
                    value, i = columns.values[start + e], columns.rows[start + e]
                    eta_new[e] = eta[i] + value * step
                    a_new[e], mean, curvature = observation(poisson, eta_new[e])
                    u_new[e], c_new[e] = weights[i] * (y[i] - mean), weights[i] * curvature
                    gain += weights[i] * (y[i] * value * step - (a_new[e] - a[i]))
                    g_new += value * u_new[e]
                    h_new += value * value * c_new[e]
            else:
                # Four loops: with more arrays in one, LLVM gives up on proving that they do not
                # overlap, and does not vectorise it.
                for i in range(n):
                    eta_new[i] = eta[i] + x[i] * step
                observations(poisson, eta_new, a_new, u_new, c_new)
                for i in range(n):
                    u_new[i] = weights[i] * (y[i] - u_new[i])
                    c_new[i] *= weights[i]
                for i in range(n):
                    gain += weights[i] * (y[i] * x[i] * step - (a_new[i] - a[i]))
                    g_new += x[i] * u_new[i]
                    h_new += x[i] * x[i] * c_new[i]
            g_new, h_new = of_g * g_new, of_h * h_new
            q_new = g_new + h_new * new
            if single:
                top_new, total_new = mixture(q_new, h_new, normal, one)
            else:
                top_new, total_new = mixture(q_new, h_new, prior, w)
            # log Z(s) is the log of the sum less g s + h s²/2; see the docstring for the rest.
            top -= (g + 0.5 * h * old) * old
            top_new -= (g_new + 0.5 * h_new * new) * new
            gain += (h - h_new) * 0.5 * step * step - (g + g_new) * step
            gain += top - top_new + math.log(total / total_new)
            tally.scores[t, 1] += 1.0
            accepted = math.log(rng.random()) < gain  # not where that is not a number
            if not is_level:
                record_state(j, new if accepted else old, prior, w, rng, t, tally)
            if not accepted:
                continue
            tally.scores[t, 0] += 1.0
            if is_level:
                level[0] = new
            else:
                b[j] = new
            if compressed:
                for e in range(count):
                    i = columns.rows[start + e]
                    eta[i], a[i], u[i], c[i] = eta_new[e], a_new[e], u_new[e], c_new[e]
            else:
                eta[:], a[:], u[:], c[:] = eta_new, a_new, u_new, c_new
        if rates[t] > 0.0:
            learn(prior, tally.counts[t], b.size, rates[t])
        elif rates[t] < 0.0:
            draw_weights(prior, rng, tally)
        record_theta(prior, 1.0, t, tally)
        keep(t, thin, b, level[0], tally)
