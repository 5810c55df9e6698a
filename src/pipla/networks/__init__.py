"""Sparse Bayesian networks: any equinox module, with layers under a prior of learned scale.

| names | what they do |
|---|---|
| `model` | makes a `NetworkModel` of a network and data |
| `train` | samples the weights, learns the scales and the rest: a `TrainedNetwork` |
| `TrainedNetwork.prune` | a `PrunedNetwork`, smaller |
| `TrainedNetwork.save`, `load` | what was learned, in a folder |
| `estimators` | multilayer perceptrons in scikit-learn's style (`pipla[sklearn]`) |
"""

from pipla.networks.modelling import NetworkModel, model
from pipla.networks.pruning import PrunedNetwork
from pipla.networks.trained import TrainedNetwork, load
from pipla.networks.training import train

__all__ = ["NetworkModel", "PrunedNetwork", "TrainedNetwork", "load", "model", "train"]
