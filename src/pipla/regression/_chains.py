"""Chains over the coefficients of each kind of regression: data, position, sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import expit, softmax

from pipla.regression._chain import Chain
from pipla.regression._design import Design, dense_columns, scaled_rows
from pipla.regression._entries import run_glm, run_linear, run_multinomial
from pipla.regression._factors import factors_of
from pipla.regression._linear import Responses
from pipla.regression._state import Columns, Prior, Tally

#: The variance of the normal prior of an intercept of a generalised linear model.
LEVEL_VARIANCE = 100.0
#: A coefficient of a generalised linear model that was 0 in more than 95 % of the last sweeps is
#: updated in fewer of the next ones, but in a quarter of them at least.
OFTEN, FEWEST_VISITS = 20.0, 0.25
#: Features are strongly correlated where the largest eigenvalue of X'X is so many times that of
#: independent features.
CORRELATED = 10.0
#: Predictions are compared for this many observations at most.
MOST_WATCHED = 2000
#: A Gram matrix larger than this is not formed.
LARGEST_GRAM = 4000


class LinearData:
    """What the chains of a linear regression share: columns, centred responses, norms.

    Arguments:
        design: the features.
        y: the responses, on a scale where they have variance 1 or so.
        weights: of the observations.
        intercept: project the intercept out of features and responses.
    """

    def __init__(self, design: Design, y: np.ndarray, weights: np.ndarray, intercept: bool) -> None:
        root = np.sqrt(weights)
        total = float(weights.sum())
        columns = design.columns
        if np.any(root != 1):
            columns = scaled_rows(design.columns, root)
        self.root = root / np.sqrt(total) if intercept else np.zeros(len(y))
        self.degrees = max(total - 1, 1.0) if intercept else total
        level = float(weights @ y) / total if intercept else 0.0
        self.y = root * (y - level)
        self.shifts: np.ndarray = np.zeros(design.size)
        self.size = design.size
        if design.is_dense:
            self.squares = np.einsum("ji,ji->j", columns.dense, columns.dense)
        else:
            owner = np.repeat(np.arange(design.size), np.diff(columns.starts))
            squares = np.bincount(owner, columns.values**2, design.size)
            self.shifts = np.bincount(owner, columns.values * self.root[columns.rows], design.size)
            self.squares = squares - self.shifts**2
        self.columns = columns
        self.factors = factors_of(design.columns, weights, intercept)
        # Those of standardised features differ by rounding only: what they determine is tabulated.
        mean = float(self.squares.mean()) if design.size else 1.0
        self.squares = np.where(np.abs(self.squares - mean) < 1e-11 * mean, mean, self.squares)
        # With fewer features than observations, X'X and X'y are all that is needed.
        self.gram = design.is_dense and design.size <= min(total, LARGEST_GRAM)
        if self.gram:
            self.products = self.columns.dense @ self.y
            self.norm = float(self.y @ self.y)
            self.columns = dense_columns(self.columns.dense @ self.columns.dense.T)
        self.correlated = design.is_dense and self._largest_eigenvalue() > CORRELATED * (
            1 + np.sqrt(self.size / len(y))
        ) ** 2 * float(np.mean(self.squares))

    def _largest_eigenvalue(self) -> float:
        """That of X'X, by a few steps of the power method."""
        direction, norm = np.random.default_rng(0).standard_normal(self.size), 0.0
        for _ in range(10):
            direction = direction / max(float(np.linalg.norm(direction)), 1e-300)
            image = self.columns.dense @ (
                direction if self.gram else direction @ self.columns.dense
            )
            norm, direction = float(np.linalg.norm(image)), image
        return norm


