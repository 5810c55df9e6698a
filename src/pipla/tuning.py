r"""Step size, smoothing and block scaling from the model's own curvature.

$L$ is the largest eigenvalue of the Hessian of $g_1$ in $(\theta, x)$, in the metric of the theta
scale: of $P^{1/2} \nabla^2 g_1 P^{1/2}$. It is measured by power iteration on Hessian-vector
products at the given points, so it is a local number: start where the run starts.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from pipla.algorithms.base import Algorithm
from pipla.curvature import Curvature, measure_curvature, some, stiffness_ratios
from pipla.model import Model
from pipla.prox.calculus import coupled_sizes


class Suggestion(NamedTuple):
    """Numbers to start from, each with the reason for it in `reasons`."""

    step_size: float
    smoothing: float
    theta_scale: PyTree
    curvature: Curvature
    reasons: dict[str, str]

    def __str__(self) -> str:
        def brief(value: PyTree) -> str:
            return ", ".join(f"{float(number):.4g}" for number in jax.tree.leaves(value))

        return "\n".join(
            f"{name} = {brief(getattr(self, name))}: {why}" for name, why in self.reasons.items()
        )


def suggest(
    model: Model,
    theta: PyTree,
    particles: PyTree,
    theta_scale: PyTree = "auto",
    smoothing: float | None = None,
) -> Suggestion:
    r"""Default `step_size`, `smoothing` and `theta_scale` for a model, from this start.

    A `theta_scale` or `smoothing` that is given is kept, and the step size suits it.

    Example:
        >>> import jax.numpy as jnp, pipla
        >>> model = pipla.Model(lambda theta, x, y: 2.0 * jnp.sum((x - y) ** 2),
        ...                     pipla.prox.LaplaceLocation(), data=jnp.zeros(5))
        >>> numbers = pipla.tuning.suggest(model, jnp.zeros(()), jnp.zeros((10, 5)))
        >>> print(f"L = {numbers.curvature.largest:.3f}, step_size = {numbers.step_size:.4f}")
        L = 4.000, step_size = 0.1225
    """
    scale = resolve_scale(model, theta, particles, theta_scale)
    curvature = measure_curvature(model, theta, particles, scale)
    largest = float(curvature.largest)
    # A flat g1 sets no scale of its own: fall back on unit curvature.
    stiffness = largest if largest > 0 else 1.0
    convexity = max(float(curvature.smallest), 0.0)
    chosen = 1 / stiffness if smoothing is None else smoothing
    step_size = 0.98 / (stiffness + 1 / chosen + convexity)
    reasons = {
        "smoothing": f"1/L with L = {stiffness:.4g}: the envelope is then as stiff as g1 and "
        "halves the largest step, no more (Durmus, Moulines and Pereyra 2018)"
        if smoothing is None
        else "as given",
        "step_size": f"0.98/(L + 1/smoothing + mu) with L = {stiffness:.4g}, mu = {convexity:.4g}, "
        "inside the conditions of every theorem: MYPGD <= 1/(L + 1/smoothing + "
        "mu), MYIPLA < 1/(L + 1/smoothing), PIPGLA <= 1/L",
        "theta_scale": "theta at the pace of x: 1/d of the block it is coupled to by the term, or "
        "the ratio of stiffnesses L_x/L_theta where it sits in the smooth part"
        if isinstance(theta_scale, str)
        else "as given",
    }
    return Suggestion(step_size, chosen, scale, curvature, reasons)


def complete(algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree) -> Algorithm:
    """The algorithm with the numbers that were left out filled in by `suggest`."""
    missing = algorithm.missing()
    if not missing:
        return algorithm
    given = getattr(algorithm, "smoothing", None)
    numbers = suggest(
        model,
        theta,
        particles,
        getattr(algorithm, "theta_scale", 1.0),
        None if given is None else float(given),
    )
    values = {name: getattr(numbers, name) for name in missing}
    return eqx.tree_at(
        lambda a: [getattr(a, name) for name in missing],
        algorithm,
        [jax.tree.map(jnp.asarray, values[name]) for name in missing],
        is_leaf=lambda leaf: leaf is None,
    )


def broken_conditions(
    algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree
) -> list[str]:
    """Sentences, one for each condition of the theory that the settings break at this start."""
    if not algorithm.limited:
        return []
    algorithm = complete(algorithm, model, theta, particles)
    scale = getattr(algorithm, "theta_scale", 1.0)
    curvature = measure_curvature(model, theta, particles, scale)
    limits = algorithm.limits(*curvature)
    step_size = getattr(algorithm, "step_size", None)
    smoothing = getattr(algorithm, "smoothing", None)
    found = []
    slack = 1 + 1e-3  # the power iteration is good to about that
    if step_size is not None and float(step_size) > float(limits.step_size) * slack:
        found.append(
            f"step_size = {float(step_size):.4g} exceeds {float(limits.step_size):.4g} "
            f"({limits.source}, with L = {float(curvature.largest):.4g} at the start)"
        )
    if smoothing is not None and limits.smoothing is not None:
        low, high = map(float, limits.smoothing)
        if not low / slack <= float(smoothing) <= high * slack:
            found.append(
                f"smoothing = {float(smoothing):.4g} is outside [{low:.4g}, {high:.4g}] "
                f"({limits.source}, with mu = {float(curvature.smallest):.4g} at the start)"
            )
    return found


def warn_broken(algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree) -> None:
    """Warn of each broken condition; the run goes on."""
    for sentence in broken_conditions(algorithm, model, theta, particles):
        warnings.warn(
            f"{sentence}. The guarantee does not cover this run: expect bias, or divergence; "
            "`pipla.tuning.suggest` gives settings that it covers.",
            TheoryWarning,
            stacklevel=3,
        )


class TheoryWarning(UserWarning):
    """A condition of the theory does not hold for these settings."""


def resolve_scale(model: Model, theta: PyTree, particles: PyTree, theta_scale: PyTree) -> PyTree:
    r"""`theta_scale` as numbers.

    `"auto"` gives each part of theta the pace of x. Where it sits in the non-smooth term: 1/d of
    the block of x it is coupled to. Where it sits in the smooth part only (a non-centred model):
    the ratio of the stiffnesses, $L_x / L_\theta$, of the two diagonal blocks of the Hessian, but
    at most 1: far from the data the likelihood is flat, and Newton's step would leave for good.
    """
    if not isinstance(theta_scale, str):
        return theta_scale
    one = jax.tree.map(lambda leaf: leaf[0], particles)
    sizes = coupled_sizes(model.nonsmooth, theta, one)
    everything = sum(leaf.size for leaf in jax.tree.leaves(one))
    ratios = stiffness_ratios(model, theta, some(particles, 16))
    return jax.tree.map(
        lambda size, ratio, leaf: (
            jnp.where(ratio > 0, jnp.minimum(ratio, 1.0), 1 / everything).astype(leaf.dtype)
            if size is None
            else jnp.asarray(1 / size, leaf.dtype)
        ),
        sizes,
        ratios,
        theta,
        is_leaf=lambda leaf: leaf is None,
    )
