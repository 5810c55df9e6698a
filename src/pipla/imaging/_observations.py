"""What is looked at before an image is restored: missing pixels, the noise, the seam."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from pipla import _checks
from pipla._extras import extra
from pipla.operators import Mask, Operator

#: A seam is reported where it is this much higher than every step inside the image.
SEAM = 1.5


class BoundaryWarning(UserWarning):
    """A circular blur is assumed, but opposite edges of the image do not meet."""


class IdentifiabilityWarning(UserWarning):
    """A parameter cannot be learned from these data, and something else was done."""


def as_observed(observed: Any) -> tuple[np.ndarray, np.ndarray]:
    """The observations as floats, 0 where they are missing, and which ones were seen.

    Missing are the masked elements of a `numpy.ma.MaskedArray`, and NaN.
    """
    hidden: Any = False
    if np.ma.isMaskedArray(observed):
        observed, hidden = observed.data, np.ma.getmaskarray(observed)
    array = _checks.on_host("observed", observed)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(
            f"observed must be an array with axes and elements, got shape {array.shape}."
        )
    values = array.astype(np.dtype(jnp.result_type(float)))
    seen = ~(hidden | np.isnan(values))
    values = np.where(seen, values, 0)
    bad = int(np.sum(~np.isfinite(values)))
    if bad:
        raise ValueError(
            f"observed has {bad} non-finite value(s) (inf) among {values.size}; mark missing "
            "values as NaN or by a mask, and repair or remove the others."
        )
    return values, seen


def seen_through(operator: Operator, values: np.ndarray, seen: np.ndarray) -> tuple[Operator, Any]:
    """The operator and the observations without the missing ones."""
    given = operator.seen()
    known = np.broadcast_to(np.asarray(True if given is None else given), values.shape)
    if not known.any():
        raise ValueError("mask is 0 everywhere: no pixel is seen, so there is nothing to restore.")
    if seen.all():
        return operator, values
    seen = seen & known
    if not seen.any():
        raise ValueError("every value of observed is missing: there is nothing to restore.")
    weights, rows = operator.multiplier(), operator.of_observations(seen)
    if weights is not None:
        return Mask(jnp.asarray(np.asarray(weights) * seen)), np.where(seen, values, 0)
    if rows is not None:
        return rows, values[seen]
    return Mask(jnp.asarray(seen)) @ operator, values


def estimate_noise(observed: Any, channel_axis: int | None = None) -> float:
    """Estimate the standard deviation of the noise from the finest details of an image.

    This is Donoho's median of wavelet coefficients (scikit-image). It is accurate where the image
    itself has little at the finest scale, as a blurred one; on a sharp image the texture makes it
    too large. If pixels are missing (masked or NaN), it is the median of the second differences of
    those neighbours that are all seen.

    Arguments:
        observed: the image.
        channel_axis: the axis of colours; `None` for grey images.
    """
    values, seen = as_observed(observed)
    channel_axis = checked_channel_axis(channel_axis, values.ndim)
    image = values.astype(np.float64)
    if seen.all():
        with extra("imaging", "estimating the noise"):
            importlib.import_module("pywt")  # which scikit-image imports only when called
            from skimage.restoration import estimate_sigma

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # an empty median is NaN, caught below
            found = float(estimate_sigma(image, average_sigmas=True, channel_axis=channel_axis))
    else:
        found = _noise_of_seen(image, seen, channel_axis)
    # A clean image of few levels has details of the size of rounding errors only.
    if not found > rounding(image):
        raise ValueError(
            "noise cannot be estimated: the finest details of the image are exactly 0, or too few; "
            "give the standard deviation of the noise as a number."
        )
    return found


def _noise_of_seen(image: np.ndarray, seen: np.ndarray, channel_axis: int | None) -> float:
    """The median absolute second difference, over the last two axes, divided by that of N(0, 1)."""
    axes = [axis for axis in range(image.ndim) if axis != channel_axis and image.shape[axis] > 2]
    details, known, norm = image, seen, 1.0
    if len(axes) > 1:  # mixed differences: an edge along an axis has none
        for axis in axes[-2:]:
            details = np.diff(details, axis=axis)
            known = _both(known, axis)
        norm = 2.0
    elif axes:
        for _ in range(2):
            details = np.diff(details, axis=axes[0])
            known = _both(known, axes[0])
        norm = 6**0.5
    chosen = details[known]
    return float(np.median(np.abs(chosen)) / norm / 0.6744897501960817) if chosen.size > 8 else 0.0


def _both(seen: np.ndarray, axis: int) -> np.ndarray:
    seen = np.moveaxis(seen, axis, 0)
    return np.moveaxis(seen[1:] & seen[:-1], 0, axis)


def rounding(values: Any) -> float:
    """The rounding error of these numbers in JAX's default float type."""
    return float(jnp.finfo(jnp.result_type(float)).eps) * float(np.max(np.abs(values)))


def checked_channel_axis(channel_axis: Any, ndim: int) -> int | None:
    """An axis of the image, counted from the front; at least one other axis is left."""
    if channel_axis is None:
        return None
    if isinstance(channel_axis, bool) or not isinstance(channel_axis, int | np.integer):
        raise TypeError(
            f"channel_axis must be an integer or None, got {_checks.show(channel_axis)}."
        )
    if not -ndim <= channel_axis < ndim or ndim < 2:
        raise ValueError(
            f"channel_axis must be an axis of the image, which has {ndim}; got {channel_axis}. "
            "Leave it out for a grey image."
        )
    return int(channel_axis) % ndim


def check_seam(operator: Operator, observed: np.ndarray) -> None:
    r"""Warn where a circular blur is assumed and opposite edges of the image do not meet.

    On a periodic image the step across the seam is one among the $n$ steps between neighbouring
    rows, and the largest of them with probability about $1/n$. It is reported where its mean size
    is more than 1.5 times that of each of the other $n - 1$: less often than in one of $n$ images
    without reason, for each axis. A blurred photograph has small steps inside and a large one at
    the seam.
    """
    for axis in operator.periodic_axes():
        lines = np.moveaxis(np.asarray(observed, np.float64), axis, 0).reshape(
            observed.shape[axis], -1
        )
        if len(lines) < 3:
            continue
        steps = np.abs(np.diff(lines, axis=0)).mean(axis=1)
        seam = np.abs(lines[0] - lines[-1]).mean()
        if seam > SEAM * steps.max():
            warnings.warn(
                f"a circular blur continues the image by its opposite edge, but the step from the "
                f"last to the first line along axis {axis} is {seam:.3g} on average, and at most "
                f"{steps.max():.3g} between neighbours inside: the image is not periodic, and the "
                "restored one may be far worse than the given one. For a photograph use "
                "pipla.imaging.deconvolve, or boundary='unknown'.",
                BoundaryWarning,
                stacklevel=4,
            )
            return
