r"""Sweeps for several classes: given the others, one class or not is a logistic regression.

With $z_c$ the predictors of class c, the probability of c is $1/(1 + e^{-(z_c - o_c)})$ with the
offset $o_c = \log \sum_{d \ne c} e^{z_d}$. All classes share one prior.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipla.regression._factors import Factors
from pipla.regression._kernels import glm_sweeps
from pipla.regression._mixture import draw_weights, record_theta
from pipla.regression._state import Columns, Prior, Tally
from pipla.regression._vector_math import compiled


@compiled
def multinomial_sweeps(
    columns: Columns,
    factors: Factors,
    targets: np.ndarray,
    weights: np.ndarray,
    z: np.ndarray,
    b: np.ndarray,
    level: np.ndarray,
    level_variance: float,
    backwards: bool,
    visits: np.ndarray,
    prior: Prior,
    rates: np.ndarray,
    part: tuple[int, int],
    thin: int,
    rng: Any,
    tally: Tally,
    levels: np.ndarray,
) -> None:
    """As `glm_sweeps`, class after class.

    Arguments:
        targets: 1 where an observation is of a class, else 0; (classes, observations).
        z, b, level: predictors, coefficients (classes, features) and intercepts (classes, 1).
        tally: its draws are of all coefficients, class after class; its levels are not used.
        levels: the intercepts of the draws; (classes, draws).
        columns, factors, weights, level_variance, backwards, visits, prior, rates, part,
            thin, rng: as for `glm_sweeps`.
    """
    classes, features = b.shape
    n = weights.size
    offset, eta, terms = np.empty(n), np.empty(n), np.empty((3, n))
    no_draws, no_levels = np.zeros((0, features), np.float32), np.zeros(0)
    for t in range(part[0], part[1]):
        rate = np.full(1, max(rates[t], 0.0) / classes)
        tally.labels[:] = 0.0
        for c in range(classes):
            for i in range(n):
                top = -1e300
                for d in range(classes):
                    if d != c:
                        top = max(top, z[d, i])
                total = 0.0
                for d in range(classes):
                    if d != c:
                        total += math.exp(z[d, i] - top)
                offset[i] = top + math.log(total)
                eta[i] = z[c, i] - offset[i]
            own = slice(c * features, (c + 1) * features)
            counts = np.zeros((1, tally.counts.shape[1]))
            labels = np.zeros(tally.labels.size)
            once = Tally(
                tally.mean[own],
                tally.slab[own],
                counts,
                labels,
                tally.scores[t : t + 1],
                tally.theta[t : t + 1],
                no_draws,
                no_levels,
            )
            glm_sweeps(
                columns,
                factors,
                targets[c],
                weights,
                eta,
                terms,
                b[c],
                level[c],
                level_variance,
                False,
                backwards,
                visits[own],
                prior,
                rate,
                (0, 1),
                1,
                rng,
                once,
            )
            z[c] = eta + offset
            tally.counts[t] += counts[0]
            tally.labels[:] += labels
        if rates[t] < 0.0:
            draw_weights(prior, rng, tally)
            record_theta(prior, 1.0, t, tally)
        if (t + 1) % thin == 0 and (t + 1) // thin <= tally.draws.shape[0]:
            place = (t + 1) // thin - 1
            for c in range(classes):
                levels[c, place] = level[c, 0]
                for j in range(features):
                    tally.draws[place, c * features + j] = b[c, j]
