"""Which image is nearer to the truth, the posterior mean or the MAP; and do right models pass?

Photographs of scikit-image's wheel are made noisy, incomplete or blurred, cropped as by a camera,
and rounded to 8 bits. The table shows the PSNR (dB) of what was given, of the mean and of the MAP;
the largest sure standard deviation of residuals in units of the noise (`pipla.imaging._residuals`),
and whether it was reported. `--wrong` deblurs with kernels that are not the true ones.

    python benchmarks/restored.py [--size 112] [--wrong]
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from photographs import photograph
from scipy.ndimage import convolve

from pipla.imaging import MisfitWarning, Restoration, deconvolve, estimate_noise, psnr, restore
from pipla.operators import Identity, blur

IMAGES = ("camera", "coins", "astronaut", "coffee")
#: Command, blur, noise.
TASKS = (
    ("denoise", "", 5.0),
    ("denoise", "", 20.0),
    ("inpaint", "", 5.0),
    ("inpaint", "", 20.0),
    ("deblur", "gaussian:2", 2.0),
    ("deblur", "gaussian:2", 10.0),
    ("deblur", "box:9", 2.0),
    ("deblur", "gaussian:1", 5.0),
)
#: True kernel, kernel used, noise.
WRONG = (
    ("gaussian:2", "box:8", 1.0),
    ("gaussian:2", "box:8", 5.0),
    ("gaussian:2", "gaussian:3", 2.0),
    ("box:9", "gaussian:4", 2.0),
)


def middle(scene: np.ndarray, size: int) -> np.ndarray:
    rows, columns = ((length - size) // 2 for length in scene.shape)
    return scene[rows : rows + size, columns : columns + size]


def restored(
    command: str, observed: np.ndarray, kernel: str, noise: float
) -> tuple[Restoration, bool]:
    """The restoration, and whether a misfit was reported."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if command == "deblur":
            found = deconvolve(observed, kernel, noise=noise, progress=False)
        else:
            found = restore(observed, Identity(), noise=noise, progress=False)
    return found, any(issubclass(warning.category, MisfitWarning) for warning in caught)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    tasks = [(c, b, b, n) for c, b, n in TASKS]
    if options.wrong:
        tasks = [("deblur", *row) for row in WRONG]
    gains: dict[str, list[float]] = {}
    reported = []
    print(f"{'image':10s} {'task':34s} {'given':>6s} {'mean':>6s} {'MAP':>6s} residual sd")
    for name in IMAGES:
        scene = photograph(name)
        for command, true, used, noise in tasks:
            rng = np.random.default_rng(0)
            seen = convolve(scene, blur.parse(true), mode="reflect") if true else scene
            seen = middle(seen, options.size) + noise * rng.standard_normal((options.size,) * 2)
            observed = np.clip(np.rint(seen), 0, 255)
            if command == "inpaint":
                observed[rng.random(observed.shape) < 0.3] = np.nan
            truth = middle(scene, options.size)
            found, misfit = restored(command, observed, used, estimate_noise(observed))
            filled = np.where(np.isnan(observed), np.nanmean(observed), observed)
            given, mean, best = (psnr(image, truth) for image in (filled, found.mean, found.map))
            gains.setdefault(command, []).append(best - mean)
            reported.append(misfit)
            task = f"{command} {true} {f'as {used} ' if used != true else ''}noise {noise:g}"
            print(
                f"{name:10s} {task:34s} {given:6.2f} {mean:6.2f} {best:6.2f} "
                f"{found.residual_sd:6.3f} {'reported' if misfit else '-'}",
                flush=True,
            )
    for command, each in gains.items():
        better = sum(gain > 0 for gain in each)
        print(
            f"{command}: the MAP is {np.mean(each):+.2f} dB from the mean on average "
            f"({min(each):+.2f} to {max(each):+.2f}), and better on {better} of {len(each)}"
        )
    print(f"misfits reported: {sum(reported)} of {len(reported)}")


if __name__ == "__main__":
    main()
