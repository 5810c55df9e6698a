r"""A check of the uniform reference in plain NumPy, which shares no code with the library.

With x = theta z and z uniform on the unit box, d log p(y | theta) / d theta is minus the posterior
mean of z . grad g1(theta z). It is estimated at a few theta by a Metropolis sampler that moves one
coordinate at a time (random walk, reflected at the border), in independent chains; the maximiser is
the root of a line through the scores, its error from the jackknife over chains.

`PIPLA_DATA=... python lab/tests/experiments/independent.py` does it for the authors' data.
"""

from __future__ import annotations

import numpy as np


def score(features, labels, theta, chains, sweeps, burn_in, rng, width=0.35):
    """The derivative of the log marginal likelihood at theta, one estimate per chain."""
    dimension = features.shape[1]
    z = rng.uniform(-1, 1, size=(chains, dimension))
    logits = theta * z @ features.T
    softplus = np.logaddexp(0, logits).sum(axis=1)
    pull = theta * (labels @ features)
    total = np.zeros(chains)
    for sweep in range(sweeps):
        for j in range(dimension):
            proposed = z[:, j] + width * rng.normal(size=chains)
            proposed = 1 - np.abs((proposed + 1) % 4 - 2)  # mirrored into [-1, 1]
            shift = proposed - z[:, j]
            moved = logits + theta * shift[:, None] * features[:, j]
            value = np.logaddexp(0, moved).sum(axis=1)
            gain = softplus - value + shift * pull[j]
            taken = np.log(rng.uniform(size=chains)) < gain
            logits[taken], softplus[taken] = moved[taken], value[taken]
            z[taken, j] = proposed[taken]
        if sweep >= burn_in:
            gradient = 1 / (1 + np.exp(-logits)) - labels
            total -= np.einsum("ci,ci->c", gradient, logits) / theta
    return total / (sweeps - burn_in)


def maximiser(features, labels, thetas, chains, sweeps, burn_in, seed=0):
    """The root of the score and its standard error."""
    rng = np.random.default_rng(seed)
    scores = np.stack(
        [score(features, labels, theta, chains, sweeps, burn_in, rng) for theta in thetas]
    )

    def root(values):
        slope, level = np.polyfit(thetas, values, 1)
        return -level / slope

    left_out = np.array([root(np.delete(scores, c, axis=1).mean(axis=1)) for c in range(chains)])
    error = np.sqrt((chains - 1) * left_out.var())
    return root(scores.mean(axis=1)), error


if __name__ == "__main__":
    import os
    from pathlib import Path

    with np.load(Path(os.environ["PIPLA_DATA"]) / "logistic_uniform.npz") as file:
        features, labels = file["design_matrix"], file["labels"].ravel().astype(float)
    found = maximiser(features, labels, (1.36, 1.38, 1.40, 1.42), 24, 400, 60)
    print(f"theta = {found[0]:.4f} ± {found[1]:.4f}")
