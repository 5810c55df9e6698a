"""Chains over the coefficients of each kind of regression: data, position, sweeps."""

from __future__ import annotations

import numpy as np

from pipla.regression._design import Design, dense_columns, scaled_rows
from pipla.regression._entries import run_glm, run_linear, run_multinomial
from pipla.regression._learned import Chain
from pipla.regression._state import Columns, Prior, Tally

#: The variance of the normal prior of an intercept of a generalised linear model.
LEVEL_VARIANCE = 100.0
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
        self.columns = design.columns
        if np.any(root != 1):
            self.columns = scaled_rows(design.columns, root)
        self.root = root / np.sqrt(total) if intercept else np.zeros(len(y))
        self.degrees = max(total - 1, 1.0) if intercept else total
        level = float(weights @ y) / total if intercept else 0.0
        self.y = root * (y - level)
        self.shifts: np.ndarray = np.zeros(design.size)
        self.size = design.size
        if design.is_dense:
            self.squares = np.einsum("ji,ji->j", self.columns.dense, self.columns.dense)
        else:
            owner = np.repeat(np.arange(design.size), np.diff(self.columns.starts))
            squares = np.bincount(owner, self.columns.values**2, design.size)
            self.shifts = np.bincount(
                owner, self.columns.values * self.root[self.columns.rows], design.size
            )
            self.squares = squares - self.shifts**2
        # With fewer features than observations, X'X and X'y are all that is needed.
        self.gram = design.is_dense and design.size <= min(total, LARGEST_GRAM)
        if self.gram:
            self.products = self.columns.dense @ self.y
            self.norm = float(self.y @ self.y)
            self.columns = dense_columns(self.columns.dense @ self.columns.dense.T)


class LinearChain(Chain):
    """A chain of exact conditional draws; the intercept is integrated out."""

    levels = 1

    def __init__(
        self, data: LinearData, b: np.ndarray, noise: float, seed: np.random.SeedSequence
    ) -> None:
        self.data, self.size = data, data.size
        self.visits = np.ones(data.size)  # exact conditionals need no saving
        self.b = b.copy()
        self.noise = np.array([noise])
        self.rng = np.random.default_rng(seed)

    def sweep(self, prior: Prior, rates: np.ndarray, thin: int, tally: Tally) -> None:
        data = self.data
        # Computed again for each block, so that rounding errors do not add up.
        if data.gram:
            image = data.columns.dense @ self.b
            norm = data.norm - 2 * data.products @ self.b + image @ self.b
            residual = np.append(data.products - image, max(norm, 0.0))
        else:
            residual = data.y - product(data.columns, self.b, len(data.y))
        run_linear(
            data.columns,
            data.squares,
            data.shifts,
            data.root,
            self.b,
            residual,
            self.noise,
            data.degrees,
            data.gram,
            self.backwards,
            prior,
            rates,
            thin,
            self.rng,
            tally._replace(levels=tally.levels[0]),
        )


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
        self.noise = np.ones(1)
        self.rng = np.random.default_rng(seed)

    def sweep(self, prior: Prior, rates: np.ndarray, thin: int, tally: Tally) -> None:
        eta = self.base + self.level[0] + product(self.columns, self.b, len(self.y))
        run_glm(
            self.columns,
            self.y,
            self.weights,
            eta,
            self.b,
            self.level,
            self.level_variance,
            self.poisson,
            self.backwards,
            self.visits,
            prior,
            rates,
            thin,
            self.rng,
            tally._replace(levels=tally.levels[0]),
        )


class MultinomialChain(Chain):
    """A chain for several classes, each with its coefficients; they share one prior."""

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
        self.noise = np.ones(1)
        self.rng = np.random.default_rng(seed)

    def sweep(self, prior: Prior, rates: np.ndarray, thin: int, tally: Tally) -> None:
        z = np.stack([product(self.columns, b, len(self.weights)) for b in self.b])
        z += self.base[:, None] + self.level
        run_multinomial(
            self.columns,
            self.targets,
            self.weights,
            z,
            self.b,
            self.level,
            self.level_variance,
            self.backwards,
            self.visits,
            prior,
            rates,
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
