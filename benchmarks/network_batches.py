"""Scales of a network learned on batches, beside those learned on all observations.

    python benchmarks/network_batches.py [keys]

A 2-16-1 network with biases for 200 Poisson counts, trained with nothing to choose but the size of
the batches. "R-hat" is that of the logarithm of the mean size of the weights of a layer, over
particles: near 1 where each particle goes where the others are. "error" is the root of the mean
square error of the log rate, on new observations. Two keys differ by more than the Monte-Carlo
errors: those are given the biases, which differ. It takes about a minute and a half.
"""

from __future__ import annotations

import sys
import time
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import pipla
from pipla import networks
from pipla.diagnostics import rhat
from pipla.networks._settling import log_sizes

SIZES = (None, 50, 16, 4)


def main() -> None:
    keys = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    warnings.simplefilter("ignore", pipla.ConvergenceWarning)
    rng = np.random.default_rng(0)
    features, new = rng.standard_normal((2, 200, 2))
    labels = rng.poisson(np.exp(log_rate(features)))
    module = eqx.nn.MLP(2, 1, 16, 1, activation=jnp.tanh, key=jax.random.key(0))
    network = networks.model(module, features, labels, family="poisson")
    print("batch   key  alpha, first layer    second layer      R-hat        error  steps    s")
    for size in SIZES:
        for key in range(keys):
            began = time.perf_counter()
            trained = networks.train(network, batch_size=size, key=jax.random.key(key))
            scales = "  ".join(
                f"{alpha:7.3f} ± {trained.scales_mcse[name]:.3f}"
                for name, alpha in trained.scales.items()
            )
            apart = " ".join(
                f"{rhat(log_sizes(weights).reshape(-1, trained.num_particles), 'split'):5.2f}"
                for weights in trained.particles.values()
            )
            found = np.log(trained.predict(new)).ravel()
            error = np.sqrt(np.mean((found - log_rate(new)) ** 2))
            print(
                f"{size or 'all':>5}  {key:4}     {scales}  {apart}  {error:9.3f}  "
                f"{trained.result.num_steps:6} {time.perf_counter() - began:5.1f}  "
                f"{trained.status.value}"
            )


def log_rate(features: np.ndarray) -> np.ndarray:
    return 0.5 + np.sin(2 * features[:, 0]) + 0.5 * features[:, 1]


if __name__ == "__main__":
    main()
