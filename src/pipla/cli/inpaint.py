"""`pipla inpaint`: fill in the missing pixels of a noisy image file."""

from __future__ import annotations

import functools
from pathlib import Path
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
from pipla.imaging import Image, read_image, restore
from pipla.operators import Identity


def command(
    image: Source,
    mask: Annotated[
        Path | None,
        typer.Option(help="An image of the same size: white where pixels are missing."),
    ] = None,
    noise: Noise = "auto",
    output: WhichOutput = "map",
    steps: Steps = 300,
    isotropic: Isotropic = False,
    seed: Seed = 0,
    out: Out = None,
    force: Force = False,
    max_pixels: MaxPixels = MAX_PIXELS,
) -> None:
    """Fill in missing pixels, and remove noise; the regularisation strength is learned.

    Missing are the white pixels of the mask, and NaN in an NPY or TIFF file.
    """
    settings = {} if mask is None else {"mask": str(mask)}
    job = Job("inpaint", image, settings, noise, isotropic, seed, force, max_pixels, output, steps)
    prepare = functools.partial(without_missing, mask=mask, max_pixels=max_pixels)
    run_command(job, out, "inpainted", functools.partial(restore, operator=Identity()), prepare)


def without_missing(image: Image, mask: Path | None, max_pixels: int) -> np.ndarray:
    """The pixels of an image, NaN where they are missing: where the mask is brighter than grey."""
    pixels = image.pixels.copy()
    if mask is not None:
        given = read_image(mask, max_pixels=max_pixels)
        bright = given.pixels if given.pixels.ndim == 2 else given.pixels.max(axis=2)
        white = bright > 0.5 * (given.limits[0] + given.limits[1])
        if white.shape != pixels.shape[:2]:
            raise ValueError(
                f"mask {str(mask)!r} has {white.shape[0]} × {white.shape[1]} pixels, but the image "
                f"has {pixels.shape[0]} × {pixels.shape[1]}; give a mask of the same size."
            )
        pixels[white] = np.nan
    if np.isnan(pixels).all():
        raise ValueError("mask: every pixel is missing; there is nothing to restore.")
    if not np.isnan(pixels).any():
        raise ValueError(
            "no pixel is missing: the mask has no white pixels, or none was given; "
            "use pipla denoise, or give --mask."
        )
    return pixels
