"""Milliseconds of CPU per image of the convolutions of `bnn-cifar10`, forwards and backwards.

    python benchmarks/network_convolution.py [images]

As `eqx.nn.Conv2d` with pooling, which are XLA's, and as the matrix products of
`pipla_lab.experiments.networks.convolution`, with the same weights, by turns in one process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from pipla_lab.experiments.networks.convolution import Convolution, pooled

ROUNDS, CALLS = 4, 4


def main() -> None:
    images = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    one, two, three = jax.random.split(jax.random.key(0), 3)
    ours = (Convolution(3, 6, 5, block=4, key=one), Convolution(6, 16, 5, block=10, key=two))
    plain = (eqx.nn.Conv2d(3, 6, 5, key=one), eqx.nn.Conv2d(6, 16, 5, key=two))
    pool = eqx.nn.MaxPool2d(2, 2)

    def as_products(layers: Any, image: Any) -> Any:
        for layer in layers:
            image = pooled(layer(image))
        return jnp.moveaxis(image, -1, 0)

    def as_convolutions(layers: Any, image: Any) -> Any:
        image = jnp.moveaxis(image, -1, 0)
        for layer in layers:
            image = pool(layer(image))
        return image

    features = jax.random.normal(three, (images, 32, 32, 3))
    ways = {"matrix products": (as_products, ours), "convolutions": (as_convolutions, plain)}
    timed: dict[tuple[str, str], Callable[[], Any]] = {}
    for name, (network, layers) in ways.items():
        forwards, backwards = programs(network)
        timed[name, "forwards"] = lambda f=forwards, x=layers: f(x, features)
        timed[name, "and backwards"] = lambda f=backwards, x=layers: f(x, features)
    best = dict.fromkeys(timed, float("inf"))
    for turn in range(ROUNDS + 1):  # the first compiles
        for key, way in timed.items():
            began = time.process_time()
            for _ in range(CALLS):
                jax.block_until_ready(way())
            if turn:
                best[key] = min(best[key], (time.process_time() - began) / CALLS / images)
    for (name, part), seconds in best.items():
        print(f"{name:16} {part:14} {1e3 * seconds:.3f} ms of CPU per image")


def programs(network: Any) -> tuple[Any, Any]:
    """The network of all images, and the gradient of a sum of squares in its weights."""

    def forwards(layers: Any, features: Any) -> Any:
        return jax.vmap(lambda image: network(layers, image))(features)

    def loss(layers: Any, features: Any) -> Any:
        return jnp.sum(jnp.square(forwards(layers, features)))

    return eqx.filter_jit(forwards), eqx.filter_jit(eqx.filter_grad(loss))


if __name__ == "__main__":
    main()
