r"""Step size, smoothing and block scaling from the model's own curvature.

$L$ is the Lipschitz constant of $\nabla g_1$ in $(\theta, x)$, in the metric of the theta scale:
the largest modulus among the eigenvalues of $P^{1/2} \nabla^2 g_1 P^{1/2}$. It is measured by power
iteration on Hessian-vector products at the given points, so it is a local number: start where the
run starts.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla import _checks
from pipla.algorithms.base import Algorithm
from pipla.engine.prepare import checked_point, checked_start
from pipla.models.model import Model
from pipla.prox.combine import coupled_sizes
from pipla.tuning.curvature import Curvature, measure_curvature, some, stiffness_ratios


class Suggestion(NamedTuple):
    """Numbers to start from, each with the reason for it in `reasons`."""

    step_size: float
    smoothing: float
    theta_scale: PyTree
    curvature: Curvature
    reasons: dict[str, str]

    def __str__(self) -> str:
        def brief(value: PyTree) -> str:
            return ", ".join(map(_brief, jax.tree.leaves(value)))

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
    theta, particles = checked_point(model, theta, particles)
    _checks.theta_scale(theta_scale)
    if not isinstance(theta_scale, str):
        _checks.scale_like_theta(theta_scale, theta)
    _checks.positive("smoothing", smoothing)
    _checks.single("smoothing", smoothing)
    scale = resolve_scale(model, theta, particles, theta_scale)
    curvature = measure_curvature(model, theta, particles, scale)
    numbers = _numbers(curvature, smoothing, _basin(model, theta, particles))
    reasons = {
        "smoothing": _why_smoothing(numbers) if smoothing is None else "as given",
        "step_size": f"0.98/(L + 1/smoothing + mu) with L = {numbers.stiffness:.4g}, "
        f"mu = {numbers.convexity:.4g}, which is inside the step sizes of every theorem: MYPGD <= "
        "1/(L + 1/smoothing + mu), MYIPLA < 1/(L + 1/smoothing), PIPGLA <= 1/L"
        + (
            ""
            if curvature.smallest > 0
            else "; but they want g1 strongly convex, and here it is not"
        ),
        "theta_scale": "theta at the pace of x: 1/d of the block it is coupled to by the term, or "
        "the ratio of stiffnesses L_x/L_theta where it sits in the smooth part"
        if isinstance(theta_scale, str)
        else "as given",
    }
    return Suggestion(numbers.step_size, numbers.smoothing, scale, curvature, reasons)


class _Numbers(NamedTuple):
    step_size: float
    smoothing: float
    stiffness: float
    convexity: float


def _basin(model: Model, theta: PyTree, particles: PyTree) -> float:
    """The largest smoothing that the term bears."""
    one = jax.tree.map(lambda leaf: leaf[0], particles)
    return float(model.nonsmooth.largest_smoothing(theta, one))


def _numbers(curvature: Curvature, smoothing: float | None, basin: float) -> _Numbers:
    # A flat g1 sets no scale of its own: fall back on unit curvature.
    largest = float(curvature.largest)
    stiffness = largest if largest > 0 else 1.0
    convexity = max(float(curvature.smallest), 0.0)
    chosen = min(1 / stiffness, basin) if smoothing is None else float(smoothing)
    step_size = 0.98 / (stiffness + 1 / chosen + convexity)
    return _Numbers(step_size, chosen, stiffness, convexity)


def _why_smoothing(numbers: _Numbers) -> str:
    if numbers.smoothing < 1 / numbers.stiffness:
        return (
            "the largest for which the prox of a learned strength stays near theta (E12); "
            f"1/L = {1 / numbers.stiffness:.4g} would be as stiff as g1"
        )
    return (
        f"1/L with L = {numbers.stiffness:.4g}: the envelope is then as stiff as g1 and halves the "
        "largest step, no more (Durmus, Moulines and Pereyra 2018); PIPGLA takes its step size"
    )


def complete(algorithm: Algorithm, model: Model, theta: PyTree, particles: PyTree) -> Algorithm:
    """The algorithm with the numbers that were left out filled in as by `suggest`."""
    missing = algorithm.missing()
    if not missing:
        return algorithm
    scheme = algorithm.scheme_itself
    given = getattr(scheme, "smoothing", None)
    scale = resolve_scale(model, theta, particles, getattr(scheme, "theta_scale", 1.0))
    curvature = measure_curvature(model, theta, particles, _moving(scheme, scale))
    # Over x alone the prox is convex, and bears any smoothing.
    joint = getattr(scheme, "theta_update", "prox") == "prox"
    basin = _basin(model, theta, particles) if joint else math.inf
    numbers = _numbers(curvature, None if given is None else float(given), basin)
    step_size = numbers.step_size
    if given is not None and "smoothing" not in scheme.needs:
        # A splitting: the two are one number, as far as g1 bears it.
        step_size = min(numbers.smoothing, 0.98 / numbers.stiffness)
    values = {"step_size": step_size, "smoothing": numbers.smoothing, "theta_scale": scale}
    return algorithm.filled({name: values[name] for name in missing})


def _moving(scheme: Algorithm, scale: PyTree) -> PyTree:
    """The scale, or 0 where theta makes no steps: its curvature then limits none."""
    return scale if getattr(scheme, "theta_drifts", True) else 0.0


def broken_conditions(
    algorithm: Algorithm,
    model: Model,
    theta: PyTree,
    particles: PyTree,
    where: str = "at the start",
) -> list[str]:
    """Sentences, one for each condition of the theory that the settings break at this point."""
    theta, particles = checked_start(model, algorithm, theta, particles)
    if not algorithm.limited:
        return []
    algorithm = complete(algorithm, model, theta, particles)
    scheme = algorithm.scheme_itself
    scale = _moving(scheme, getattr(scheme, "theta_scale", 1.0))
    curvature = measure_curvature(model, theta, particles, scale)
    limits = algorithm.limits(*curvature)
    step_size = getattr(scheme, "step_size", None)
    smoothing = getattr(scheme, "smoothing", None)
    found = []
    slack = 1 + 1e-3  # the power iteration is good to about that
    if step_size is not None and float(step_size) > float(limits.step_size) * slack:
        found.append(
            f"step_size = {float(step_size):.4g} exceeds {float(limits.step_size):.4g} "
            f"({limits.source}, with L = {float(curvature.largest):.4g} {where})"
        )
    if smoothing is not None and limits.smoothing is not None:
        low, high = map(float, limits.smoothing)
        if not low / slack <= float(smoothing) <= high * slack:
            found.append(
                f"smoothing = {float(smoothing):.4g} is outside [{low:.4g}, {high:.4g}] "
                f"({limits.source}, with mu = {float(curvature.smallest):.4g} {where})"
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


def _brief(numbers: Array) -> str:
    if jnp.size(numbers) == 1:
        return f"{np.asarray(numbers).item():.4g}"
    return f"{np.min(numbers):.4g} to {np.max(numbers):.4g}"


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
