"""Time and memory of `pipla.imaging.restore` on 512² and 2048² images, each in its own process.

Run as `python benchmarks/large_image.py`. The image is scikit-image's cameraman, enlarged,
with the 9×9 uniform circular blur and the noise of the benchmark protocol (BSNR 30 dB).
"""

from __future__ import annotations

import resource
import subprocess
import sys


def main() -> None:
    if len(sys.argv) > 1:
        _restore(int(sys.argv[1]))
        return
    rows = {}
    for size in (512, 2048):
        printed = subprocess.run(
            [sys.executable, __file__, str(size)], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        rows[size] = list(map(float, printed.split()))
    for size, (step, total, peak, strength) in rows.items():
        print(
            f"{size}²: {total:.1f} s wall time, {1000 * step:.1f} ms per step of the sampler, "
            f"peak memory {peak:.2f} GiB, strength {strength:.4f}"
        )
    step, total = (rows[2048][i] / rows[512][i] for i in (0, 1))
    print(f"16 times the pixels take {total:.1f} times as long; a step {step:.1f} times")


def _restore(size: int) -> None:
    import time

    import jax.numpy as jnp
    import numpy as np
    from skimage.data import camera
    from skimage.transform import resize

    import pipla
    from pipla.operators import blur, convolution

    truth = resize(camera().astype(np.float32), (size, size), order=1)
    operator = convolution(blur.box(9), truth.shape)
    clean = np.asarray(operator.apply(jnp.asarray(truth)))
    noise = float(np.sqrt(clean.var() / 1000))
    observed = clean + noise * np.random.default_rng(0).standard_normal(truth.shape, np.float32)
    began = time.perf_counter()
    found = pipla.imaging.restore(observed, operator, noise=noise, progress=False)
    total = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(found.result.seconds / found.result.num_steps, total, peak, found.strength)


if __name__ == "__main__":
    main()
