"""Coverage of 90 % intervals: how often they contain the true pixel, on draws from the prior.

Run as `python benchmarks/intervals.py [--size 64] [--images 6]`. Each image is drawn from the
total variation prior by the exact Gibbs sampler of `gibbs.py` (with data so weak that they carry no
information), blurred, made noisy, and restored by `pipla.imaging.restore`, which learns the
strength. The interval of a pixel is its posterior mean ± 1.645 posterior standard deviations.
"""

from __future__ import annotations

import argparse

import jax.numpy as jnp
import numpy as np
from gibbs import Circular, Posterior

import pipla
from pipla.operators import blur, convolution

STRENGTH = 0.03


def draw_from_prior(size: int, seed: int, sweeps: int = 60) -> np.ndarray:
    """An image with the density exp(-t TV), about 128 on average."""
    rng = np.random.default_rng(seed)
    shape = (size, size)
    # Noise a hundred times the scale 1/t: the data only make the mean of x identifiable.
    vague = Posterior(
        Circular(np.ones((1, 1)), shape), np.full(shape, 128.0), 100 / STRENGTH, tolerance=1e-3
    )
    x = np.full(shape, 128.0) + rng.standard_normal(shape) / STRENGTH
    for _ in range(sweeps):
        x = vague.sweep(x, STRENGTH, rng)
    return x - x.mean() + 128.0


def coverage(size: int, seed: int, width: int = 5) -> tuple[float, float]:
    """The share of pixels inside their interval, and the learned strength."""
    truth = draw_from_prior(size, seed)
    operator = convolution(blur.box(width), truth.shape)
    clean = np.asarray(operator.apply(jnp.asarray(truth, jnp.result_type(float))))
    noise = float(np.sqrt(clean.var() / 1000))
    observed = clean + noise * np.random.default_rng(seed + 1000).standard_normal(truth.shape)
    found = pipla.imaging.restore(
        observed, operator, noise=noise, seed=seed, maximise=False, progress=False
    )
    inside = np.abs(found.mean - truth) < 1.645 * found.std
    return float(inside.mean()), found.strength


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--images", type=int, default=6)
    options = parser.parse_args()
    rows = [coverage(options.size, seed) for seed in range(options.images)]
    print(f"true strength {STRENGTH}, {options.size}² pixels, 90 % intervals:")
    for share, strength in rows:
        print(f"  {100 * share:.1f} % inside, learned strength {strength:.4f}")
    print(f"  {100 * np.mean([share for share, _ in rows]):.1f} % on average")


if __name__ == "__main__":
    main()
