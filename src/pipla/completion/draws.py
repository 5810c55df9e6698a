"""Draws of a matrix from its posterior, and what is computed from them in bounded memory.

A matrix of 610 × 9724 entries in 200 draws would take 5 GB. Factors of rank 10 take 90 MB; the
entries are multiplied out for some rows at a time.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator

import numpy as np

#: The most numbers that are multiplied out at a time.
LARGEST_BLOCK = 2**25
#: The seed of the pairing of draws and noise; any would do.
PAIRING = 17


@dataclasses.dataclass(frozen=True)
class Draws(abc.ABC):
    """Draws of the entries without noise; the leading axis counts the draws."""

    noise: np.ndarray  # its standard deviation in each draw

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns of the matrix."""

    @abc.abstractmethod
    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The entries with these indices in every draw."""

    @abc.abstractmethod
    def block(self, rows: slice) -> np.ndarray:
        """Some rows of the matrix in every draw."""

    @abc.abstractmethod
    def mean(self) -> np.ndarray:
        """The posterior mean of the matrix."""

    def mean_of(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The posterior mean of the entries with these indices."""
        size = max(1, LARGEST_BLOCK // (64 * len(self.noise)))  # up to 40 columns of factors each
        parts = [
            self.entries(rows[i : i + size], columns[i : i + size]).mean(axis=0)
            for i in range(0, len(rows), size)
        ]
        return np.concatenate(parts)

    def std(self) -> np.ndarray:
        """The posterior standard deviation of every entry, without noise."""
        return np.concatenate([block.std(axis=0) for block in self._blocks()])

    def interval(self, level: float, *, noisy: bool) -> tuple[np.ndarray, np.ndarray]:
        """The lower and the upper quantile of every entry."""
        pairs = [self._quantiles(block, level, noisy) for block in self._blocks()]
        return np.concatenate([low for low, _ in pairs]), np.concatenate([up for _, up in pairs])

    def interval_of(
        self, rows: np.ndarray, columns: np.ndarray, level: float, *, noisy: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for single entries."""
        size = max(1, LARGEST_BLOCK // len(self.noise))
        pairs = [
            self._quantiles(self.entries(rows[i : i + size], columns[i : i + size]), level, noisy)
            for i in range(0, max(len(rows), 1), size)
        ]
        return np.concatenate([low for low, _ in pairs]), np.concatenate([up for _, up in pairs])

    def _blocks(self) -> Iterator[np.ndarray]:
        count, width = self.shape
        size = max(1, LARGEST_BLOCK // (len(self.noise) * width))
        for start in range(0, count, size):
            yield self.block(slice(start, start + size))

    def _quantiles(
        self, draws: np.ndarray, level: float, noisy: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        if noisy:
            draws = draws + self._noise_like(draws)
        low, up = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, up

    def _noise_like(self, draws: np.ndarray) -> np.ndarray:
        """One normal per draw, at the quantiles (i + 1/2)/S in random order.

        Spread evenly, they give the quantiles of an observation less Monte-Carlo error than
        independent ones would.
        """
        from scipy.special import ndtri

        count = len(self.noise)
        scores = ndtri((np.random.default_rng(PAIRING).permutation(count) + 0.5) / count)
        noise = (self.noise * scores).astype(draws.dtype)
        return noise.reshape(count, *(1,) * (draws.ndim - 1))


@dataclasses.dataclass(frozen=True)
class FactorDraws(Draws):
    r"""Draws of $\mu + a_i + b_j + \sum_k u_{ik} v_{jk}$.

    The last column of `rows` is $a$, that of `columns` is $b$.
    """

    offset: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[1], self.columns.shape[1]

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        left, right = self.rows[:, rows], self.columns[:, columns]
        factors = np.einsum("slk,slk->sl", left[..., :-1], right[..., :-1])
        return self.offset[:, None] + left[..., -1] + right[..., -1] + factors

    def block(self, rows: slice) -> np.ndarray:
        left = self.rows[:, rows]
        product = left[..., :-1] @ self.columns[..., :-1].transpose(0, 2, 1)
        product += (self.offset[:, None] + left[..., -1])[:, :, None]
        product += self.columns[:, None, :, -1]
        return product

    def mean(self) -> np.ndarray:
        # The sum over draws and columns of the factors is one product of matrices.
        left = np.moveaxis(self.rows[..., :-1], 0, 1).reshape(self.shape[0], -1)
        right = np.moveaxis(self.columns[..., :-1], 0, 1).reshape(self.shape[1], -1)
        mean = left @ right.T / len(self.noise)
        mean += self.offset.mean() + self.rows[..., -1].mean(axis=0)[:, None]
        return mean + self.columns[..., -1].mean(axis=0)[None]

    def given_columns(self, matrix: np.ndarray, scales: np.ndarray) -> np.ndarray:
        r"""The posterior mean of rows that may be new, given the draws of the columns.

        In every draw, row $i$ given $V, b$ is Gaussian; the mean over draws of its conditional
        mean is its posterior mean, without the Monte-Carlo error of drawing the row.

        Arguments:
            matrix: the rows; NaN where an entry is missing.
            scales: the prior standard deviations of the columns of `rows` in every draw.
        """
        if self.columns.shape[-1] == 1:  # no factors: every row has the same mean
            return np.broadcast_to(self.mean()[:1], matrix.shape).astype(np.float64)
        seen = ~np.isnan(matrix)
        mask, total = seen.astype(np.float64), np.zeros(matrix.shape)
        for s in range(len(self.noise)):
            design = self.columns[s].astype(np.float64)
            known = self.offset[s] + design[:, -1]
            design[:, -1] = 1.0
            width = design.shape[1]
            outer = (design[:, :, None] * design[:, None, :]).reshape(-1, width * width)
            gram = (mask @ outer).reshape(-1, width, width) / self.noise[s] ** 2
            gram += np.diag(1.0 / scales[s].astype(np.float64) ** 2)
            pull = np.where(seen, matrix - known, 0.0) @ design / self.noise[s] ** 2
            latent = np.linalg.solve(gram, pull[..., None])[..., 0]
            total += known + latent @ design.T
        return total / len(self.noise)


@dataclasses.dataclass(frozen=True)
class MatrixDraws(Draws):
    """Draws of the matrix itself, and its mean over all steps, of which the draws are a part."""

    values: np.ndarray
    average: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[1], self.values.shape[2]

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return self.values[:, rows, columns]

    def block(self, rows: slice) -> np.ndarray:
        return self.values[:, rows]

    def mean(self) -> np.ndarray:
        return self.average
