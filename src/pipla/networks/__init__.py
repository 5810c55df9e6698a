"""Sparse Bayesian networks: any equinox module, with layers under a prior of learned scale.

`model` makes a `pipla.Model` of a network.
"""

from pipla.networks.modelling import NetworkModel, model

__all__ = ["NetworkModel", "model"]
