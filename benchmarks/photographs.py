"""Deblurring of photographs with the default settings: does the image get better?

Images of the wheel of scikit-image (no download) are blurred, then cropped, so that pixels near
the edge saw what is outside; then come noise of standard deviation 2 and rounding to 8 bits. The
table shows the PSNR (dB) of the posterior mean for every boundary; `unknown` is the default,
`circular` was it before.

    python benchmarks/photographs.py [--held-out] [--size 96]
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from scipy.ndimage import convolve

from pipla.imaging import BoundaryWarning, deconvolve, estimate_noise, psnr
from pipla.operators import blur

BLURS = ("gaussian:2", "box:9")
BOUNDARIES = ("circular", "unknown", "reflect", "renormalised")
IMAGES = (
    *("camera", "coffee", "chelsea", "coins", "moon", "brick", "page", "text", "clock", "cell"),
)
#: Looked at once, after everything was decided on the others.
HELD_OUT = (
    *(
        "astronaut",
        "rocket",
        "gravel",
        "immunohistochemistry",
        "retina",
        "hubble_deep_field",
        "grass",
    ),
)


def photograph(name: str) -> np.ndarray:
    """A grey image from 0 to 255."""
    from skimage import color, data

    image = np.asarray(getattr(data, name)())
    return 255 * color.rgb2gray(image[..., :3]) if image.ndim == 3 else image.astype(float)


def observe(
    scene: np.ndarray, psf: np.ndarray, size: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The middle of a scene, and what a camera makes of it: blurred, cropped, noisy, 8 bits."""
    rows, columns = ((length - size) // 2 for length in scene.shape)
    window = (slice(rows, rows + size), slice(columns, columns + size))
    noise = 2 * np.random.default_rng(seed).standard_normal((size, size))
    seen = convolve(scene, psf, mode="reflect")[window] + noise
    return scene[window], np.clip(np.rint(seen), 0, 255)


def row(name: str, kind: str, size: int) -> tuple[dict[str, float], int]:
    """PSNR of the observation and for every boundary, and how many seams were reported."""
    psf = blur.parse(kind)
    truth, observed = observe(photograph(name), psf, size)
    noise = estimate_noise(observed)
    found = {"given": psnr(observed, truth)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", BoundaryWarning)
        for boundary in BOUNDARIES:
            restored = deconvolve(
                observed, psf, noise=noise, boundary=boundary, maximise=False, progress=False
            )
            found[boundary] = psnr(restored.mean, truth)
    return found, sum(issubclass(warning.category, BoundaryWarning) for warning in caught)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--size", type=int, default=96)
    options = parser.parse_args()
    print(
        f"{'image':20s} {'blur':10s} {'given':>6s}",
        *(f"{b[:8]:>8s}" for b in BOUNDARIES),
        "   gain below best  seam",
    )
    gains, behind, began = [], [], time.perf_counter()
    for name in HELD_OUT if options.held_out else IMAGES:
        for kind in BLURS:
            found, seams = row(name, kind, options.size)
            gains.append(found["unknown"] - found["given"])
            behind.append(max(found[b] for b in BOUNDARIES) - found["unknown"])
            values = " ".join(f"{found[b]:8.2f}" for b in BOUNDARIES)
            said = "reported" if seams else "-"
            print(
                f"{name:20s} {kind:10s} {found['given']:6.2f} {values} {gains[-1]:7.2f} "
                f"{behind[-1]:10.2f}  {said}",
                flush=True,
            )
    print(
        f"gain: mean {np.mean(gains):.2f}, smallest {min(gains):.2f} dB; below the best boundary: "
        f"at most {max(behind):.2f} dB; {time.perf_counter() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
