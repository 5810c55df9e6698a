"""Is it the scale of the prior? Digits 3 v 8, which planes separate, by an independent sampler.

    python benchmarks/regression/separable.py

For normal and Laplace priors of several fixed scales, the posterior is drawn by Hamiltonian Monte
Carlo. The first column is the statistic of the prior whose mean is 1 where the marginal likelihood
is at its maximum (and 1 in the limit if the classes are separable: a scale is not determined then).
The others are the log-loss on test data of probabilities averaged over the posterior, and of the
mode. No scale makes the average as good as the mode.
"""

from __future__ import annotations

import warnings

import numba
import numpy as np
from data_sets import digits, split
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

warnings.simplefilter("ignore")


@numba.njit
def potential(x, y, b, scale, laplace, gradient):
    """Minus the log posterior, and its gradient; the intercept comes last and is N(0, 10²)."""
    eta = x @ b
    gradient[:] = x.T @ (1 / (1 + np.exp(-eta)) - y)
    value = np.sum(np.log1p(np.exp(-np.abs(eta))) + np.maximum(eta, 0) - y * eta)
    for j in range(b.size - 1):
        value += abs(b[j]) / scale if laplace else 0.5 * (b[j] / scale) ** 2
        gradient[j] += np.sign(b[j]) / scale if laplace else b[j] / scale**2
    gradient[-1] += b[-1] / 100
    return value + b[-1] ** 2 / 200


@numba.njit
def sampled(x, y, x_test, scale, laplace, draws, seed):
    """Averaged probabilities of the test data, and the mean statistic of the prior."""
    np.random.seed(seed)
    b, force, ahead = np.zeros(x.shape[1]), np.empty(x.shape[1]), np.empty(x.shape[1])
    step, now = 0.1 * scale, potential(x, y, b, scale, laplace, force)
    chances, statistic, kept = np.zeros(len(x_test)), 0.0, 0
    for t in range(draws):
        momentum = np.random.standard_normal(b.size)
        energy = now + 0.5 * np.sum(momentum**2)
        place, length = b.copy(), step * (0.5 + np.random.random())
        ahead[:] = force
        value = now
        for _ in range(25):
            momentum -= 0.5 * length * ahead
            place += length * momentum
            value = potential(x, y, place, scale, laplace, ahead)
            momentum -= 0.5 * length * ahead
        chance = np.exp(min(0.0, energy - value - 0.5 * np.sum(momentum**2)))
        if np.random.random() < chance:
            b[:], force[:], now = place, ahead, value
        if t < draws // 4:
            step *= np.exp(0.1 * (chance - 0.8))
            continue
        kept += 1
        chances += 1 / (1 + np.exp(-(x_test @ b)))
        unit = np.abs(b[:-1]) / scale
        statistic += np.mean(unit) if laplace else np.mean(unit**2)
    return chances / kept, statistic / kept


def main() -> None:
    for seed in range(3):
        data = split(*digits(3, 8), seed)
        varies = data.x.std(axis=0) > 0
        x, x_test = (
            np.column_stack([part[:, varies], np.ones(len(part))]) for part in (data.x, data.x_test)
        )
        print(f"\nsplit {seed}:  scale   statistic   average   mode")
        for laplace in (False, True):
            for scale in (0.25, 1.0, 4.0, 16.0):
                found = sampled(x, data.y.astype(float), x_test, scale, laplace, 3000, 1)
                ratio, c = (1.0, scale) if laplace else (0.0, scale**2)
                mode = LogisticRegression(
                    l1_ratio=ratio, C=c, solver="liblinear", max_iter=5000, random_state=0
                ).fit(x[:, :-1], data.y)
                losses = [
                    log_loss(data.y_test, p)
                    for p in (found[0], mode.predict_proba(x_test[:, :-1])[:, 1])
                ]
                name = "Laplace" if laplace else "normal "
                print(
                    f"  {name} {scale:9.2f} {found[1]:9.3f} {losses[0]:11.4f} {losses[1]:8.4f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
