"""How exactly `networks.train` knows the scales of the paper's network: means over blocks of steps.

    python benchmarks/network_flat.py [steps] [starts ...]

Digits 4 and 9, 784-40-2, ten particles, one split. For each start of alpha, the means of alpha and
beta over blocks of 1000 steps after the first 1000. Where units are nearly linear, the network
depends on the product of both scales: alpha + beta is known, and alpha - beta is not. The spread of
blocks is the error of an average over 1000 steps; left to itself, `train` lasts until that of its
average is .025.
"""

from __future__ import annotations

import dataclasses
import sys
import time
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pipla import networks
from pipla_lab.data.classification import digits

BLOCK = 1000


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    starts = [float(word) for word in sys.argv[2:]] or [-1.0, -3.0]
    train = digits().train
    print(f"{len(train.labels)} images, {steps} steps")
    for seed, start in enumerate(starts):
        key = jax.random.key(seed)
        module = eqx.nn.MLP(
            *(784, 2, 40, 1, jnp.tanh), use_bias=False, use_final_bias=False, key=key
        )
        network = networks.model(module, train.features.astype(np.float32), train.labels)
        scales = network.theta["scales"] | {"layers/0": jnp.float32(start)}
        network = dataclasses.replace(network, theta=network.theta | {"scales": scales})
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trained = networks.train(network, num_steps=steps, key=key, progress=False)
        traces = trained.result.theta_trace["scales"]
        alpha, beta = (np.asarray(traces[name], np.float64) for name in ("layers/0", "layers/1"))
        print(
            f"from {start}: alpha {trained.scales['layers/0']:.3f} ± "
            f"{trained.scales_mcse['layers/0']:.3f}, {time.process_time() - began:.0f} s of CPU"
        )
        for name, trace in {
            "alpha": alpha,
            "beta": beta,
            "alpha + beta": alpha + beta,
            "alpha - beta": alpha - beta,
        }.items():
            blocks = trace[BLOCK : len(trace) // BLOCK * BLOCK].reshape(-1, BLOCK).mean(axis=1)
            shown = " ".join(f"{mean:7.3f}" for mean in blocks)
            print(f"  {name:12} {shown}   sd of blocks {blocks.std(ddof=1):.3f}", flush=True)


if __name__ == "__main__":
    main()
