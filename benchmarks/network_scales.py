"""Two learned scales of a 784-40-2 network on MNIST's 4 and 9, from three starts.

The model is non-centred; the step size and theta's scale are those that `pipla.Adaptive` measures.
Needs `mnist_4v9_paper1000.npz` in the folder that PIPLA_DATA names. Each run makes 3000 steps with
10 particles and takes a minute or two of CPU time. `python benchmarks/network_scales.py 600` makes
600 steps.

All runs use the same random numbers. Where theta is the same function of them from every start, it
has forgotten its start; how far it wanders after that is the Monte-Carlo error.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

import pipla

STARTS, PARTICLES = (-1.0, -2.0, -3.0), 10


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    warnings.simplefilter("ignore", pipla.ConvergenceWarning)
    plain = pipla.noncentred(network(*images()))
    scheme = pipla.PIPGLA(1.0, theta_noise=False, antithetic=True, reflected=True)
    algorithms = {
        "P <= 1, steps fall": pipla.Adaptive(scheme),
        "P free, steps stay": pipla.Adaptive(scheme, last=1.0, capped=False),
    }
    at = [max(1, steps * part // 10) - 1 for part in (1, 2, 5, 8, 10)]
    print(f"{'':18}  start  alpha at step {', '.join(str(i + 1) for i in at)}", end="")
    print("; mean of the last half: alpha, beta; CPU seconds")
    for name, algorithm in reversed(algorithms.items()):
        for start in STARTS:
            begin = time.process_time()
            result = run(plain, algorithm, start, steps)
            alpha = np.asarray(result.theta_trace["alpha"])
            path = " ".join(f"{alpha[i]:6.2f}" for i in at)
            mean = f"{result.theta['alpha']:6.3f} {result.theta['beta']:6.3f}"
            print(f"{name:18}  {start:4.0f}  {path};  {mean};  {time.process_time() - begin:4.0f}")


def run(
    plain: pipla.models.noncentred.NonCentred, algorithm: pipla.Algorithm, start: float, steps: int
) -> pipla.Result:
    """From weights drawn from the prior at this alpha."""
    theta = {"alpha": jnp.float32(start), "beta": jnp.float32(0.0)}
    rng = np.random.default_rng(0)
    particles = {
        "w": jnp.asarray(np.exp(2 * start) * rng.laplace(size=(PARTICLES, 784, 40)), jnp.float32),
        "v": jnp.asarray(rng.laplace(size=(PARTICLES, 40, 2)), jnp.float32),
    }
    return pipla.run(
        plain.model,
        algorithm,
        theta=theta,
        particles=plain.start(theta, particles),
        num_steps=steps,
        burn_in=steps // 2,
        key=jax.random.key(0),
        check=False,
    )


def network(features: np.ndarray, labels: np.ndarray) -> pipla.Model:
    """Laplace priors of scale e^{2 alpha} on w and e^{2 beta} on v."""

    def smooth(theta: PyTree, x: PyTree, data: PyTree) -> Array:
        scores = jnp.tanh(data["features"] @ x["w"]) @ x["v"]
        picked = jnp.take_along_axis(jax.nn.log_softmax(scores), data["labels"][:, None], axis=1)
        return -jnp.sum(picked)

    layers = (
        pipla.prox.LaplaceScale().on(theta="alpha", x="w"),
        pipla.prox.LaplaceScale().on(theta="beta", x="v"),
    )
    return pipla.Model(smooth, layers[0] + layers[1], {"features": features, "labels": labels})


def images() -> tuple[np.ndarray, np.ndarray]:
    """The 800 training images, pixels standardised and clipped at ±5; labels 0 and 1."""
    folder = os.environ.get("PIPLA_DATA")
    if not folder:
        sys.exit("Set PIPLA_DATA to a folder with mnist_4v9_paper1000.npz.")
    data = np.load(Path(folder) / "mnist_4v9_paper1000.npz")
    pixels = data["images"].reshape(len(data["images"]), -1).astype(np.float64)
    spread = pixels.std(axis=0)
    standard = (pixels - pixels.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    train = data["train"]
    return np.clip(standard[train], -5, 5).astype(np.float32), data["labels"][train].astype(int)


if __name__ == "__main__":
    main()
