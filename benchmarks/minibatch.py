"""Logistic regression with a learned Laplace scale on 10⁶ observations: all data, and batches.

All runs start at x = 0 with the same step size, .98 over the stiffness, and the closed form for
theta. One unit of gradient work is one pass over all observations for all particles; a control
variate's own gradients are counted. The answer is the mean of theta over the second half of the run
on all data; arrival is the first step from which theta stays within 2 % of it. The last column is
the standard deviation of x (mean over its elements), which the noise of batches widens.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pipla

OBSERVATIONS, FEATURES, PARTICLES, BATCH = 1_000_000, 20, 10, 4096
ALL_DATA_STEPS, BATCH_STEPS = 100, 600


class Row(NamedTuple):
    """What a run shows."""

    name: str
    theta: float
    trace: np.ndarray
    work: float  # per step
    width: float
    seconds: float


def main() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(OBSERVATIONS, FEATURES)).astype(np.float32)
    truth = rng.laplace(scale=np.exp(-1.0), size=FEATURES).astype(np.float32)
    labels = rng.uniform(size=OBSERVATIONS) < 1 / (1 + np.exp(-features @ truth))
    likelihood = pipla.likelihoods.Logistic(features, labels)
    model = pipla.Model(likelihood, pipla.prox.LaplaceScale())
    step = 0.98 / float(likelihood.stiffness(None))
    scheme = pipla.PIPGLA(step, theta_update="closed-form", theta_noise=False)

    share = BATCH / OBSERVATIONS
    per_epoch = OBSERVATIONS // BATCH
    controlled = share * (1 + 1 / PARTICLES) + 1 / (PARTICLES * per_epoch)
    small = pipla.Minibatch(scheme.with_numbers(step_size=step / 10), BATCH)
    rows = [
        run("all data", model, scheme, 1.0, ALL_DATA_STEPS),
        run("batches", model, pipla.Minibatch(scheme, BATCH), share, BATCH_STEPS),
        run("batches, tenth of the step", model, small, share, BATCH_STEPS),
        run("batches, step falls to tenth", model, pipla.Annealed(small), share, BATCH_STEPS),
        run(
            "batches, control variate",
            model,
            pipla.Minibatch(scheme, BATCH, control_variate=True),
            controlled,
            BATCH_STEPS,
        ),
    ]
    answer, widest = rows[0].theta, rows[0].width
    print(
        f"{'':30}{'steps':>6}{'work':>8}{'theta':>9}{'error':>8}{'arrival':>9}{'s':>7}{'sd x':>7}"
    )
    for row in rows:
        away = np.abs(row.trace / answer - 1) > 0.02
        arrival = int(np.max(np.nonzero(away)[0], initial=-1)) + 2
        print(
            f"{row.name:30}{len(away):6}{row.work * len(away):8.2f}{row.theta:9.4f}"
            f"{abs(row.theta / answer - 1):8.2%}{row.work * arrival:9.2f}{row.seconds:7.1f}"
            f"{row.width / widest:7.2f}",
            flush=True,
        )


def run(
    name: str, model: pipla.Model, algorithm: pipla.algorithms.Algorithm, work: float, steps: int
) -> Row:
    """A run with the gradient work of one of its steps."""
    began = time.perf_counter()
    result = pipla.run(
        model,
        algorithm,
        theta=jnp.asarray(0.0),
        particles=1e-3 * jax.random.normal(jax.random.key(1), (PARTICLES, FEATURES)),
        num_steps=steps,
        key=jax.random.key(0),
        check=False,
    )
    width = float(jnp.mean(jnp.sqrt(result.x_variance)))
    trace, seconds = np.asarray(result.theta_trace), time.perf_counter() - began
    return Row(name, float(result.theta), trace, work, width, seconds)


if __name__ == "__main__":
    main()
