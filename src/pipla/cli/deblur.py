"""`pipla deblur`: undo a known blur of an image file."""

from __future__ import annotations

import functools
from typing import Annotated

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
    run_command,
)
from pipla.imaging import deconvolve
from pipla.imaging.boundaries import Boundary


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
    isotropic: Isotropic = False,
    seed: Seed = 0,
    out: Out = None,
    force: Force = False,
    max_pixels: MaxPixels = MAX_PIXELS,
) -> None:
    """Restore a blurred, noisy image; the regularisation strength is learned."""
    settings = {"blur": blur, "boundary": boundary}
    job = Job("deblur", image, settings, noise, isotropic, seed, force, max_pixels)
    run_command(job, out, "restored", functools.partial(deconvolve, psf=blur, boundary=boundary))
