"""`pipla deblur`: a picture from a file, restored, with its uncertainty, in a folder and a page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipla import _files
from pipla.engine.result import provenance
from pipla.imaging.io import Image, read_image, write_image
from pipla.imaging.restoration import Restoration, estimate_noise, restore
from pipla.operators import blur, convolution
from pipla.operators.blur import Boundary
from pipla.report import Figure, Section, Table, Text, fixed, new_figure, write_page

_PICTURES = ("restored", "map", "uncertainty")
#: Everything that a folder of ours holds.
FILES = {f"{name}.{kind}" for name in _PICTURES for kind in ("png", "npy")} | {
    "result.json",
    "report.html",
}


class Job(NamedTuple):
    """What was asked for, checked."""

    source: Path
    picture: Image
    psf: np.ndarray
    words: str
    boundary: Boundary
    noise: str
    isotropic: bool
    seed: int


def deblur(
    source: Path,
    words: str,
    *,
    boundary: Boundary = "circular",
    noise: str = "auto",
    isotropic: bool = False,
    seed: int = 0,
    out: Path,
    say: Callable[[str], Any] = print,
    progress: bool | None = None,
) -> Restoration:
    """Restore the picture in `source`; write everything to the folder `out`, whole or not at all.

    Arguments:
        source: PNG, TIFF or NPY.
        words: the blur: `box:9`, `gaussian:2` or a file `psf.npy`.
        boundary: what the blur saw beyond the edge.
        noise: its standard deviation as a number, `"auto"` to estimate it, `"learn"` to learn it.
    """
    job = Job(
        source,
        read_image(source),
        blur.parse(words),
        words,
        boundary,
        noise,
        isotropic,
        seed,
    )
    colour = job.picture.pixels.ndim == 3
    operator = convolution(job.psf, job.picture.pixels.shape, boundary, (0, 1))
    level = _noise(job, colour)
    _files.claim(out, FILES, "a folder of pipla deblur")
    size = " × ".join(map(str, job.picture.pixels.shape))
    say(f"{source.name}: {size}, {job.picture.depth}; blur {words}, {boundary}; " + _said(level))
    found = restore(
        operator,
        job.picture.pixels,
        level,
        isotropic=isotropic,
        axes=(0, 1),
        seed=seed,
        progress=progress,
    )
    with _files.whole_folder(out, FILES, "a folder of pipla deblur") as folder:
        _write(folder, job, found)
    say(
        f"Strength {found.strength:.5g} ± {found.strength_stderr:.1g}, noise {found.noise:.4g}, "
        f"{found.evaluations} evaluations in {found.seconds:.1f} s."
    )
    return found


def _noise(job: Job, colour: bool) -> float | None:
    if job.noise == "learn":
        return None
    if job.noise == "auto":
        return estimate_noise(job.picture.pixels, 2 if colour else None)
    try:
        level = float(job.noise)
    except ValueError:
        level = math.nan
    if not (math.isfinite(level) and level > 0):
        raise ValueError(
            f"noise must be 'auto', 'learn' or a positive number on the picture's scale, got "
            f"{job.noise!r}."
        )
    return level


def _said(level: float | None) -> str:
    return "the noise is learned." if level is None else f"noise {level:.4g}."


def _write(folder: Path, job: Job, found: Restoration) -> None:
    picture = job.picture
    images = dict(zip(_PICTURES, (found.mean, found.map, found.std), strict=True))
    for name, pixels in images.items():
        assert pixels is not None
        # Uncertainty is dark where it is small, and white at its largest.
        limits = (0.0, float(pixels.max())) if name == "uncertainty" else picture.limits
        write_image(folder, name, pixels, picture.depth, limits)
    numbers = {
        "strength": found.strength,
        "strength_stderr": found.strength_stderr,
        "noise": found.noise,
        "seconds": found.seconds,
        "evaluations": found.evaluations,
        "num_steps": found.result.num_steps,
        "status": found.result.status.value,
        "blur": job.words,
        "boundary": job.boundary,
        "isotropic": job.isotropic,
        "seed": job.seed,
        "versions": provenance(),
    }
    (folder / "result.json").write_text(json.dumps(numbers, indent=1, allow_nan=False))
    _write_page(folder, job, found)


def _write_page(folder: Path, job: Job, found: Restoration) -> None:
    command = f"pipla deblur {job.source.name} --blur {job.words} --boundary {job.boundary}"
    command += f" --noise {job.noise} --seed {job.seed}" + (" --isotropic" if job.isotropic else "")
    table = Table(
        ("what", "value"),
        [
            ("strength of the prior", fixed(found.strength, 5)),
            ("its Monte-Carlo error", f"{found.strength_stderr:.1g}"),
            ("noise (standard deviation)", fixed(found.noise, 4)),
            ("evaluations of the likelihood", found.evaluations),
            ("seconds, without compiling", fixed(found.seconds, 1)),
        ],
    )
    write_page(
        folder / "report.html",
        f"{job.source.name}, restored",
        "The picture behind a blurred, noisy one, with a total variation prior whose strength was "
        "learned from the picture itself.",
        [
            Section("Pictures", [_strip(job, found)]),
            Section("Uncertainty", [_uncertainty(found)]),
            Section("Numbers", [table, Text(found.result.message)]),
            Section("The strength", [_trace(found)]),
            Section("Reproduce", [Text(command, code=True)]),
        ],
    )


def _strip(job: Job, found: Restoration) -> Figure:
    low, high = job.picture.limits
    figure, axes = new_figure(3, width=11, height=4.2)
    shown = (job.picture.pixels, found.mean, found.map)
    for axis, image, title in zip(axes, shown, ("given", "posterior mean", "MAP"), strict=True):
        _show(axis, np.clip((np.asarray(image) - low) / (high - low), 0, 1), title, vmin=0, vmax=1)
    return Figure(
        figure,
        "What was given, the posterior mean (smallest expected squared error) and the most "
        "probable picture at the learned strength.",
    )


def _uncertainty(found: Restoration) -> Figure:
    figure, axes = new_figure(1, width=6, height=4.5)
    deviation = found.std.mean(axis=2) if found.std.ndim == 3 else found.std
    image = _show(axes[0], deviation, "posterior standard deviation", cmap="magma")
    figure.colorbar(image, ax=axes[0], shrink=0.85)
    return Figure(
        figure,
        "How uncertain each pixel is, on the scale of the picture (mean over channels). Edges "
        "whose place the data do not tell are bright.",
    )


def _trace(found: Restoration) -> Figure:
    trace = found.result.theta_trace["strength"]
    figure, (axis,) = new_figure(1)
    axis.plot(np.arange(1, len(trace) + 1), np.exp(trace))
    axis.axvline(found.result.burn_in, linestyle=":", color="grey")
    axis.set(xscale="log", yscale="log", xlabel="step", ylabel="strength")
    return Figure(
        figure, "The strength of the prior, step by step; averaged after the dotted line."
    )


def _show(axis: Any, image: np.ndarray, title: str, **options: Any) -> Any:
    axis.set_title(title, fontsize=10)
    axis.set_axis_off()
    return axis.imshow(image, **({"cmap": "gray"} | options), interpolation="nearest")
