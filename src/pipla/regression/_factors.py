r"""Factors: features that are 1 for one level of a category each (one-hot), all levels together.

With an intercept $\alpha$ only the differences of their effects $\beta_l$ are determined: all of
them may grow by a number that is taken off the intercept. Under a prior with a point mass the
answers with many zeros are the probable ones, and with many observations no sweep over single
coefficients leads from one of these answers to another. So the intercept and *all* effects of a
factor are drawn together. Let $u_l$ be what observations of level l have beside the other features,
on average, with precision $h_l$. Given the intercept, levels are independent, and with the effects
integrated out its density is

$$ p(\alpha) \propto \prod_l \sum_k \pi_k N(u_l; \alpha, 1/h_l + v_k / s_l^2), $$

where $s_l \beta_l$ is the coefficient of the standardised feature. A mixture of normals around its
peaks (a few steps of EM, each from another $u_l$) is proposed, independently of the state, and
then the effects are drawn. For labels and counts, each $u_l$ is a maximum and $h_l$ the curvature
there, and Metropolis' rule corrects for the difference.

Reported are effects relative to one level, the reference: differences are what data determine.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from pipla.regression._mixture import choose, draw, mixture
from pipla.regression._state import Columns, Prior
from pipla.regression._vector_math import compiled, exp

#: The peaks of the intercept's density that are looked for in one move, and the steps for each.
PEAKS, STEPS = 12, 3
#: The variance of a proposal around a peak, relative to the curvature there: wider is safe.
WIDER = 1.5
#: The least weight of each of them, relative to the largest: a state that is hardly ever proposed
#: would hardly ever be left.
LEAST = 0.05
#: Of levels that are 0 nearly as often as any, the most frequent one is the reference.
NEARLY = 0.9


class Factors(NamedTuple):
    """The levels of all factors, one factor after the other.

    Attributes:
        members: the column of each level.
        starts: where the levels of each factor begin, and the end.
        totals: the sum of the weights of the observations of each level.
        scales: 1 over the difference of the column's two values.
        lows: the smaller one of these.
        levels: the place in `members` of the level of each observation; (factors, observations).
    """

    members: np.ndarray
    starts: np.ndarray
    totals: np.ndarray
    scales: np.ndarray
    lows: np.ndarray
    levels: np.ndarray

    def groups(self) -> list[slice]:
        """The places in `members` of each factor."""
        return [slice(*ends) for ends in zip(self.starts[:-1], self.starts[1:], strict=True)]


def factors_of(columns: Columns, weights: np.ndarray, intercept: bool) -> Factors:
    """The factors among the columns; none without an intercept."""
    rows = len(weights)
    places, inside, lows, heights = _indicators(columns, rows)
    sets = _partitions(inside) if intercept and len(places) else []
    members = np.array([j for group in sets for j in group], np.int64)
    levels = np.zeros((len(sets), rows), np.int64)
    totals, first = np.zeros(len(members)), 0
    for factor, group in enumerate(sets):
        for place, j in enumerate(group):
            at = inside.indices[inside.indptr[j] : inside.indptr[j + 1]]
            levels[factor, at] = first + place
            totals[first + place] = weights[at].sum()
        first += len(group)
    starts = np.cumsum([0, *map(len, sets)]).astype(np.int64)
    scales = 1 / heights[members]
    return Factors(places[members], starts, totals, scales, lows[members], levels)


def _indicators(columns: Columns, rows: int) -> tuple[np.ndarray, Any, np.ndarray, np.ndarray]:
    """Columns of two values: which, where they have the larger one, that, and the difference."""
    if columns.dense.size:
        low, high = columns.dense.min(axis=1), columns.dense.max(axis=1)
        height = high - low
        # Rounding of a standardised column is far below this part of its two values' difference.
        near = 1e-9 * height[:, None]
        found = []
        for j in range(len(columns.dense)):
            above = columns.dense[j] - low[j] > 0.5 * height[j]
            off = np.where(above, high[j], low[j]) - columns.dense[j]
            if height[j] > 0 and np.all(np.abs(off) <= near[j]):
                found.append((j, np.flatnonzero(above)))
    else:
        size = len(columns.starts) - 1
        low, height, found = np.zeros(size), np.zeros(size), []
        for j in range(size):
            part = slice(columns.starts[j], columns.starts[j + 1])
            values = columns.values[part]
            if len(values) and values[0] > 0 and np.all(np.abs(values / values[0] - 1) < 1e-9):
                height[j] = values[0]
                found.append((j, columns.rows[part]))
    places = np.array([j for j, _ in found], np.int64)
    at = np.concatenate([part for _, part in found]) if found else np.zeros(0, np.int64)
    ends = np.cumsum([0, *(len(part) for _, part in found)])
    inside = scipy.sparse.csc_array((np.ones(len(at), np.int8), at, ends), (rows, len(places)))
    return places, inside, low[places], height[places]


def _partitions(inside: Any) -> list[list[int]]:
    """Sets of two or more columns with exactly one in every row.

    Each contains one of the columns that are in the first row. From there on the first row that
    no column is in yet decides: the first column that is there, and in no row twice, comes next.
    """
    rows = inside.tocsr()
    found: list[list[int]] = []
    used: set[int] = set()

    def at(matrix: Any, place: int) -> np.ndarray:
        return matrix.indices[matrix.indptr[place] : matrix.indptr[place + 1]]

    for begin in at(rows, 0):
        chosen, covered = [int(begin)], np.zeros(inside.shape[0], bool)
        covered[at(inside, begin)] = True
        while not covered.all():
            open_row = int(np.argmin(covered))
            fitting = (
                j for j in at(rows, open_row) if j not in used and not covered[at(inside, j)].any()
            )
            j = next(fitting, None)
            if j is None:
                break
            chosen.append(int(j))
            covered[at(inside, j)] = True
        if begin not in used and covered.all() and len(chosen) > 1:
            found.append(sorted(chosen))
            used.update(chosen)
    return found


def references(factors: Factors, slab: np.ndarray) -> list[int]:
    """The place in `members` of the reference of each factor, given probabilities of not being 0.

    Arguments:
        factors: the factors.
        slab: of each column, of shape (outputs, columns).
    """
    zero = np.mean(1 - slab[:, factors.members], axis=0)
    found = []
    for part in factors.groups():
        often = zero[part] >= NEARLY * zero[part].max()
        found.append(part.start + int(np.argmax(np.where(often, factors.totals[part], -1.0))))
    return found


def relative(factors: Factors, places: list[int], b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (last axis) relative to the references, and what the intercept gains by that."""
    b, gained = b.copy(), np.zeros(b.shape[:-1])
    for part, place in zip(factors.groups(), places, strict=True):
        members, scales = factors.members[part], factors.scales[part]
        shift = b[..., factors.members[place]] / factors.scales[place]
        b[..., members] -= (shift[..., None] * scales).astype(b.dtype)
        b[..., factors.members[place]] = 0.0
        gained += shift * (1 + factors.lows[part] @ scales)
    return b, gained