class LinearChain(Chain):
    """A chain of exact conditional draws; the intercept is integrated out."""

    moving = ("b", "noise", "places", "residual", "level")
    levels = 1

    def __init__(
        self, data: LinearData, b: np.ndarray, noise: float, seed: np.random.SeedSequence
    ) -> None:
        self.data, self.size, self.factors = data, data.size, data.factors
        self.places = np.arange(1.0, data.size + 1)
        self.residual = np.zeros(data.size + 1 if data.gram else len(data.y))
        self.level = np.zeros(1)
        self.b, self.work = b.copy(), float(numbers_in(data.columns))
        self.correlated = data.correlated
        self.noise = np.array([noise])
        self.rng = np.random.default_rng(seed)

    def sweep(
        self,
        prior: Prior,
        rates: np.ndarray,
        thin: int,
        tally: Tally,
        part: tuple[int, int] | None = None,
    ) -> None:
        part = part or (0, len(rates))
        data = self.data
        # Computed again for each block, so that rounding errors do not add up.
        if part[0] == 0 and data.gram:
            image = data.columns.dense @ self.b
            norm = data.norm - 2 * data.products @ self.b + image @ self.b
            self.residual = np.append(data.products - image, max(norm, 0.0))
        elif part[0] == 0:
            self.residual = data.y - product(data.columns, self.b, len(data.y))
        run_linear(
            Responses(
                data.columns,
                data.squares,
                data.shifts,
                data.root,
                data.degrees,
                data.gram,
                data.factors,
            ),
            self.b,
            self.residual,
            self.level,
            self.noise,
            self.places,
            self.backwards,
            prior,
            rates,
            part,
            thin,
            self.rng,
            tally._replace(levels=tally.levels[0]),
        )

    def attend(self, inclusion: np.ndarray) -> None:
        self.places = np.cumsum(inclusion + inclusion.sum() / max(self.size, 1) + 1e-6)

    def predicted(self, tally: Tally, sweeps: int) -> np.ndarray:
        return tally.mean / sweeps

    def square(self, d: np.ndarray, m: np.ndarray) -> float:
        data = self.data
        if data.gram:
            total = d @ data.columns.dense @ d
        else:
            total = np.sum(product(data.columns, d, len(data.y)) ** 2) - (data.shifts @ d) ** 2
        return float(total / (data.degrees * self.noise[0]))


