"""`pipla denoise`: remove noise from an image file."""

from __future__ import annotations

import functools

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
from pipla.imaging import restore
from pipla.operators import Identity


def command(
    image: Source,
    noise: Noise = "auto",
    output: WhichOutput = "map",
    steps: Steps = 300,
    isotropic: Isotropic = False,
    seed: Seed = 0,
    out: Out = None,
    force: Force = False,
    max_pixels: MaxPixels = MAX_PIXELS,
) -> None:
    """Remove noise from an image; the regularisation strength is learned."""
    job = Job("denoise", image, {}, noise, isotropic, seed, force, max_pixels, output, steps)
    run_command(job, out, "denoised", functools.partial(restore, operator=Identity()))
