"""Speed of the total variation prox at equal accuracy, beside prox_tv, on one core.

Run by `make bench`. The image is scikit-image's `camera` (512 × 512), as a sampler sees it (0 to
255, noise of standard deviation 5: many times the weights) and as one denoises it (0 to 1, noise
0.1). Every method gets the fewest iterations of its own kind with which no pixel is off by more
than 0.01, and is timed with those. Ours are float32, from a cold start, in chunks of 5 iterations
with the duality gap after each, as always; prox_tv knows float64 only. The answer that errors are
measured against is ours in float64 after thousands of iterations; prox_tv's `dr` confirms it.

prox_tv (https://github.com/albarji/proxTV) is not a dependency. It is built from PyPI, into a
folder for temporary files; that takes a C++ compiler and LAPACK with its headers
(`apt-get install g++ liblapacke-dev`). Without them its lines are left out.

The floor: a dual method that passes over memory once in each iteration reads x, the dual and the
previous dual, and writes the new dual: 7 numbers a pixel, 28 bytes. How long that takes is measured
with a triad (a = b + s c) over arrays that take as much memory as the solver's. Ours passes over
memory once in 5 iterations, so that this is a floor for others; the same count for itself (x, dual
and extrapolated dual in, both duals and u out) is 10 numbers for 5 iterations: 8 bytes each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WEIGHTS = (0.012, 0.05, 0.14, 0.4)
ACCURACY = 1e-2
IMAGES = {"0 to 255, noise 5": (255, 5), "0 to 1, noise 0.1": (1, 0.1)}
CLOUDS = ((1, 512), (2, 512), (10, 512), (2, 2048))
REPEATS = 15
FOLDER = Path(tempfile.gettempdir()) / f"pipla-prox_tv-{sys.version_info[0]}{sys.version_info[1]}"
METHODS = ("pd", "dr")  # its other ones are slower by far


def main() -> None:
    if len(sys.argv) == 1:
        core = str(min(os.sched_getaffinity(0)))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PJRT_NPROC": "1"}
        command = [sys.executable, __file__, core]
        raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)
    build = _build_prox_tv()
    os.sched_setaffinity(0, {int(sys.argv[1])})
    if build is not None:
        print(f"prox_tv is left out: {build}")
    for name, (scale, noise) in IMAGES.items():
        print(f"\n{name}", flush=True)
        _table(_image(scale, noise), build is None)
    _clouds()


def _table(image, compare: bool) -> None:
    import numpy as np

    pixels = image.size
    answers = {weight: _answer(image, weight) for weight in WEIGHTS}
    methods = {"pipla": _ours(image, True), "pipla, native=False": _ours(image, False)}
    if compare:
        methods |= {f"prox_tv {name}": _prox_tv(image, name) for name in METHODS}
        check = methods["prox_tv dr"]
        worst = max(np.max(np.abs(check(w, 200)() - answers[w])) for w in WEIGHTS)
        print(f"  (prox_tv's dr after 200 iterations is {worst:.1e} from our answer)")
    counts = {
        (name, weight): _fewest(method, weight, answers[weight], 5 if "pipla" in name else 1)
        for name, method in methods.items()
        for weight in WEIGHTS
    }
    jobs = {
        (name, weight): methods[name](weight, count)
        for (name, weight), count in counts.items()
        if count is not None
    }
    best = dict.fromkeys(jobs, np.inf)
    triad = np.inf
    for _ in range(REPEATS):  # interleaved, so that a noisy neighbour disturbs all alike
        triad = min(triad, _triad(pixels))
        for key, job in jobs.items():
            began = time.perf_counter()
            job()
            best[key] = min(best[key], time.perf_counter() - began)
    cost = {key: 1e9 * seconds / pixels for key, seconds in best.items()}
    print(f"  ns per pixel (iterations) at max error {ACCURACY}, one core, best of {REPEATS}:")
    print(" " * 28 + "".join(f"{f'weight {weight}':>16s}" for weight in WEIGHTS))
    for name in methods:
        cells = [
            f"{cost[name, w]:9.1f} ({counts[name, w]:4d})" if (name, w) in cost else f"{'-':>16s}"
            for w in WEIGHTS
        ]
        print(f"  {name:26s}" + "".join(f"{cell:>16s}" for cell in cells))
    ours = np.array([cost["pipla", weight] for weight in WEIGHTS])
    per = ours / np.array([counts["pipla", weight] for weight in WEIGHTS])
    floor = 1e9 * triad * 28
    _line("ns per pixel and iteration", per)
    _line(f"times the floor of {floor:.2f} ns", per / floor)
    _line(f"times the floor of {floor * 8 / 28:.2f} ns", per / (floor * 8 / 28))
    jax_form = np.array([cost["pipla, native=False", weight] for weight in WEIGHTS])
    _line("faster than native=False", jax_form / ours)
    if compare:
        theirs = [
            min(cost.get((f"prox_tv {name}", weight), np.inf) for name in METHODS)
            for weight in WEIGHTS
        ]
        _line("faster than prox_tv's best", np.array(theirs) / ours)
    print(f"  triad: {1e-9 / triad:.1f} GB/s over the memory of one solver")


def _line(name, numbers) -> None:
    print(f"  {name:26s}" + "".join(f"{number:>16.2f}" for number in numbers))


def _image(scale: float, noise: float):
    import numpy as np
    from skimage.data import camera

    image = scale * (camera() / 255)
    return image + noise * np.random.default_rng(0).normal(size=image.shape)


def _answer(image, weight):
    import jax
    import numpy as np

    import pipla

    with jax.enable_x64(True):
        term = pipla.prox.TotalVariation(weight, tolerance=1e-15, max_iterations=10_000)
        return np.asarray(term.prox(None, jax.numpy.asarray(image), 0.0, 1.0)[1])


Method = Callable[[float, int], Callable[[], object]]


def _ours(image, native: bool) -> Method:
    import jax.numpy as jnp

    x = jnp.asarray(image, jnp.float32)
    programs = {}

    def method(weight: float, count: int) -> Callable[[], object]:
        if count not in programs:  # the weight is an argument: other weights compile nothing
            programs[count] = _program(count, native)
        program, number = programs[count], jnp.float32(weight)
        program(number, x)
        return lambda: program(number, x).block_until_ready()

    return method


def _program(count: int, native: bool):
    import jax

    import pipla

    def point(weight, x):
        options = {"tolerance": 1e-12, "max_iterations": count, "native": native}
        return pipla.prox.TotalVariation(weight, **options).prox(None, x, 0.0, 1.0)[1]

    return jax.jit(point)


def _clouds() -> None:
    """What a sampler asks for: 5 iterations for each particle of a cloud."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    print("\nns per pixel for 5 iterations of a cloud, weight 0.4:")
    for particles, side in CLOUDS:
        normal = np.random.default_rng(0).normal(size=(particles, side, side))
        cloud = jnp.asarray(5 * normal, jnp.float32)
        jobs = [
            jax.jit(jax.vmap(_program(5, native), in_axes=(None, 0))) for native in (True, False)
        ]
        best = [np.inf, np.inf]
        for _ in range(REPEATS + 1):  # the first one compiles
            for which, job in enumerate(jobs):
                began = time.perf_counter()
                job(jnp.float32(0.4), cloud).block_until_ready()
                best[which] = min(best[which], time.perf_counter() - began)
        ours, other = (1e9 * seconds / cloud.size for seconds in best)
        size = f"{particles:2d} of {side} x {side}"
        print(
            f"  {size:18s} pipla {ours:5.1f}, native=False {other:5.1f}: {other / ours:.1f} times"
        )


