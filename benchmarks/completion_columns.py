r"""Normal or group-lasso columns of the factors: error, intervals, noise and rank.

    python benchmarks/completion_columns.py [seeds]     # by default 2 of each shape

The group-lasso density of column $k$ of both factors, $w_k = (u_{\cdot k}, v_{\cdot k})$ with $p$
entries, is $\lambda_k^p e^{-\lambda_k |w_k|}$ up to a constant. It is a mixture of normals:
$w_k \sim N(0, \tau_k^2 I)$ with $\tau_k^2 \sim \Gamma(\frac{p+1}{2}, \frac{\lambda_k^2}{2})$, so
that

$$ \tau_k^{-2} \mid w_k \sim \mathrm{InverseGaussian}(\lambda_k/|w_k|, \lambda_k^2), $$

and the factors given $\tau$ are those of `pipla.likelihoods.Factors`: block Gibbs, exactly. The
rates are learned, one per column ($\hat\lambda_k = p/|w_k|$) or one for all ($pK/\sum_k |w_k|$, the
usual group lasso). Draws are never exactly 0, the mode of the posterior may be: it is computed at
the learned rates and noise by EM over $\tau$, from the last draw.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from completion import RANK5, Case

from pipla.completion._observations import as_observed
from pipla.completion.factors import FIRST_RANK, MARGIN, PATIENCE, start
from pipla.models.likelihoods import Factors

Columns = Literal["normal", "group lasso", "group lasso, one rate"]
STEPS, BURN_IN, GAIN, MODE_STEPS = 600, 200, 0.2, 400


class Chain(NamedTuple):
    """One particle; theta's `"scale"` is drawn, with normal columns it is learned."""

    theta: dict[str, jax.Array]
    x: dict[str, jax.Array]
    log_rate: jax.Array


def norms(x: dict[str, jax.Array], rank: int) -> jax.Array:
    """The norms of the columns of both factors together."""
    return jnp.sqrt(sum(jnp.sum(side[:, :rank] ** 2, axis=0) for side in x.values()))


def best_log_rate(x: dict[str, jax.Array], rank: int, shared: bool) -> jax.Array:
    """The rates that maximise the density of these columns."""
    size = norms(x, rank)
    return jnp.log(sum(map(len, x.values())) / (jnp.full(rank, size.mean()) if shared else size))


def move(columns: Columns, likelihood: Factors, chain: Chain, key: Any, begun: Any) -> Chain:
    """Factors, scales of the columns, then the learned parameters by stochastic EM."""
    rank, shared = len(chain.log_rate), columns.endswith("one rate")
    for_rows, for_columns, for_scales = jax.random.split(key, 3)
    noise = {
        "rows": jax.random.normal(for_rows, chain.x["rows"].shape),
        "columns": jax.random.normal(for_columns, chain.x["columns"].shape),
    }
    theta, log_rate = chain.theta, chain.log_rate
    x = likelihood.gibbs(theta, chain.x, noise)
    # A column and its scales move together in non-centred coordinates; the rate is a scale, too.
    moved, after = likelihood.interwoven(theta, {side: x[side][None] for side in x})
    go = begun & (not shared)
    x = {side: jnp.where(go, after[side][0], x[side]) for side in x}
    log_rate = log_rate - jnp.where(go, moved["scale"] - theta["scale"], 0.0)
    theta = {name: jnp.where(go, moved[name], theta[name]) for name in theta}
    best = likelihood.closed_form(theta, {side: x[side][None] for side in x})
    after_em = {name: theta[name] + GAIN * (best[name] - theta[name]) for name in theta}
    if columns == "normal":
        return Chain(after_em, x, log_rate)
    log_rate = log_rate + GAIN * (best_log_rate(x, rank, shared) - log_rate)
    rate = jnp.exp(log_rate)
    # lam² Wald(mu/lam²) is inverse Gaussian with mean mu and shape lam².
    precision = rate**2 * jax.random.wald(for_scales, 1 / (rate * norms(x, rank)))
    return Chain({**after_em, "scale": -0.5 * jnp.log(precision)}, x, log_rate)


def mode(likelihood: Factors, chain: Chain) -> dict[str, jax.Array]:
    r"""The mode of the factors at the learned rates, by EM: $\tau_k^2 = |w_k|/\lambda_k$."""
    zeros = jax.tree.map(jnp.zeros_like, chain.x)

    def improved(x: dict[str, jax.Array], _: None) -> tuple[dict[str, jax.Array], None]:
        scale = 0.5 * (jnp.log(norms(x, len(chain.log_rate)) + 1e-12) - chain.log_rate)
        return likelihood.gibbs({**chain.theta, "scale": scale}, x, zeros), None

    return jax.lax.scan(improved, chain.x, None, MODE_STEPS)[0]


def compare(columns: Columns, case: Case, seed: int) -> None:
    truth, observed = case.draw(seed)
    missing, given = np.isnan(observed), as_observed(observed)
    center, spread = given.values.mean(), given.values.std()
    standard = given._replace(values=(given.values - center) / spread)
    likelihood = Factors(*standard[:3], standard.shape)
    theta, x = start(standard, FIRST_RANK, biases=True)
    first = Chain(theta, x, best_log_rate(x, FIRST_RANK, columns.endswith("one rate")))
    where = tuple(map(jnp.asarray, np.nonzero(missing)))

    def step(chain: Chain, at: Any) -> tuple[Chain, Any]:
        key, number = at
        chain = move(columns, likelihood, chain, key, number >= PATIENCE)
        return chain, (chain.theta, likelihood.entries(chain.theta, chain.x, *where))

    keys = jax.random.split(jax.random.key(seed), STEPS)
    began = time.process_time()
    last, (trace, draws) = jax.jit(lambda: jax.lax.scan(step, first, (keys, jnp.arange(STEPS))))()
    draws = center + spread * np.asarray(draws)[BURN_IN:]
    settled = {name: np.asarray(values)[BURN_IN:].mean(axis=0) for name, values in trace.items()}
    rank = int(np.sum(np.asarray(likelihood.log_signal(settled)) > np.log(MARGIN)))
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    true = truth[missing]
    covered = np.mean((low <= true) & (true <= high))

    def nmse(found: np.ndarray) -> float:
        return float(100 * np.sum((found - true) ** 2) / np.sum(true**2))

    said = (
        f"{case}; seed {seed}: {columns}: NMSE missing {nmse(draws.mean(axis=0)):.2f} %, 90 % "
        f"intervals hold {covered:.3f}, noise {spread * np.exp(settled['noise']):.3f}, rank {rank}"
    )
    if columns != "normal":
        peak = jax.jit(lambda: mode(likelihood, last))()
        found = center + spread * np.asarray(likelihood.entries(last.theta, peak, *where))
        size = np.asarray(norms(peak, FIRST_RANK))
        said += f"; mode: {nmse(found):.2f} %, columns not 0: {np.sum(size > 1e-3 * size.max())}"
    print(f"{said}; {time.process_time() - began:.1f} s of CPU", flush=True)


if __name__ == "__main__":
    for case in RANK5:
        for seed in range(int(sys.argv[1]) if sys.argv[1:] else 2):
            for columns in ("normal", "group lasso", "group lasso, one rate"):
                compare(columns, case, seed)
