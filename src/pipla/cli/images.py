"""What `pipla deblur`, `denoise` and `inpaint` share: an image file in, a folder out."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer

from pipla import _checks, _files
from pipla.cli._alive import sign_of_life
from pipla.engine.result import provenance
from pipla.imaging import Image, Restoration, estimate_noise, read_image, write_image
from pipla.report import Figure, Section, Table, Text, fixed, new_figure, write_page
from pipla.report.plots import require_matplotlib

_IMAGES = ("restored", "mean", "map", "uncertainty")
#: Everything that the folder holds.
FILES = {f"{name}.{kind}" for name in _IMAGES for kind in ("png", "npy")} | {
    "result.json",
    "report.html",
}
#: The largest image that is read by default. Its running time was not measured.
MAX_PIXELS = 4096 * 4096

Source = Annotated[Path, typer.Argument(help="PNG, JPEG, TIFF or NPY; grey or colour.")]
Noise = Annotated[
    str, typer.Option(help="Standard deviation of the noise; auto estimates, learn learns it.")
]
Output = Literal["mean", "map"]
WhichOutput = Annotated[
    Output, typer.Option(help="The image that is `restored`: posterior mean or most probable.")
]
Steps = Annotated[int, typer.Option(help="Steps of the sampler; more where it had not settled.")]
Isotropic = Annotated[bool, typer.Option("--isotropic", help="Isotropic total variation.")]
Seed = Annotated[int, typer.Option(help="Seed of the random numbers.")]
Out = Annotated[Path | None, typer.Option(help="Folder; by default beside the image.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the folder of an earlier run.")]
MaxPixels = Annotated[int, typer.Option(help="Refuse larger images, before decoding them.")]


class Job(NamedTuple):
    """What the user asked for.

    Attributes:
        command: `"deblur"`, `"denoise"` or `"inpaint"`.
        source: the image file.
        settings: the options of this command alone, by name.
        noise: its standard deviation as text, `"auto"` to estimate it, `"learn"` to learn it.
        isotropic: isotropic total variation.
        seed: the seed of the random numbers.
        force: replace the folder of an earlier run.
        max_pixels: refuse larger images.
        output: which image is `restored`, `"mean"` or `"map"`.
        steps: the number of steps of the sampler.
    """

    command: str
    source: Path
    settings: Mapping[str, str]
    noise: str = "auto"
    isotropic: bool = False
    seed: int = 0
    force: bool = False
    max_pixels: int = MAX_PIXELS
    output: Output = "mean"
    steps: int = 300

    def again(self) -> str:
        """The command that repeats this restoration."""
        words = ["pipla", self.command, self.source.name]
        for name, value in self.settings.items():
            words += [f"--{name}", value]
        words += ["--noise", self.noise, "--seed", str(self.seed)]
        words += ["--output", self.output, "--steps", str(self.steps)]
        return shlex.join(words + ["--isotropic"] * self.isotropic)


def run_command(
    job: Job,
    out: Path | None,
    ending: str,
    solve: Callable[..., Restoration],
    prepare: Callable[[Image], np.ndarray] = lambda image: image.pixels,
) -> None:
    """Restore the image of a job, and say in the terminal what was done.

    Arguments:
        job: what the user asked for.
        out: the folder; by default the name of the image and `ending`, beside the image.
        solve: a function of the observations, `noise` and the options of `restore`.
        prepare: the observations of an image; NaN where they are missing.
    """
    out = out or job.source.parent / f"{job.source.stem}-{ending}"
    try:
        restore_file(job, out, solve, prepare)
    except KeyboardInterrupt:
        print("\nStopped before the end of the burn-in; nothing was written.")
        raise typer.Exit(130) from None
    print(f"The page: {out / 'report.html'}")


def restore_file(
    job: Job,
    out: Path,
    solve: Callable[..., Restoration],
    prepare: Callable[[Image], np.ndarray] = lambda image: image.pixels,
    log: Callable[[str], Any] = print,
) -> Restoration:
    """Restore an image file and write everything to the folder `out`, completely or not at all."""
    require_matplotlib()
    _checks.seed(job.seed)
    _check_noise(job.noise)
    if job.max_pixels < 1:
        raise ValueError(f"max-pixels must be positive, got {job.max_pixels}.")
    _checks.integer("steps", job.steps, least=1)
    image = read_image(job.source, max_pixels=job.max_pixels, missing=job.command == "inpaint")
    observed = prepare(image)
    _check_out(out, job)  # after everything that was typed
    noise = _noise(job.noise, observed)
    kind = f"a folder of pipla {job.command}"
    with _no_new_parents(out), _files.whole_folder(out, FILES, kind) as folder:
        log(
            f"{job.source.name}: {' × '.join(map(str, image.pixels.shape))}, {image.depth}; "
            + "".join(f"{name} {value}; " for name, value in job.settings.items())
            + ("the noise is to be learned." if noise is None else f"noise {noise:.4g}.")
        )
        options = {"isotropic": job.isotropic, "seed": job.seed, "num_steps": job.steps}
        with sign_of_life():
            found = solve(observed, noise=noise, axes=(0, 1), **options)
        if job.noise == "auto":
            found = found._replace(noise_source="estimated")
        _write(folder, job, image._replace(pixels=observed), found)
    log(
        f"Strength {found.strength:.5g} ± {found.strength_mcse:.1g}, noise {found.noise:.4g} "
        f"({found.noise_source}), {found.evaluations} evaluations in {found.seconds:.1f} s."
    )
    log(_verdict(found))
    return found


@contextlib.contextmanager
def _no_new_parents(out: Path) -> Iterator[None]:
    """Remove the parent folders that were created for `out` if the block fails."""
    new = [parent for parent in out.parents if not parent.exists()]
    try:
        yield
    except BaseException:
        for parent in new:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def _check_out(out: Path, job: Job) -> None:
    """Refuse an earlier result before anything is read; `whole_folder` refuses other folders."""
    if job.force or not os.path.lexists(out) or not _files.may_replace(out, FILES):
        return
    if any(out.iterdir()):
        raise FileExistsError(
            f"path {str(out)!r} holds an earlier result; add --force to replace it, or choose "
            "another with --out."
        )


def _check_noise(given: str) -> float | None:
    """The number, or `None` for `"auto"` and `"learn"`."""
    if given in ("auto", "learn"):
        return None
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


def _noise(given: str, observed: np.ndarray) -> float | None:
    """The standard deviation of the noise; `None` if it is to be learned."""
    if given == "auto":
        return estimate_noise(observed, 2 if observed.ndim == 3 else None)
    return _check_noise(given)


def _write(folder: Path, job: Job, image: Image, found: Restoration) -> None:
    if not np.all(np.isfinite(found.std)):
        raise ValueError(
            f"the image has diverged, as it does where the noise ({found.noise:.3g}) is stated far "
            "too small, or the blur is wrong; leave --noise out, or raise it. Nothing was written."
        )
    chosen = found.mean if job.output == "mean" else found.map
    for name, pixels in zip(_IMAGES, (chosen, found.mean, found.map, found.std), strict=True):
        assert pixels is not None
        # Uncertainty is black at 0 and white at its largest value.
        limits = (0.0, float(pixels.max())) if name == "uncertainty" else image.limits
        write_image(folder, name, pixels, image.depth, limits)
    numbers = {
        "strength": found.strength,
        "strength_mcse": found.strength_mcse,
        "noise": found.noise,
        "noise_source": found.noise_source,
        "residual_sd": found.residual_sd,
        "output": job.output,
        "seconds": found.seconds,
        "evaluations": found.evaluations,
        "num_steps": found.result.num_steps,
        "status": found.result.status.value,
        "message": found.result.message,
        "sound": found.sound,
        "command": job.command,
        **job.settings,
        "isotropic": job.isotropic,
        "seed": job.seed,
        "versions": provenance(),
    }
    (folder / "result.json").write_text(json.dumps(numbers, indent=1, allow_nan=False))
    _write_page(folder, job, image, found)


def _write_page(folder: Path, job: Job, image: Image, found: Restoration) -> None:
    table = Table(
        ("what", "value"),
        [
            ("regularisation strength", fixed(found.strength, 5)),
            ("its Monte-Carlo error", f"{found.strength_mcse:.1g}"),
            ("noise (standard deviation)", fixed(found.noise, 4)),
            ("the noise was", found.noise_source),
            ("residuals, in units of the noise (right: 1)", fixed(found.residual_sd, 3)),
            ("evaluations of the likelihood", found.evaluations),
            ("seconds, without compilation", fixed(found.seconds, 1)),
        ],
    )
    write_page(
        folder / "report.html",
        f"{job.source.name}, restored",
        "An image restored with a total variation prior whose strength was learned "
        "from the image itself.",
        [
            *([] if found.sound else [Section("Do not trust it yet", [Text(_verdict(found))])]),
            Section("Images", [_panel(image, found), Text(_which(job))]),
            Section("Uncertainty", [_uncertainty(found)]),
            Section("Numbers", [table, Text(_verdict(found))]),
            Section("The strength", [_trace(found)]),
            Section("Reproduce", [Text(job.again(), code=True)]),
        ],
    )


def _which(job: Job) -> str:
    """Which of the images to use for what."""
    chosen = "posterior mean" if job.output == "mean" else "MAP"
    return (
        f"The file named restored is the {chosen} (--output {job.output}). The MAP has sharp "
        "edges and no grain: use it to look at. The mean has the smallest expected squared error "
        "under the model: use it to measure, together with the uncertainty."
    )


def _verdict(found: Restoration) -> str:
    return ("The run " if found.sound else "Warning: the run ") + found.result.message + "."


def _panel(image: Image, found: Restoration) -> Figure:
    low, high = image.limits
    figure, axes = new_figure(3, width=11, height=4.2)
    shown = (image.pixels, found.mean, found.map)
    for axis, pixels, title in zip(axes, shown, ("given", "posterior mean", "MAP"), strict=True):
        known = np.nan_to_num(np.asarray(pixels), nan=low)  # missing pixels are black
        _show(axis, np.clip((known - low) / (high - low), 0, 1), title, vmin=0, vmax=1)
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
