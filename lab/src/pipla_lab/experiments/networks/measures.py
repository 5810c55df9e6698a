r"""What a classifier is measured by, and what pruning leaves of a network of two layers.

The predictive probability of class $l$ is $g(l \mid f) = \frac1N \sum_i p(l \mid f, X^i)$. The
paper's measures are the share of images with $\arg\max_l g \ne l$ and the mean of
$\log g(l \mid f)$, the log pointwise predictive density (LPPD).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

#: A probability below this counts as this much: one certain mistake must not make all infinite.
LEAST_PROBABILITY = 1e-12
#: Bins of the expected calibration error.
BINS = 10

Probabilities = Float[np.ndarray, "images classes"]
#: The weights of all particles, by the name of the layer; inputs before outputs.
Weights = Mapping[str, np.ndarray]


def error(probabilities: Probabilities, labels: Int[np.ndarray, " images"]) -> float:
    """The percentage of images whose most probable class is wrong."""
    return float(100 * np.mean(np.argmax(probabilities, axis=1) != labels))


def lppd(probabilities: Probabilities, labels: Int[np.ndarray, " images"]) -> float:
    """The log pointwise predictive density."""
    picked = probabilities[np.arange(len(labels)), labels]
    return float(np.mean(np.log(np.maximum(picked, LEAST_PROBABILITY))))


def calibration_error(
    probabilities: Probabilities, labels: Int[np.ndarray, " images"], bins: int = BINS
) -> float:
    """The expected calibration error, in percentage points.

    Images are put into bins by the probability of the predicted class. Each bin has the distance
    between that probability, on average, and the share of predictions that are right.
    """
    confidence = probabilities.max(axis=1)
    right = np.argmax(probabilities, axis=1) == labels
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    gap = np.bincount(place, right - confidence, minlength=bins)
    return float(100 * np.sum(np.abs(gap)) / count.sum())


def share_below(weights: np.ndarray, threshold: float) -> float:
    """The percentage of weights of smaller modulus than the threshold."""
    return float(100 * np.mean(np.abs(weights) < threshold))


# Pruning. #


class Pruned(NamedTuple):
    """Two layers with weights set to 0, for every particle.

    Attributes:
        weights: `w` (particles, inputs, units) and `v` (particles, units, classes).
        dead: hidden units all of whose input weights, or all of whose output weights, are 0. Such
            a unit can be removed: its output, or its effect, is 0 for every image.
    """

    weights: dict[str, np.ndarray]
    dead: Bool[np.ndarray, "particles units"]

    def zeros(self, name: str) -> float:
        """The percentage of weights of a layer that are 0."""
        return float(100 * np.mean(self.weights[name] == 0))

    @property
    def occupancy(self) -> float:
        """The share of a weight matrix that is left without the dead units, of either layer."""
        return float(1 - np.mean(self.dead))


def prune(weights: Weights, thresholds: Mapping[str, float]) -> Pruned:
    """Set to 0 what is smaller than a layer's threshold.

    Weights without effect are set to 0 as well: those of dead units. Units without biases are
    meant, whose activation is 0 at 0.
    """
    kept = {
        name: np.where(np.abs(layer) < thresholds[name], 0, layer)
        for name, layer in weights.items()
    }
    dead = (kept["w"] == 0).all(axis=1) | (kept["v"] == 0).all(axis=2)
    kept["w"] = np.where(dead[:, None, :], 0, kept["w"])
    kept["v"] = np.where(dead[:, :, None], 0, kept["v"])
    return Pruned(kept, dead)


def quantiles(weights: Weights, share: float) -> dict[str, float]:
    """For each layer the threshold below which this share of its weights is."""
    return {name: float(np.quantile(np.abs(layer), share)) for name, layer in weights.items()}


def averaged(weights: Weights) -> dict[str, np.ndarray]:
    """One particle: the mean of all."""
    return {name: layer.mean(axis=0, keepdims=True) for name, layer in weights.items()}
