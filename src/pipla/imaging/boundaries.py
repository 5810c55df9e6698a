r"""Deblurring of photographs: what lies beyond the edge, and whether an assumption about it fits.

A camera blurs the scene and then crops it, so a pixel near the edge sees what is outside of the
image. Four assumptions about the outside are offered:

| boundary | what it assumes |
|---|---|
| `"unknown"` | nothing nearby: the image has a border, which is restored too |
| `"reflect"` | the scene is mirrored |
| `"renormalised"` | there is nothing outside; the weights inside are rescaled |
| `"circular"` | the opposite edge follows |

`"unknown"` is the default: it was the best for photographs (`benchmarks/photographs.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from pipla import _checks
from pipla.imaging._observations import as_observed
from pipla.imaging.restoration import Restoration, restore
from pipla.operators import CircularConvolution, Operator, Separable, blur, convolution
from pipla.operators._arguments import checked_axes, integers

#: What lies beyond the edge of an observed image.
Boundary = Literal["unknown", "reflect", "renormalised", "circular"]

#: The weight of squared differences when an observation is continued: 1e-4 to 1e-2 differ by .6 dB.
SMOOTHNESS = 1e-3


class Blur(NamedTuple):
    """A blur of an image that may be larger than its observation.

    Attributes:
        operator: the map from the image to the noise-free observation.
        inside: the part of the image that was observed, as slices.
        observed: the observation, extended where the operator needs it.
        start: an image to start the sampler from.
    """

    operator: Operator
    inside: tuple[slice, ...]
    observed: np.ndarray
    start: np.ndarray


def deconvolve(
    observed: Any,
    psf: Any,
    *,
    noise: float | None,
    boundary: Boundary = "unknown",
    axes: tuple[int, ...] | None = None,
    **options: Any,
) -> Restoration:
    r"""Undo a known blur; the regularisation strength is learned.

    With `boundary="unknown"` the image $x$ has a border around the observation $y$, as wide as the
    standard deviation of the kernel; beyond it the outermost pixel is repeated, and $H$ keeps only
    the pixels of $y$. The border is restored too, and cut off from the result
    (`Restoration.result` still has it). A kernel that is not a product of one kernel per axis has
    no fast $H$ of this kind; for such a kernel $y$ is continued by a smooth transition to its
    opposite edge, twice as wide as the kernel, and the blur is circular on the larger image.

    A cropped box of width $w$ does not see patterns of period $w$ and mean 0: the prior alone
    decides on them. `"reflect"` and `"renormalised"` make them visible by assumption. Where that
    is right they win: by 1.7 dB on the texture `brick` with `"box:9"`, the one of 34 rows of
    `benchmarks/photographs.py` where the default is more than .5 dB below the best. All of this
    difference lies at the zeros of the box: the error has power 45 there, with `"reflect"` 16, and
    44 elsewhere with both. The residuals at the edge do not tell where: they are as small for
    `camera`, on which `"reflect"` loses 4.5 dB.

    Arguments:
        observed: the blurred, noisy image.
        psf: the blur kernel, as an array or as text: `"box:9"`, `"gaussian:2"`, `"psf.npy"`.
        noise: the standard deviation of the noise; `None` learns it.
        boundary: what lies beyond the edge of the image: `"unknown"`, `"reflect"`,
            `"renormalised"` or `"circular"`.
        axes: the blurred axes, along which differences are taken; `(0, 1)` for colour images.
        options: the other arguments of `restore`.

    Warns:
        BoundaryWarning: the boundary is circular, but opposite edges of the image do not meet.

    Example:
        >>> import numpy as np
        >>> scene = np.kron([[0.0, 100.0], [50.0, 0.0]], np.ones((20, 20)))
        >>> blurred = (scene[:-2] + scene[1:-1] + scene[2:])[:, 4:-4] / 3
        >>> observed = blurred + np.random.default_rng(0).standard_normal(blurred.shape)
        >>> found = deconvolve(observed, np.ones((3, 1)) / 3, noise=1.0)
        >>> bool(np.std(found.mean - scene[1:-1, 4:-4]) < np.std(observed - scene[1:-1, 4:-4]) / 2)
        True
    """
    pixels, seen = as_observed(observed)
    if not seen.all():
        raise ValueError(
            "observed has missing pixels, which cannot be restored together with a blur; fill "
            "them in first (restore with Identity()), or crop the image."
        )
    axes = None if axes is None else integers("axes", axes, least=-pixels.ndim)
    kernel = as_kernel(psf, pixels.shape, axes)
    model = _blur(pixels, kernel, boundary, axes)
    found = restore(
        model.observed, model.operator, noise=noise, axes=axes, start=model.start, **options
    )
    return found._replace(
        mean=found.mean[model.inside],
        std=found.std[model.inside],
        map=None if found.map is None else found.map[model.inside],
    )


def as_kernel(psf: Any, shape: Sequence[int], axes: tuple[int, ...] | None = None) -> np.ndarray:
    """The kernel of an image of this shape, from text or an array; its sum is 1.

    Text means the same width along every blurred axis: a cube in a volume.

    Text is compared with the size of the image before the kernel is made: `"gaussian:4096"` would
    need 8.6 GB.

    >>> as_kernel("box:9", (64, 64)).shape
    (9, 9)
    """
    if not isinstance(psf, str):
        return blur.checked(psf)
    axes = checked_axes(axes, len(shape) if axes is None else len(axes), len(shape))
    sizes = [shape[axis] for axis in axes]
    kind, _, number = psf.partition(":")
    try:
        size = float(number) if kind in ("box", "gaussian") else 0.0
        width = 2 * math.ceil(4 * size) + 1 if kind == "gaussian" else size
    except (ValueError, OverflowError):
        width = 0.0  # `parse` says what is wrong
    if width > min(sizes):
        raise ValueError(
            f"blur {psf!r} is {width:.0f} pixels wide, larger than the image, whose shape is "
            f"{tuple(sizes)}; choose a smaller blur."
        )
    return blur.parse(psf, len(axes))


def _blur(
    observed: np.ndarray, psf: np.ndarray, boundary: str, axes: tuple[int, ...] | None
) -> Blur:
    _checks.choice("boundary", boundary, get_args(Boundary))
    shape = observed.shape
    if boundary != "unknown":
        operator = convolution(psf, shape, boundary, axes)  # type: ignore[arg-type]
        return Blur(operator, (slice(None),) * len(shape), observed, observed)
    axes = checked_axes(axes, psf.ndim, len(shape))
    blur.centred(psf, shape, axes)  # the same errors for the same mistakes
    try:
        kernels = blur.separate(psf)
    except ValueError:
        return _periodic(observed, psf, axes)
    matrices, inside, border = [], [slice(None)] * len(shape), [(0, 0)] * len(shape)
    for kernel, axis in zip(kernels, axes, strict=True):
        border[axis] = _border(kernel)
        inside[axis] = slice(border[axis][0], border[axis][0] + shape[axis])
        matrices.append(cropped_blur_matrix(kernel, shape[axis], border[axis]))
    return Blur(
        Separable(matrices, axes, len(shape)),
        tuple(inside),
        observed,
        np.pad(observed, border, mode="edge"),
    )


def _border(kernel: np.ndarray) -> tuple[int, int]:
    """The pixels to restore before and after the observed ones: the standard deviation of a kernel.

    Pixels farther out are seen with so little weight that the sampler does not settle on them in
    300 steps: with the whole reach of gaussian:2 (8 pixels) the strength of a smooth image was
    .035 instead of .090, and the PSNR 3 dB lower; on `camera` the two differ by .2 dB.
    """
    reach = np.arange(len(kernel)) - len(kernel) // 2
    weights = np.abs(kernel) / np.abs(kernel).sum()
    std = np.sqrt(np.sum(weights * reach**2) - np.sum(weights * reach) ** 2)
    width = round(float(std))
    return min(width, len(kernel) - 1 - len(kernel) // 2), min(width, len(kernel) // 2)


def cropped_blur_matrix(kernel: np.ndarray, size: int, border: tuple[int, int]) -> np.ndarray:
    """The matrix that blurs `size` pixels with a border and keeps those without it.

    Beyond the border its outermost pixel is repeated.

    >>> cropped_blur_matrix(np.array([0.25, 0.5, 0.25]), 2, (1, 0))
    array([[0.25, 0.5 , 0.25],
           [0.  , 0.25, 0.75]])
    """
    before, after = border
    matrix = np.zeros((size, before + size + after))
    rows = np.arange(size)
    for j, weight in enumerate(kernel):
        seen = rows + before - (j - len(kernel) // 2)
        np.add.at(matrix, (rows, np.clip(seen, 0, matrix.shape[1] - 1)), weight)
    return matrix


def _periodic(observed: np.ndarray, psf: np.ndarray, axes: tuple[int, ...]) -> Blur:
    r"""A circular blur of a larger image, whose observation is continued by what $H$ can explain.

    With $M$ the observed pixels, the continuation is $Hz$ for the $z$ that minimises
    $|M(Hz - y)|^2 + \tau |\nabla z|^2$, a linear system. A mere interpolation to the opposite edge
    is no blurred image, and cost .9 to 13 dB (three photographs, a disk and motion).
    """
    from scipy.sparse.linalg import LinearOperator, cg  # heavy, and needed for few kernels

    joined = np.asarray(observed, np.float64)
    for width, axis in zip(psf.shape, axes, strict=True):
        joined = _joined(joined, min(2 * width, observed.shape[axis]), axis)
    inside = tuple(slice(0, size) for size in observed.shape)
    seen = np.zeros(joined.shape)
    seen[inside] = 1.0
    spectrum = np.fft.fftn(blur.centred(psf, joined.shape, axes), axes=axes)
    penalty = np.zeros((1,) * joined.ndim)
    for axis in axes:
        shape = [1] * joined.ndim
        shape[axis] = joined.shape[axis]
        penalty = penalty + (2 - 2 * np.cos(2 * np.pi * np.fft.fftfreq(shape[axis]))).reshape(shape)

    def filtered(by: np.ndarray, image: np.ndarray) -> np.ndarray:
        return np.fft.ifftn(by * np.fft.fftn(image, axes=axes), axes=axes).real

    def normal(flat: np.ndarray) -> np.ndarray:
        image = flat.reshape(joined.shape)
        back = filtered(spectrum.conj(), seen * filtered(spectrum, image))
        return (back + SMOOTHNESS * filtered(penalty, image)).ravel()

    size = joined.size
    explained, _ = cg(
        LinearOperator((size, size), matvec=normal, dtype=np.float64),
        filtered(spectrum.conj(), seen * joined).ravel(),
        x0=joined.ravel(),
        rtol=1e-3,
        maxiter=200,
    )
    extended = np.where(seen > 0, joined, filtered(spectrum, explained.reshape(joined.shape)))
    return Blur(CircularConvolution(psf, extended.shape, axes), inside, extended, extended)


def _joined(image: np.ndarray, width: int, axis: int) -> np.ndarray:
    """`image` with `width` more pixels, from the mirror of its end to the mirror of its start."""
    image = np.moveaxis(image, axis, 0)
    after, before = image[::-1][:width], image[:width][::-1]
    weight = 0.5 + 0.5 * np.cos(np.pi * (np.arange(width) + 0.5) / width)
    weight = weight.reshape(-1, *[1] * (image.ndim - 1))
    return np.moveaxis(np.concatenate([image, weight * after + (1 - weight) * before]), 0, axis)
