"""Sparse Bayesian networks: any equinox module, with layers under a prior of learned scale.

| names | what they do |
|---|---|
| `model` | makes a `NetworkModel` of a network and data |
| `train` | samples the weights, learns the scales and the rest: a `TrainedNetwork` |
| `TrainedNetwork.prune` | a `PrunedNetwork`, smaller |
| `TrainedNetwork.save`, `load` | what was learned, in a folder |
| `SparseBayesianMLPClassifier`, `SparseBayesianMLPRegressor` | in scikit-learn's style |
"""

from typing import TYPE_CHECKING

from pipla._extras import lazy
from pipla.networks.modelling import NetworkModel, model
from pipla.networks.pruning import PrunedNetwork, PruningWarning
from pipla.networks.trained import TrainedNetwork, load
from pipla.networks.training import train

if TYPE_CHECKING:
    from pipla.networks.estimators import SparseBayesianMLPClassifier, SparseBayesianMLPRegressor

__all__ = [
    "NetworkModel",
    "PrunedNetwork",
    "PruningWarning",
    "SparseBayesianMLPClassifier",
    "SparseBayesianMLPRegressor",
    "TrainedNetwork",
    "load",
    "model",
    "train",
]

# Estimators need scikit-learn.
_ESTIMATORS = ("SparseBayesianMLPClassifier", "SparseBayesianMLPRegressor")
__getattr__ = lazy(__name__, "estimators", estimators=_ESTIMATORS)