# In machine code. #


@compiled
def density(
    alpha: float, u: np.ndarray, h: np.ndarray, s: np.ndarray, prior: Prior, w: np.ndarray
) -> tuple[float, float, float]:
    """The logarithm of p(alpha); and the mean and the precision of the next step of EM."""
    log_p = top_mean = precision = 0.0
    for i in range(u.size):
        off = u[i] - alpha
        top, total = mixture(h[i] * off / s[i], h[i] / (s[i] * s[i]), prior, w)
        log_p += top + math.log(total) - 0.5 * h[i] * off * off
        for k in range(w.size):
            sharp = w[k] / (1.0 / h[i] + prior.variances[k] / (s[i] * s[i]))
            top_mean += sharp * u[i]
            precision += sharp
    return log_p, top_mean / precision, precision


@compiled
def proposal(
    u: np.ndarray, h: np.ndarray, s: np.ndarray, prior: Prior, w: np.ndarray, rng: Any
) -> np.ndarray:
    """Weights, means and precisions of a mixture of normals around the peaks of p(alpha).

    One of them is as wide as the levels are apart, for intercepts that are no level's.
    """
    count = min(u.size, PEAKS)
    first = int(rng.random() * u.size)
    found, best = np.empty((3, count + 1)), -1e300
    for i in range(count + 1):
        at = np.mean(u)
        if i < count:
            at = u[(first + i * u.size // count) % u.size]
            for _ in range(STEPS):
                _, at, _ = density(at, u, h, s, prior, w)
        log_p, _, sharp = density(at, u, h, s, prior, w)
        if i == count:
            sharp = 1.0 / np.mean((u - at) ** 2 + 1.0 / h)
        found[0, i], found[1, i], found[2, i] = log_p - 0.5 * math.log(sharp), at, sharp / WIDER
        best = max(best, found[0, i])
    total = 0.0
    for i in range(count + 1):
        found[0, i] = exp(max(found[0, i] - best, -700.0)) + LEAST
        total += found[0, i]
    for i in range(count + 1):
        found[0, i] /= total
    return found


@compiled
def log_mixture(alpha: float, normals: np.ndarray) -> float:
    """The logarithm of the density of the proposal."""
    best, total = -1e300, 0.0
    for i in range(normals.shape[1]):
        off = alpha - normals[1, i]
        value = math.log(normals[0, i]) + 0.5 * math.log(normals[2, i])
        value -= 0.5 * normals[2, i] * off * off
        if value > best:
            total = total * exp(max(best - value, -700.0)) + 1.0
            best = value
        else:
            total += exp(max(value - best, -700.0))
    return best + math.log(total)


@compiled
def propose(
    alpha: float,
    u: np.ndarray,
    h: np.ndarray,
    s: np.ndarray,
    prior: Prior,
    w: np.ndarray,
    new: np.ndarray,
    rng: Any,
) -> tuple[float, float]:
    r"""Another intercept, and the effects of all levels given it in `new` (as coefficients).

    Returned are the intercept and the logarithm of p(new) q(old) / (p(old) q(new)), which is that
    of the acceptance probability where the likelihood is normal.
    """
    normals = proposal(u, h, s, prior, w, rng)
    i = choose(normals[0], rng.random())
    moved = normals[1, i] + rng.standard_normal() / math.sqrt(normals[2, i])
    gain = density(moved, u, h, s, prior, w)[0] - density(alpha, u, h, s, prior, w)[0]
    gain += log_mixture(alpha, normals) - log_mixture(moved, normals)
    for j in range(u.size):
        q, h_b = h[j] * (u[j] - moved) / s[j], h[j] / (s[j] * s[j])
        mixture(q, h_b, prior, w)
        new[j] = draw(q, h_b, prior.variances[choose(w, rng.random())], rng)
    return moved, gain
