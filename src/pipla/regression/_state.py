"""What the compiled sweeps read and write: features by columns, the prior, sums over sweeps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Columns(NamedTuple):
    """A matrix by columns: dense, one column per row of `dense`; or compressed, `dense` empty."""

    dense: np.ndarray  # (columns, rows) or (0, 0)
    values: np.ndarray
    rows: np.ndarray
    starts: np.ndarray


class Prior(NamedTuple):
    """The mixture: variances, in increasing order (the first is 0), and their weights."""

    variances: np.ndarray
    weights: np.ndarray


class Tally(NamedTuple):
    """What is added up over sweeps; every array is changed in place.

    Attributes:
        mean: the sum of the conditional means of each coefficient (Rao-Blackwell).
        slab: the sum of the conditional probabilities that it is not 0.
        counts: for each sweep, the expected number of coefficients with each label.
        labels: in one sweep, the number of coefficients with each label that was drawn.
        scores: for each sweep the sum of squared residuals; or accepted and all proposals.
        theta: after each sweep the noise (sigma squared), the weight of 0, and the standard
            deviation of the other coefficients.
        draws: every `thin`-th vector of coefficients.
        levels: and its intercept.
    """

    mean: np.ndarray
    slab: np.ndarray
    counts: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    theta: np.ndarray
    draws: np.ndarray
    levels: np.ndarray

    @classmethod
    def empty(cls, size: int, labels: int, sweeps: int, draws: int, levels: int = 1) -> Tally:
        """Nothing added yet, for `size` coefficients and room for this many draws."""
        return cls(
            mean=np.zeros(size),
            slab=np.zeros(size),
            counts=np.zeros((sweeps, labels)),
            labels=np.zeros(labels),
            scores=np.zeros((sweeps, 2)),
            theta=np.zeros((sweeps, 3)),
            draws=np.zeros((draws, size), np.float32),
            levels=np.zeros((levels, draws)),
        )

    def continued(self) -> Tally:
        """What further sweeps may add to; draws share their memory, where none is written twice."""
        added = ("mean", "slab", "counts", "labels", "scores")
        return self._replace(**{name: getattr(self, name).copy() for name in added})
