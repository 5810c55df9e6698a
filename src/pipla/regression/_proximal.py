r"""Priors with a prox: the scale is learned by `pipla.fit`, with the proximal algorithms.

| prior | potential of the coefficients b of standardised features |
|---|---|
| `"laplace"` | $\sum_j |b_j|/c$ |
| `"elastic-net"` | $\sum_j \rho |b_j|/c + (1 - \rho) b_j^2/(2c^2)$ |
| `"group"` | $\sum_g \sqrt{(k_g + 1)/2}\, |b_g|_2/c$ for groups of $k_g$ coefficients |

With the factor of the last, every coefficient has the variance $2c^2$, whatever the size of its
group.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from scipy.special import ndtri

from pipla.fitting import Fit, fit
from pipla.models.likelihoods import even_softplus
from pipla.models.model import Model
from pipla.prox import LaplaceScale, Strength
from pipla.prox.base import Term
from pipla.regression._answers import Answer, Task, spread_out
from pipla.regression._chains import LEVEL_VARIANCE
from pipla.regression._design import Design, centre_and_scale, design_of
from pipla.regression._stacking import Labels, stacked
from pipla.regression._state import Prior
from pipla.regression._terms import ElasticNetScale, Groups

#: The most draws of the coefficients that are kept.
MOST_DRAWS = 1000
#: The quantiles that stand for the normal distribution of what was learned; an odd number.
QUANTILES = 2001
#: The most steps, and the most for a matrix of up to `CHEAP` numbers, whose steps cost little. Of
#: breast cancer's thirty correlated features, 20 000 steps leave sds just short of their tolerance.
MOST_STEPS, MOST_CHEAP_STEPS, CHEAP = 20_000, 60_000, 50_000


def proximal(task: Task, prior: str, l1_ratio: float, groups: np.ndarray | None) -> Answer:
    r"""The posterior at the learned scale c.

    The noise of a linear regression is learned, too; c is not tied to it. The intercept of a
    linear regression is flat, that of the others $N(0, 10^2)$.

    Arguments:
        task: what is to be fitted.
        prior: `"laplace"`, `"elastic-net"` or `"group"`.
        l1_ratio: the $\rho$ of the elastic net.
        groups: the group of each of the user's features.
    """
    if not isinstance(task.features, np.ndarray):
        task = task._replace(features=task.features.toarray())
    design = design_of(task.features, task.weights, task.intercept, task.standardise)
    if design.size == 0:
        raise ValueError("X has no feature that varies; its prior has no scale then.")
    outputs = task.classes if task.classes > 2 else 1
    term: Term = LaplaceScale()
    width = np.ones(design.size)
    if prior == "elastic-net":
        term = ElasticNetScale(jnp.asarray(l1_ratio))
    elif prior == "group":
        labels = np.arange(task.features.shape[1]) if groups is None else groups
        labels = np.unique(labels[design.kept], return_inverse=True)[1]
        term = Strength(Groups(jnp.ones(()), tuple(labels.tolist())), rate=-2.0)
        width = np.sqrt(2 / (np.bincount(labels)[labels] * outputs + 1))
    features = jnp.asarray(design.columns.dense.T * width)
    linear = task.classes == 1 and not task.poisson
    centre, scale = 0.0, 1.0
    if linear:
        centre, scale = centre_and_scale(task.y, task.weights, task.intercept)
        if scale == 0:
            raise ValueError(
                f"y is {centre:g} in all observations; its noise and its prior have no scale then."
            )
    data = {
        "features": features,
        "weights": jnp.asarray(task.weights, features.dtype),
        "y": jnp.asarray((task.y - centre) / scale, features.dtype),
    }
    shape = (design.size, outputs) if outputs > 1 else (design.size,)
    x: dict[str, Array] = {"coefficients": jnp.zeros(shape, features.dtype)}
    if task.intercept and not linear:
        x["intercept"] = jnp.zeros(shape[1:], features.dtype)
    zero = jnp.zeros((), features.dtype)
    theta = {"prior": zero} | ({"noise": zero} if linear else {})
    smooth = _linear if linear else _poisson if task.poisson else _labels
    if outputs > 1:
        smooth = _classes
    model = Model(smooth, term.on(theta="prior", x="coefficients"), data=data)
    steps = MOST_CHEAP_STEPS if features.size <= CHEAP else MOST_STEPS
    key = jax.random.key(task.seed)
    options: dict[str, Any] = {"callbacks": task.callbacks, "progress": False}
    if task.earlier is not None:
        found = task.earlier.resume(model, max_steps=task.rounds or steps, **options)
    else:
        found = fit(model, theta=theta, x=x, max_steps=steps, key=key, **options)
    return _answer(task, design, found, width, scale, centre, outputs, linear)


def _predictors(x: PyTree, data: PyTree) -> Array:
    z = data["features"] @ x["coefficients"]
    return z + x["intercept"] if "intercept" in x else z


def _level(x: PyTree) -> Array:
    return 0.005 * jnp.sum(x["intercept"] ** 2) if "intercept" in x else jnp.zeros(())


def _linear(theta: PyTree, x: PyTree, data: PyTree) -> Array:
    residual = data["y"] - _predictors(x, data)
    squares = jnp.sum(data["weights"] * residual**2)
    rows = jnp.sum(data["weights"])
    return 0.5 * jnp.exp(-2 * theta["noise"]) * squares + rows * theta["noise"]


def _labels(theta: PyTree, x: PyTree, data: PyTree) -> Array:
    z = _predictors(x, data)
    return jnp.sum(data["weights"] * (even_softplus(z) + (0.5 - data["y"]) * z)) + _level(x)


def _poisson(theta: PyTree, x: PyTree, data: PyTree) -> Array:
    z = _predictors(x, data)
    return jnp.sum(data["weights"] * (jnp.exp(z) - data["y"] * z)) + _level(x)


def _classes(theta: PyTree, x: PyTree, data: PyTree) -> Array:
    z = _predictors(x, data)
    chosen = jnp.take_along_axis(z, data["y"].astype(int)[:, None], axis=1)[:, 0]
    return jnp.sum(data["weights"] * (jax.nn.logsumexp(z, axis=1) - chosen)) + _level(x)


def _answer(
    task: Task,
    design: Design,
    found: Fit,
    width: np.ndarray,
    scale: float,
    centre: float,
    outputs: int,
    linear: bool,
) -> Answer:
    samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found.x_samples)
    every = max(len(samples["coefficients"]) // MOST_DRAWS, 1)
    chosen = {name: np.asarray(values)[::every] for name, values in samples.items()}
    draws = width * chosen["coefficients"].reshape(-1, design.size, outputs).transpose(0, 2, 1)
    mean = width * np.asarray(found.x_mean["coefficients"]).reshape(design.size, outputs).T
    levels = np.zeros((len(draws), outputs))
    if "intercept" in chosen:
        levels = chosen["intercept"].reshape(-1, outputs)
    total = float(task.weights.sum())
    noise = float(np.exp(found.theta["noise"])) if linear else float("nan")
    if linear and task.intercept:
        rng = np.random.default_rng([task.seed, 1])
        levels = rng.standard_normal(levels.shape) * noise / np.sqrt(total)
    level = np.zeros(outputs) if linear else levels.mean(axis=0)
    errors = np.full(design.size, (noise if linear else 2.0) / np.sqrt(total))
    names = {"prior": ("scale", 2.0), "noise": ("noise", 1.0)}
    theta = {}
    for part, (name, power) in names.items():
        if part in found.theta:
            error = float(np.hypot(found.theta_stderr[part], found.theta_mcse[part]))
            theta[name] = scale * np.exp(power * _normal(float(found.theta[part]), error))
    mode = None
    if task.classes == 2:
        level_variance = LEVEL_VARIANCE if task.intercept else 0.0
        labels = Labels(design.columns, task.y, task.weights, 0.0, level_variance)
        # A normal prior stands for the average's: `fit` would take too long for parts of the data.
        variance = float(np.mean(draws**2))
        normal = Prior(np.array([0.0, variance]), np.array([0.0, 1.0]))
        mode = stacked(labels, design, variance, normal, 0.0, np.ones(design.size))
    return Answer(
        mean=design.coefficients(mean) * scale,
        slab=spread_out(design, np.ones((outputs, design.size))),
        draws=spread_out(design, draws.astype(np.float32)),
        units=spread_out(design, scale / design.scales),
        level=design.level(mean, level) * scale + centre,
        levels=design.level(draws, levels) * scale + centre,
        threshold=0.5 * scale * spread_out(design, errors / design.scales),
        noise=noise * scale,
        theta=theta,
        findings=found.findings,
        fit=found,
        mode=mode,
    )


def _normal(mean: float, error: float) -> np.ndarray:
    """Equidistant quantiles of a normal distribution; the error may be infinite."""
    units = ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES)
    units[QUANTILES // 2] = 0.0
    return mean + np.array([unit * error if unit else 0.0 for unit in units])
