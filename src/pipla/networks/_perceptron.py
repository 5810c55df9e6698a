"""The network of the estimators: linear layers with an elementwise activation in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from pipla.networks.modelling import NetworkModel

#: The activations by name.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "selu": jax.nn.selu,
    "silu": jax.nn.silu,
}


class Perceptron(eqx.Module):
    """Linear layers with an elementwise activation in between."""

    layers: tuple[eqx.nn.Linear, ...]
    activation: str = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], activation: str, key: Key[Array, ""]) -> None:
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            _without_bias(eqx.nn.Linear(inputs, outputs, key=one))
            for inputs, outputs, one in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.activation = activation

    def __call__(self, features: Array) -> Array:
        for layer in self.layers[:-1]:
            features = ACTIVATIONS[self.activation](layer(features))
        return self.layers[-1](features)


def _without_bias(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    """The layer with biases that start at 0."""
    zeros = jnp.zeros(layer.weight.shape[0], layer.weight.dtype)
    return eqx.tree_at(lambda one: one.bias, layer, zeros)


def chain_names(network: NetworkModel) -> tuple[str, ...] | None:
    """The layers of a perceptron, by name; `None` where there is only one."""
    names = tuple(layer.name for layer in network.layers)
    return names if len(names) > 1 else None