class Watched:
    """Some of the observations, at which the predictions of chains are compared."""

    def __init__(self, columns: Columns, weights: np.ndarray) -> None:
        self.rows = np.arange(0, len(weights), -(-len(weights) // MOST_WATCHED))
        self.weights = weights[self.rows] / weights[self.rows].sum()
        x: Any = columns.dense.T
        if not columns.dense.size:
            shape = (len(weights), len(columns.starts) - 1)
            x = scipy.sparse.csc_array((columns.values, columns.rows, columns.starts), shape)
        self.x = (x if columns.dense.size else x.tocsr())[self.rows]

    def of(self, values: np.ndarray) -> np.ndarray:
        """Those of all observations."""
        return values[self.rows]

    def mean(self, values: np.ndarray) -> float:
        """The weighted mean."""
        return float(self.weights @ values)


class GlmChain(Chain):
    """A chain for labels or counts: proposals from the conditional to second order.

    Arguments:
        columns: the features.
        y, weights: the responses and their weights.
        base: a known part of the linear predictors.
        intercept: whether there is one.
        poisson: counts instead of labels.
        b: where the coefficients start.
        seed: of the random numbers.
    """

    moving = ("b", "level", "visits", "eta", "terms")
    levels = 1

    def __init__(
        self,
        columns: Columns,
        y: np.ndarray,
        weights: np.ndarray,
        base: np.ndarray,
        intercept: bool,
        poisson: bool,
        b: np.ndarray,
        seed: np.random.SeedSequence,
    ) -> None:
        self.columns, self.y, self.weights, self.base = columns, y, weights, base
        self.level_variance = LEVEL_VARIANCE if intercept else 0.0
        self.poisson = poisson
        self.b, self.level = b.copy(), np.zeros(1)
        self.size, self.visits = len(b), np.ones(len(b))
        self.eta, self.terms = np.zeros(len(y)), np.zeros((3, len(y)))
        self.work = float(numbers_in(columns))
        self.watched = Watched(columns, weights)
        self.factors = factors_of(columns, weights, intercept)
        self.noise = np.ones(1)
        self.rng = np.random.default_rng(seed)

    def attend(self, inclusion: np.ndarray) -> None:
        self.visits = visits_of(inclusion)

    def predicted(self, tally: Tally, sweeps: int) -> np.ndarray:
        z = self.watched.x @ tally.draws.T + self.watched.of(self.base)[:, None] + tally.levels[0]
        return (np.exp(np.minimum(z, 700.0)) if self.poisson else expit(z)).mean(axis=1)

    def square(self, d: np.ndarray, m: np.ndarray) -> float:
        variance = m if self.poisson else m * (1 - m)
        return self.watched.mean(d**2 / np.maximum(variance, 1e-300))

    def sweep(
        self,
        prior: Prior,
        rates: np.ndarray,
        thin: int,
        tally: Tally,
        part: tuple[int, int] | None = None,
    ) -> None:
        part = part or (0, len(rates))
        if part[0] == 0:
            self.eta = self.base + self.level[0] + product(self.columns, self.b, len(self.y))
        run_glm(
            self.columns,
            self.factors,
            self.y,
            self.weights,
            self.eta,
            self.terms,
            self.b,
            self.level,
            self.level_variance,
            self.poisson,
            self.backwards,
            self.visits,
            prior,
            rates,
            part,
            thin,
            self.rng,
            tally._replace(levels=tally.levels[0]),
        )


class MultinomialChain(Chain):
    """A chain for several classes, each with its coefficients; they share one prior."""

    moving = ("b", "level", "visits", "z")

    def __init__(
        self,
        columns: Columns,
        labels: np.ndarray,
        weights: np.ndarray,
        base: np.ndarray,
        intercept: bool,
        b: np.ndarray,
        seed: np.random.SeedSequence,
    ) -> None:
        self.columns, self.weights, self.base = columns, weights, base
        classes, self.features = b.shape
        self.targets = (labels == np.arange(classes)[:, None]).astype(np.float64)
        self.level_variance = LEVEL_VARIANCE if intercept else 0.0
        self.b, self.level = b.copy(), np.zeros((classes, 1))
        self.size, self.levels, self.visits = b.size, classes, np.ones(b.size)
        self.z = np.zeros((classes, len(weights)))
        self.work = float(classes * numbers_in(columns))
        self.watched = Watched(columns, weights)
        self.factors = factors_of(columns, weights, intercept)
        self.noise = np.ones(1)
        self.rng = np.random.default_rng(seed)

    def attend(self, inclusion: np.ndarray) -> None:
        self.visits = visits_of(inclusion)

    def predicted(self, tally: Tally, sweeps: int) -> np.ndarray:
        draws = tally.draws.reshape(len(tally.draws), *self.b.shape)
        z = np.stack([self.watched.x @ draws[:, c].T for c in range(len(self.b))])
        z += self.base[:, None, None] + tally.levels[:, None, :]
        return softmax(z, axis=0).mean(axis=2)

    def square(self, d: np.ndarray, m: np.ndarray) -> float:
        return self.watched.mean(np.sum(d**2 / np.maximum(m, 1e-300), axis=0))

    def _predictors(self, b: np.ndarray) -> np.ndarray:
        return np.stack([product(self.columns, one, len(self.weights)) for one in b])

    def sweep(
        self,
        prior: Prior,
        rates: np.ndarray,
        thin: int,
        tally: Tally,
        part: tuple[int, int] | None = None,
    ) -> None:
        part = part or (0, len(rates))
        if part[0] == 0:
            self.z = self._predictors(self.b) + self.base[:, None] + self.level
        run_multinomial(
            self.columns,
            self.factors,
            self.targets,
            self.weights,
            self.z,
            self.b,
            self.level,
            self.level_variance,
            self.backwards,
            self.visits,
            prior,
            rates,
            part,
            thin,
            self.rng,
            tally._replace(levels=np.zeros(0)),
            tally.levels,
        )


def product(columns: Columns, b: np.ndarray, rows: int) -> np.ndarray:
    """Xb."""
    if columns.dense.size:
        return b @ columns.dense
    weights = columns.values * np.repeat(b, np.diff(columns.starts))
    return np.bincount(columns.rows, weights, rows)


def numbers_in(columns: Columns) -> int:
    """How many numbers are stored."""
    return max(columns.dense.size, columns.values.size)


def visits_of(inclusion: np.ndarray) -> np.ndarray:
    """The probability that a sweep updates a coefficient."""
    return np.clip(OFTEN * inclusion, FEWEST_VISITS, 1.0)
