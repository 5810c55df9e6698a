"""The toy model: Laplace latents with Gaussian noise, whose maximiser is known exactly."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike, NDArray

from pipla import _checks
from pipla.models.model import Model
from pipla.problems.base import MOST, Problem, checked_noise, find_data
from pipla.prox import LaplaceLocation


def toy(
    dimension: int = 50,
    noise: float = 1.0,
    ridge: float = 0.0,
    truth: float = -3.0,
    seed: int = 0,
    authors: bool = False,
) -> Problem:
    r"""$p(x_i) \propto e^{-|x_i - \theta| - r (x_i - \theta)^2 / 2}$ and $y_i \sim N(x_i, s^2)$.

    `ridge` $r = 0$ is the Laplace prior; $r > 0$ an elastic net, whose quadratic part is in the
    smooth potential. `authors=True` takes the paper authors' observations from `$PIPLA_DATA`.
    """
    dimension = _checks.integer("dimension", dimension, least=1, most=MOST)
    seed = _checks.integer("seed", seed, least=0)
    _checks.boolean("authors", authors)
    noise, ridge = checked_noise(noise), _checks.real("ridge", ridge)
    truth = _checks.real("truth", truth)
    # Latents are drawn by rejection, which accepts one of about sqrt(ridge).
    if not 0 <= ridge <= 1e6:
        raise ValueError(f"ridge must be between 0 and 1e6, got {ridge}.")
    if authors:
        y = find_data("toy_elastic_net.npz")["labels"].ravel()
    else:
        y = _draw(dimension, noise, ridge, truth, seed)
    data = {"y": jnp.asarray(y), "noise": jnp.asarray(noise), "ridge": jnp.asarray(ridge)}
    return Problem(
        name="toy",
        model=Model(_potential, LaplaceLocation(scale=1.0), data=data),
        theta=jnp.zeros(()),
        dimension=len(y),
        truth=truth,
        maximiser=exact_maximiser(y, noise, ridge),
    )


def _potential(theta: Array, x: Array, data: dict[str, Array]) -> Float[Array, ""]:
    misfit = jnp.sum((x - data["y"]) ** 2) / (2 * data["noise"] ** 2)
    return misfit + data["ridge"] * jnp.sum((x - theta) ** 2) / 2


def log_marginal(theta: float, y: ArrayLike, noise: float, ridge: float = 0.0) -> float:
    r"""The exact log marginal likelihood, up to a constant:

    $$ \sum_i \log \int e^{-(y_i - x)^2/(2 s^2)}\, e^{-|x - \theta| - r (x-\theta)^2/2}\, dx. $$

    On either side of the kink the integrand is a Gaussian in $t = x - \theta$ with precision
    $A = s^{-2} + r$ and mean $\mu_\pm = ((y_i - \theta)/s^2 \mp 1)/A$: each half is a normal tail
    probability. The normalisers of prior and noise do not depend on theta and are left out.
    """
    from scipy.special import log_ndtr, logsumexp

    shifted = np.asarray(y, dtype=np.float64) - theta
    precision = noise**-2 + ridge
    halves: list[NDArray[np.floating]] = []
    for sign in (1, -1):
        mean = (shifted / noise**2 - sign) / precision
        halves.append(precision * mean**2 / 2 + log_ndtr(sign * mean * np.sqrt(precision)))
    each = logsumexp(np.stack(halves), axis=0) - shifted**2 / (2 * noise**2)
    return float(np.sum(each + 0.5 * np.log(2 * np.pi / precision)))


def exact_maximiser(y: ArrayLike, noise: float, ridge: float = 0.0) -> float:
    """The maximiser of `log_marginal`, which is concave, to about 1e-9."""
    from scipy.optimize import minimize_scalar

    observed = np.asarray(y, float)
    found = minimize_scalar(
        lambda theta: -log_marginal(theta, observed, noise, ridge),
        bounds=(float(observed.min()), float(observed.max())),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(found.x)


def _draw(dimension: int, noise: float, ridge: float, truth: float, seed: int) -> NDArray:
    """Observations: latents by rejection from the Laplace distribution, plus noise."""
    rng = np.random.default_rng(seed)
    kept: list[float] = []
    while len(kept) < dimension:
        t = rng.laplace(size=4 * dimension)
        kept.extend(t[rng.uniform(size=t.size) < np.exp(-ridge * t**2 / 2)])
    return truth + np.asarray(kept[:dimension]) + noise * rng.normal(size=dimension)
