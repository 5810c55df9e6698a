"""`pipla deblur`: restore an image file; write image, uncertainty, numbers and a page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from pipla import _files
from pipla.engine.result import provenance
from pipla.imaging import Image, Restoration, estimate_noise, read_image, restore, write_image
from pipla.operators import blur as kernels
from pipla.operators import convolution
from pipla.operators.blur import Boundary
from pipla.report import Figure, Section, Table, Text, fixed, new_figure, write_page
from pipla.report.plots import require_matplotlib

_IMAGES = ("restored", "map", "uncertainty")
#: Everything that the folder holds.
FILES = {f"{name}.{kind}" for name in _IMAGES for kind in ("png", "npy")} | {
    "result.json",
    "report.html",
}


def command(
    image: Annotated[Path, typer.Argument(help="PNG, TIFF or NPY; grey or colour.")],
    blur: Annotated[str, typer.Option(help="box:9, gaussian:2 or a file psf.npy.")],
    boundary: Annotated[
        Boundary,
        typer.Option(
            help="How the blur continued the image beyond its edge: circular, reflect or "
            "renormalised."
        ),
    ] = "circular",
    noise: Annotated[
        str, typer.Option(help="Standard deviation of the noise; auto estimates, learn learns it.")
    ] = "auto",
    isotropic: Annotated[
        bool, typer.Option("--isotropic", help="Isotropic total variation.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder; by default beside the image.")] = None,
) -> None:
    """Restore a blurred, noisy image; the regularisation strength is learned."""
    out = out or image.parent / f"{image.stem}-restored"
    try:
        deblur_file(Config(image, blur, boundary, noise, isotropic, seed), out)
    except KeyboardInterrupt:
        print("\nStopped before the end of the burn-in; nothing was written.")
        raise typer.Exit(130) from None
    print(f"The page: {out / 'report.html'}")


class Config(NamedTuple):
    """What the user asked for.

    Attributes:
        source: a PNG, TIFF or NPY file.
        blur: the blur kernel: `box:9`, `gaussian:2` or a file `psf.npy`.
        boundary: how the blur continued the image beyond its edge.
        noise: its standard deviation as text, `"auto"` to estimate it, `"learn"` to learn it.
        isotropic: isotropic total variation.
        seed: the seed of the random numbers.
    """

    source: Path
    blur: str
    boundary: Boundary = "circular"
    noise: str = "auto"
    isotropic: bool = False
    seed: int = 0

    def command(self) -> str:
        """The command that repeats this restoration."""
        return (
            f"pipla deblur {self.source.name} --blur {self.blur} --boundary {self.boundary} "
            f"--noise {self.noise} --seed {self.seed}" + (" --isotropic" if self.isotropic else "")
        )


def deblur_file(
    config: Config,
    out: Path,
    log: Callable[[str], Any] = print,
    progress: bool | None = None,
) -> Restoration:
    """Restore an image file and write everything to the folder `out`, completely or not at all."""
    require_matplotlib()
    image = read_image(config.source)
    psf = kernels.parse(config.blur)
    operator = convolution(psf, image.pixels.shape, config.boundary, (0, 1))
    noise = _noise(config.noise, image)
    with _files.whole_folder(out, FILES, "a folder of pipla deblur") as folder:
        log(
            f"{config.source.name}: {' × '.join(map(str, image.pixels.shape))}, {image.depth}; "
            f"blur {config.blur}, {config.boundary}; "
            + ("the noise is learned." if noise is None else f"noise {noise:.4g}.")
        )
        found = restore(
            operator,
            image.pixels,
            noise,
            isotropic=config.isotropic,
            axes=(0, 1),
            seed=config.seed,
            progress=progress,
        )
        _write(folder, config, image, found)
    log(
        f"Strength {found.strength:.5g} ± {found.strength_stderr:.1g}, noise {found.noise:.4g}, "
        f"{found.evaluations} evaluations in {found.seconds:.1f} s."
    )
    return found


def _noise(given: str, image: Image) -> float | None:
    """The standard deviation of the noise; `None` if it is to be learned."""
    if given == "learn":
        return None
    if given == "auto":
        return estimate_noise(image.pixels, 2 if image.pixels.ndim == 3 else None)
    try:
        noise = float(given)
    except ValueError:
        noise = math.nan
    if not (math.isfinite(noise) and noise > 0):
        raise ValueError(
            f"noise must be 'auto', 'learn' or a positive number on the image's scale, got "
            f"{given!r}."
        )
    return noise


def _write(folder: Path, config: Config, image: Image, found: Restoration) -> None:
    for name, pixels in zip(_IMAGES, (found.mean, found.map, found.std), strict=True):
        assert pixels is not None
        # Uncertainty is black at 0 and white at its largest value.
        limits = (0.0, float(pixels.max())) if name == "uncertainty" else image.limits
        write_image(folder, name, pixels, image.depth, limits)
    numbers = {
        "strength": found.strength,
        "strength_stderr": found.strength_stderr,
        "noise": found.noise,
        "seconds": found.seconds,
        "evaluations": found.evaluations,
        "num_steps": found.result.num_steps,
        "status": found.result.status.value,
        "blur": config.blur,
        "boundary": config.boundary,
        "isotropic": config.isotropic,
        "seed": config.seed,
        "versions": provenance(),
    }
    (folder / "result.json").write_text(json.dumps(numbers, indent=1, allow_nan=False))
    _write_page(folder, config, image, found)


def _write_page(folder: Path, config: Config, image: Image, found: Restoration) -> None:
    table = Table(
        ("what", "value"),
        [
            ("regularisation strength", fixed(found.strength, 5)),
            ("its Monte-Carlo error", f"{found.strength_stderr:.1g}"),
            ("noise (standard deviation)", fixed(found.noise, 4)),
            ("evaluations of the likelihood", found.evaluations),
            ("seconds, without compilation", fixed(found.seconds, 1)),
        ],
    )
    write_page(
        folder / "report.html",
        f"{config.source.name}, restored",
        "A blurred, noisy image restored with a total variation prior whose strength was learned "
        "from the image itself.",
        [
            Section("Images", [_panel(image, found)]),
            Section("Uncertainty", [_uncertainty(found)]),
            Section("Numbers", [table, Text(found.result.message)]),
            Section("The strength", [_trace(found)]),
            Section("Reproduce", [Text(config.command(), code=True)]),
        ],
    )


def _panel(image: Image, found: Restoration) -> Figure:
    low, high = image.limits
    figure, axes = new_figure(3, width=11, height=4.2)
    shown = (image.pixels, found.mean, found.map)
    for axis, pixels, title in zip(axes, shown, ("given", "posterior mean", "MAP"), strict=True):
        _show(axis, np.clip((np.asarray(pixels) - low) / (high - low), 0, 1), title, vmin=0, vmax=1)
    return Figure(
        figure,
        "The given image, the posterior mean (smallest expected squared error) and the MAP, the "
        "most probable image at the learned strength.",
    )


def _uncertainty(found: Restoration) -> Figure:
    figure, axes = new_figure(1, width=6, height=4.5)
    std = found.std.mean(axis=2) if found.std.ndim == 3 else found.std
    shown = _show(axes[0], std, "posterior standard deviation", cmap="magma")
    figure.colorbar(shown, ax=axes[0], shrink=0.85)
    return Figure(
        figure,
        "The uncertainty of each pixel, on the scale of the image (mean over channels). Edges "
        "whose position the data do not determine are bright.",
    )


def _trace(found: Restoration) -> Figure:
    trace = found.result.theta_trace["strength"]
    figure, (axis,) = new_figure(1)
    axis.plot(np.arange(1, len(trace) + 1), np.exp(trace))
    axis.axvline(found.result.burn_in, linestyle=":", color="grey")
    axis.set(xscale="log", yscale="log", xlabel="step", ylabel="strength")
    return Figure(
        figure, "The regularisation strength at each step; averaged after the dotted line."
    )


def _show(axis: Any, pixels: np.ndarray, title: str, **options: Any) -> Any:
    axis.set_title(title, fontsize=10)
    axis.set_axis_off()
    return axis.imshow(pixels, **({"cmap": "gray"} | options), interpolation="nearest")
