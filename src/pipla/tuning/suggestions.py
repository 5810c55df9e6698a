"""Step size, smoothing and block scaling for a model, each with its reason."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla import _checks
from pipla.algorithms.base import (
    Curvature,
    Suggested,
    check_scale_like_theta,
    check_theta_scale,
)
from pipla.models.model import Model, checked_point, without_fixed_leaves
from pipla.tuning.curvature import LocalGeometry


class Suggestion(NamedTuple):
    """Numbers to start from, each with the reason for it in `reasons`."""

    step_size: float
    smoothing: float
    theta_scale: PyTree
    curvature: Curvature
    reasons: dict[str, str]

    def __str__(self) -> str:
        def brief(value: PyTree) -> str:
            return ", ".join(map(_range, jax.tree.leaves(value)))

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
    model, theta, particles = without_fixed_leaves(model, theta, particles)
    theta, particles = checked_point(model, theta, particles)
    check_theta_scale(theta_scale)
    if not isinstance(theta_scale, str):
        check_scale_like_theta(theta_scale, theta)
    _checks.positive("smoothing", smoothing)
    _checks.single("smoothing", smoothing)
    geometry = LocalGeometry(model, theta, particles)
    scale = geometry.theta_scale() if isinstance(theta_scale, str) else theta_scale
    curvature = geometry.curvature(scale)
    numbers = curvature.suggest(smoothing, geometry.largest_smoothing())
    reasons = {
        "smoothing": _why_smoothing(numbers) if smoothing is None else "as given",
        "step_size": f"0.98/(L + 1/smoothing + mu) with L = {numbers.stiffness:.4g}, "
        f"mu = {numbers.convexity:.4g}, which is inside the step sizes of every theorem: MYPGD <= "
        "1/(L + 1/smoothing + mu), MYIPLA < 1/(L + 1/smoothing), PIPGLA <= 1/L"
        + (
            ""
            if curvature.smallest > 0
            else "; but they assume that g1 is strongly convex, and here it is not"
        ),
        "theta_scale": "theta at the pace of x: 1/d of the block it is coupled to by the term, or "
        "the ratio of stiffnesses L_x/L_theta where it sits in the smooth part"
        if isinstance(theta_scale, str)
        else "as given",
    }
    return Suggestion(numbers.step_size, numbers.smoothing, scale, curvature, reasons)


def _why_smoothing(numbers: Suggested) -> str:
    if numbers.smoothing < 1 / numbers.stiffness:
        return (
            "the largest for which the prox of a learned strength stays near theta (E12); "
            f"1/L = {1 / numbers.stiffness:.4g} would be as stiff as g1"
        )
    return (
        f"1/L with L = {numbers.stiffness:.4g}: the envelope is then as stiff as g1 and halves the "
        "largest step, no more (Durmus, Moulines and Pereyra 2018); PIPGLA takes its step size"
    )


def _range(numbers: Array) -> str:
    if jnp.size(numbers) == 1:
        return f"{np.asarray(numbers).item():.4g}"
    return f"{np.min(numbers):.4g} to {np.max(numbers):.4g}"
