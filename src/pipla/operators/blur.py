"""Blur kernels (point spread functions) and boundary conditions, in NumPy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from pipla import _checks
from pipla.operators._arguments import MOST_AXES, checked_axes, checked_shape

#: How a blur continues the image beyond its edge: periodically, by reflection, or not at all, with
#: the weights inside the image rescaled to sum to 1.
Boundary = Literal["circular", "reflect", "renormalised"]

#: The widest kernel that is made, in pixels, and the largest number of its weights: a wider one
#: could fill the memory before it is compared with the image.
WIDEST = 4096
MOST_WEIGHTS = WIDEST**2


def box(width: int, axes: int = 2) -> np.ndarray:
    """The mean over a square of `width` × `width` pixels (over a cube, if `axes` is 3)."""
    width = _checks.integer("width", width, least=1)
    axes = _checked_size(width, axes)
    return np.full((width,) * axes, 1.0 / width**axes)


def gaussian(std: float, axes: int = 2) -> np.ndarray:
    """A Gaussian kernel of standard deviation `std` in pixels, truncated at four of them."""
    std = _checks.real("std", std)
    _checks.positive("std", std)
    radius = math.ceil(4 * min(std, WIDEST))
    axes = _checked_size(2 * radius + 1, axes)
    profile = np.exp(-0.5 * (np.arange(-radius, radius + 1) / std) ** 2)
    profile /= profile.sum()
    kernel = profile
    for _ in range(axes - 1):
        kernel = np.multiply.outer(kernel, profile)
    return kernel


def _checked_size(width: int, axes: Any) -> int:
    """The number of axes of a kernel that is not too large."""
    axes = _checks.integer("axes", axes, least=1, most=MOST_AXES)
    if width > WIDEST or width**axes > MOST_WEIGHTS:
        raise ValueError(
            f"the blur is too large: {width} pixels wide along {axes} axes; at most {WIDEST} "
            f"pixels and {MOST_WEIGHTS} weights are possible."
        )
    return axes


def parse(text: str, axes: int = 2) -> np.ndarray:
    """A kernel from text: `box:9`, `gaussian:2` along so many axes, or a file `psf.npy`."""
    if not isinstance(text, str):
        raise TypeError(f"blur must be text such as 'box:9', got {_checks.show(text)}.")
    kind, _, number = text.partition(":")
    if kind in ("box", "gaussian"):
        try:
            size = int(number) if kind == "box" else float(number)
        except ValueError:
            size = 0
        if not size > 0:
            sort = "integer" if kind == "box" else "number"
            wrong = f"{number!r} is not a positive {sort}" if number else "its size is missing"
            example = "box:9" if kind == "box" else "gaussian:2"
            raise ValueError(f"blur {text!r}: {wrong}; write for example {example}.")
        return box(int(size), axes) if kind == "box" else gaussian(size, axes)
    if not text.endswith(".npy"):
        raise ValueError(
            f"blur {text!r} is not understood; write box:9, gaussian:2 or the name of a .npy file."
        )
    if not Path(text).is_file():
        raise FileNotFoundError(f"blur: there is no file {text!r}.")
    try:
        psf = np.load(text, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"blur: {text!r} is not an array saved by numpy.save.") from error
    return checked(psf)


def checked(psf: Any) -> np.ndarray:
    """A kernel that sums to 1; one that does not is divided by its sum, with a warning."""
    psf = as_kernel(psf)
    total = psf.sum()
    if not 0 < total < math.inf:
        raise ValueError(f"psf must have a positive sum, got {total:.6g}: a blur keeps brightness.")
    if abs(total - 1) > 1e-6:
        warnings.warn(
            f"psf sums to {total:.6g}, not to 1; it is divided by its sum, so that the image "
            "keeps its brightness.",
            stacklevel=2,
        )
    return psf / total


def as_kernel(psf: Any) -> np.ndarray:
    """`psf` as an array of finite float64 numbers with at least one axis."""
    psf = _checks.on_host("psf", psf)
    if not 1 <= psf.ndim <= MOST_AXES or not psf.size:
        raise ValueError(f"psf must be an array with axes and elements, got shape {psf.shape}.")
    psf = psf.astype(np.float64)
    if not np.all(np.isfinite(psf)):
        raise ValueError(f"psf has {int(np.sum(~np.isfinite(psf)))} non-finite value(s).")
    return psf


def centred(psf: np.ndarray, shape: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """The kernel on a grid that broadcasts against `shape`, its centre moved to the corner."""
    psf, shape = as_kernel(psf), checked_shape(shape)
    axes = checked_axes(axes, psf.ndim, len(shape))
    room = [shape[axis] for axis in axes]
    if any(size > limit for size, limit in zip(psf.shape, room, strict=True)):
        raise ValueError(
            f"psf of shape {psf.shape} is larger than the image, whose shape is {tuple(room)} "
            "along those axes; crop the kernel, or choose a smaller blur."
        )
    grid = np.zeros(room)
    grid[tuple(slice(size) for size in psf.shape)] = psf
    grid = np.roll(grid, [-(size // 2) for size in psf.shape], range(psf.ndim))
    full = [1] * len(shape)
    for axis in axes:
        full[axis] = shape[axis]
    order = np.argsort(axes)
    return grid.transpose(order).reshape(full)


def separate(psf: np.ndarray) -> list[np.ndarray]:
    """One kernel per axis whose outer product is `psf`; an error if there are none."""
    psf = as_kernel(psf)
    kernels = []
    for axis in range(psf.ndim):
        others = tuple(k for k in range(psf.ndim) if k != axis)
        kernels.append(psf.sum(axis=others))
    product = kernels[0]
    for kernel in kernels[1:]:
        product = np.multiply.outer(product, kernel)
    scale = psf.sum() ** (psf.ndim - 1)
    error = np.max(np.abs(product - scale * psf))
    if scale == 0 or error > 1e-6 * abs(scale) * np.max(np.abs(psf)):
        raise ValueError(
            "psf is not a product of one kernel per axis, which boundaries other than 'circular' "
            "need; use boundary='circular'."
        )
    kernels[0] = kernels[0] / scale
    return kernels


def blur_matrix(kernel: np.ndarray, size: int, boundary: Boundary) -> np.ndarray:
    """The matrix that blurs a row of `size` pixels.

    Pixel i sees pixel i - (j - c) with weight `kernel[j]`, where c is the centre of the kernel.
    """
    _checks.choice("boundary", boundary, get_args(Boundary))
    kernel = as_kernel(kernel)
    if kernel.ndim != 1:
        raise ValueError(f"kernel must have one axis, got shape {kernel.shape}.")
    size = _checks.integer("size", size, least=1)
    _checks.room("the matrix of a blur", (size, size))
    matrix = np.zeros((size, size))
    rows = np.arange(size)
    for j, weight in enumerate(kernel):
        seen = rows - (j - len(kernel) // 2)
        if boundary == "circular":
            seen = seen % size
        elif boundary == "reflect":  # the edge pixel is repeated: d c b a | a b c d | d c b a
            seen = seen % (2 * size)
            seen = np.minimum(seen, 2 * size - 1 - seen)
        inside = (seen >= 0) & (seen < size)
        np.add.at(matrix, (rows[inside], seen[inside]), weight)
    if boundary == "renormalised":
        matrix *= kernel.sum() / matrix.sum(axis=1, keepdims=True)
    return matrix
