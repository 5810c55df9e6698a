r"""Models of images: Gaussian observations and a total variation prior."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipla import _checks
from pipla.models.likelihoods import Gaussian
from pipla.models.likelihoods.gaussian import check_shapes
from pipla.models.model import Model
from pipla.operators import Operator
from pipla.operators._arguments import checked_axes, integers
from pipla.operators.linear import require_operator
from pipla.prox import TVStrength

#: Iterations of the dual of total variation in each step: more change the strength by .1 %.
PROX_ITERATIONS = 5


def tv_model(
    operator: Operator,
    observed: Any,
    noise: float | None,
    *,
    isotropic: bool = False,
    axes: tuple[int, ...] | None = None,
    iterations: int = PROX_ITERATIONS,
) -> Model:
    r"""Gaussian observations of an image whose prior is $e^{\theta}\mathrm{TV}(x)$.

    With `noise=None` theta is a dict of `"strength"` and `"noise"`, the logarithms of both;
    otherwise it is the logarithm of the strength. `axes` are those that differences are taken
    along; each position along the others (colours) is an image of its own with the same strength.
    """
    require_operator("operator", operator)
    observed = _checks.real_array("observed", observed)
    shape = check_shapes(operator, observed)
    if axes is not None:  # counted from the front, so that the degrees are those of the term
        axes = _different_axes(axes, len(shape))
    along = tuple(range(len(shape))) if axes is None else axes
    images = np.prod([size for axis, size in enumerate(shape) if axis not in along], initial=1)
    # Total variation does not see the brightness of an image (E7).
    degrees = float(np.prod(shape) - images)
    # The tolerance is never reached in so few iterations: their number is what counts.
    term = TVStrength(
        isotropic=isotropic, axes=axes, max_iterations=iterations, tolerance=1e-9, degrees=degrees
    )
    if noise is not None:
        return Model(Gaussian(operator, observed, noise), term)
    likelihood = Gaussian(operator, observed, None, theta="noise")
    return Model(likelihood, term.on(theta="strength"))


def _different_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    given = integers("axes", axes, least=-ndim)
    if not given:
        raise ValueError(f"axes must be different axes of an x with {ndim} axes, got none.")
    return checked_axes(given, len(given), ndim)
