"""`pipla deblur`: undo a known blur of an image file."""

from __future__ import annotations

import functools
import warnings
from typing import Annotated

import numpy as np
import typer

from pipla.cli.images import (
    MAX_PIXELS,
    Force,
    Isotropic,
    Job,
    MaxPixels,
    Noise,
    Out,
    Seed,
    Source,
    Steps,
    WhichOutput,
    run_command,
)
from pipla.imaging import Image, deconvolve
from pipla.imaging.boundaries import Boundary, as_kernel


def command(
    image: Source,
    blur: Annotated[str, typer.Option(help="box:9, gaussian:2 or a file psf.npy.")],
    boundary: Annotated[
        Boundary,
        typer.Option(
            help="What lies beyond the edge: unknown (photographs), reflect, renormalised or "
            "circular."
        ),
    ] = "unknown",
    noise: Noise = "auto",
    output: WhichOutput = "mean",
    steps: Steps = 300,
    isotropic: Isotropic = False,
    seed: Seed = 0,
    out: Out = None,
    force: Force = False,
    max_pixels: MaxPixels = MAX_PIXELS,
) -> None:
    """Restore a blurred, noisy image; the regularisation strength is learned."""
    settings = {"blur": blur, "boundary": boundary}
    job = Job("deblur", image, settings, noise, isotropic, seed, force, max_pixels, output, steps)
    solve = functools.partial(deconvolve, psf=blur, boundary=boundary)
    run_command(job, out, "restored", solve, functools.partial(_fitting, blur=blur))


def _fitting(image: Image, blur: str) -> np.ndarray:
    """The pixels of an image, if this blur can be one of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `deconvolve` warns of the same kernel
        as_kernel(blur, image.pixels.shape, (0, 1))
    return image.pixels
