"""What pruning costs, by the score that ranks the weights.

Run with `python benchmarks/network_pruning.py [name ...]`; about a minute for each network. Test
errors (the share of wrong classes, or the root mean squared error) after pruning a share of all
latent weights, by each criterion; "lost" is what the default says of itself.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import pipla.networks

SHARES = (0.5, 0.7, 0.8, 0.9, 0.95)


class Convolutional(eqx.Module):
    """A convolution, which is not latent, and two layers that are."""

    convolution: eqx.nn.Conv2d
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, key: Key[Array, ""]) -> None:
        one, two, three = jax.random.split(key, 3)
        self.convolution = eqx.nn.Conv2d(1, 6, 3, key=one)
        self.first = eqx.nn.Linear(54, 20, key=two)
        self.second = eqx.nn.Linear(20, 10, key=three)

    def __call__(self, image: Array) -> Array:
        found = jax.nn.relu(self.convolution(image)).reshape(6, 3, 2, 3, 2)
        return self.second(jax.nn.relu(self.first(found.max(axis=(2, 4)).ravel())))


def perceptron(inputs: int, outputs: int, units: int, depth: int = 1) -> eqx.nn.MLP:
    """Hidden layers of tanh units."""
    key = jax.random.key(0)
    return eqx.nn.MLP(inputs, outputs, units, depth, activation=jax.numpy.tanh, key=key)


def problems() -> Iterator[tuple[str, Any, list[np.ndarray], dict[str, Any]]]:
    """Names, modules, data (features and labels to learn from and to test), options."""

    def parts(features: np.ndarray, labels: np.ndarray, rows: int) -> list[np.ndarray]:
        split = train_test_split(features, labels, train_size=rows, random_state=0)
        scaler = StandardScaler().fit(split[0])
        new = [np.clip(scaler.transform(one), -5, 5) for one in split[:2]]
        return [*new, *split[2:]]

    def standard(labels: np.ndarray) -> np.ndarray:
        return (labels - labels.mean()) / labels.std()

    images, digits = load_digits(return_X_y=True)
    data = train_test_split(images / 16, digits, train_size=600, random_state=0)
    yield "digits", perceptron(64, 10, 30), data, {}
    yield "digits, two hidden layers", perceptron(64, 10, 20, 2), data, {}
    shaped = [*(one.reshape(-1, 1, 8, 8) for one in data[:2]), *data[2:]]
    chain = {"chain": ["first", "second"]}
    yield "digits, convolution", Convolutional(jax.random.key(0)), shaped, chain
    yield "cancer", perceptron(30, 2, 10), parts(*load_breast_cancer(return_X_y=True), 300), {}
    features, y = load_diabetes(return_X_y=True)
    number = {"family": "regression"}
    yield "diabetes", perceptron(10, 1, 20), parts(features, standard(y), 300), number
    features, y = make_friedman1(800, 20, noise=1.0, random_state=0)
    friedman = parts(features, standard(y), 300)
    yield "friedman", perceptron(20, 1, 20), friedman, number
    yield "friedman, two hidden layers", perceptron(20, 1, 15, 2), friedman, number


def main(names: list[str]) -> None:
    """Print a line for each network and share."""
    for name, module, (train, test, known, new), options in problems():
        if names and name not in names:
            continue
        chain = options.pop("chain", None)
        network = pipla.networks.model(module, train, known, **options)
        trained = pipla.networks.train(network, num_steps=2000, key=jax.random.key(0))
        print(f"{name}: {trained.error(test, new):.3f} unpruned", flush=True)
        for share in SHARES:
            found = {
                criterion: trained.prune(share, criterion=criterion, chain=chain)
                for criterion in ("sensitivity", "path", "magnitude")
            }
            errors = ", ".join(f"{key} {one.error(test, new):.3f}" for key, one in found.items())
            print(
                f"  {share:4.0%} pruned: {errors}; lost {found['sensitivity'].lost:.2f}", flush=True
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