def _prox_tv(image, name: str) -> Method:
    import numpy as np

    sys.path.append(str(FOLDER))
    import prox_tv

    x = np.asfortranarray(image, dtype=np.float64)
    return lambda weight, count: (
        lambda: prox_tv.tv1_2d(x, weight, n_threads=1, max_iters=count, method=name)
    )


def _fewest(method: Method, weight: float, answer, step: int) -> int | None:
    """The fewest iterations (of a ladder that becomes coarse) that are accurate enough."""
    import numpy as np

    count = step
    while count <= 1000:
        if np.max(np.abs(np.asarray(method(weight, count)()) - answer)) <= ACCURACY:
            return count
        count += max(step, count // 10 // step * step)
    return None


def _triad(pixels: int) -> float:
    """Seconds per byte of a = b + s c, over as much memory as x, u and three duals take."""
    import numba
    import numpy as np

    global _TRIAD
    if _TRIAD is None:

        @numba.njit(fastmath=True)
        def triad(a, b, c, s):
            for i in range(len(a)):
                a[i] = b[i] + s * c[i]

        arrays = [np.ones(8 * pixels // 3, np.float32) for _ in range(3)]
        triad(*arrays, np.float32(0.5))
        _TRIAD = (triad, arrays)
    triad, arrays = _TRIAD
    began = time.perf_counter()
    for _ in range(10):
        triad(*arrays, np.float32(0.5))
    return (time.perf_counter() - began) / 10 / (3 * arrays[0].nbytes)


_TRIAD = None


def _build_prox_tv() -> str | None:
    """Put prox_tv into `FOLDER`; what went wrong, if anything."""
    if (FOLDER / "prox_tv").exists():
        return None
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(FOLDER)]
    print(f"building prox_tv into {FOLDER} ...", flush=True)
    done = subprocess.run(
        [*command, "--no-deps", "prox_tv", "cffi"], capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else "it could not be built: " + done.stderr[-300:].strip()


if __name__ == "__main__":
    main()
