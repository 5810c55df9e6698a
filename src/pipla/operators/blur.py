"""Blur kernels (point spread functions) and boundary conditions, in NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from pipla import _checks

#: How a blur continues the image beyond its edge: periodically, by reflection, or not at all, with
#: the weights inside the image rescaled to sum to 1.
Boundary = Literal["circular", "reflect", "renormalised"]

#: The widest kernel that `parse` makes, in pixels: a wider one could fill the memory before it is
#: compared with the image.
WIDEST = 4096


def box(width: int, axes: int = 2) -> np.ndarray:
    """The mean over a square of `width` × `width` pixels (over a cube, if `axes` is 3)."""
    width = _checks.integer("width", width, least=1)
    axes = _checks.integer("axes", axes, least=1)
    return np.full((width,) * axes, 1.0 / width**axes)


def gaussian(std: float, axes: int = 2) -> np.ndarray:
    """A Gaussian kernel of standard deviation `std` in pixels, truncated at four of them."""
    _checks.positive("std", std)
    _checks.single("std", std)
    axes = _checks.integer("axes", axes, least=1)
    radius = int(np.ceil(4 * std))
    profile = np.exp(-0.5 * (np.arange(-radius, radius + 1) / std) ** 2)
    profile /= profile.sum()
    kernel = profile
    for _ in range(axes - 1):
        kernel = np.multiply.outer(kernel, profile)
    return kernel


def parse(text: str) -> np.ndarray:
    """A kernel from text: `box:9`, `gaussian:2`, or a file `psf.npy`."""
    kind, _, number = text.partition(":")
    if kind in ("box", "gaussian"):
        try:
            width = int(number) if kind == "box" else float(number)
            if not width > WIDEST:
                return box(int(width)) if kind == "box" else gaussian(width)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"blur {text!r}: {number!r} is not a positive "
                f"{'integer' if kind == 'box' else 'number'}; write for example "
                f"{'box:9' if kind == 'box' else 'gaussian:2'}."
            ) from error
        raise ValueError(f"blur {text!r} is wider than {WIDEST} pixels.")
    if not text.endswith(".npy"):
        raise ValueError(
            f"blur {text!r} is not understood; write box:9, gaussian:2 or the name of a .npy file."
        )
    if not Path(text).is_file():
        raise FileNotFoundError(f"blur: there is no file {text!r}.")
    try:
        psf = np.load(text, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"blur: {text!r} is not an array saved by numpy.save.") from error
    return checked(psf)


def checked(psf: Any) -> np.ndarray:
    """A kernel that sums to 1; one that does not is divided by its sum, with a warning."""
    psf = as_kernel(psf)
    total = psf.sum()
    if not total > 0:
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
    psf = np.asarray(psf)
    if psf.ndim < 1 or psf.size == 0 or psf.dtype.kind not in "fiub":
        raise ValueError(
            f"psf must be an array of real numbers, got shape {psf.shape} and dtype {psf.dtype}."
        )
    psf = psf.astype(np.float64)
    if not np.all(np.isfinite(psf)):
        raise ValueError(f"psf has {int(np.sum(~np.isfinite(psf)))} non-finite value(s).")
    return psf


def centred(psf: np.ndarray, shape: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """The kernel on a grid that broadcasts against `shape`, its centre moved to the corner."""
    if psf.ndim != len(axes):
        raise ValueError(
            f"psf has {psf.ndim} axes, but it is to act on {len(axes)} axes of an image of shape "
            f"{tuple(shape)}."
        )
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
    kernels = []
    for axis in range(psf.ndim):
        others = tuple(k for k in range(psf.ndim) if k != axis)
        kernels.append(psf.sum(axis=others))
    product = kernels[0]
    for kernel in kernels[1:]:
        product = np.multiply.outer(product, kernel)
    if np.max(np.abs(product / psf.sum() ** (psf.ndim - 1) - psf)) > 1e-6 * np.max(np.abs(psf)):
        raise ValueError(
            "psf is not a product of one kernel per axis, which boundaries other than 'circular' "
            "need; use boundary='circular'."
        )
    kernels[0] = kernels[0] / psf.sum() ** (psf.ndim - 1)
    return kernels


def blur_matrix(kernel: np.ndarray, size: int, boundary: Boundary) -> np.ndarray:
    """The matrix that blurs a row of `size` pixels.

    Pixel i sees pixel i - (j - c) with weight `kernel[j]`, where c is the centre of the kernel.
    """
    _checks.choice("boundary", boundary, get_args(Boundary))
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
