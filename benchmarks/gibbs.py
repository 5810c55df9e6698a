r"""An exact Gibbs sampler of the total-variation deblurring posterior: the independent check.

Run as `python benchmarks/gibbs.py [--size 128] [--sweeps 600] [--out FILE.npz]`. With `PIPLA_DATA`
it takes the boat, otherwise scikit-image's camera. NumPy and SciPy, and of pipla only the metrics:
an error of the library cannot hide in it.

The model is $y = Hx + n$, with a 9×9 uniform circular blur $H$ and Gaussian noise of variance
$\sigma^2 = \mathrm{var}(Hx)/1000$, and the prior $t^d \exp(-t \sum_e |(Dx)_e|)$ over the vertical
and horizontal differences inside the image. A Laplace density is a normal one whose variance
$s_e$ is exponential, so two exact conditionals alternate (Park and Casella 2008):

* $1/s_e$ given x is inverse Gaussian with mean $t/|(Dx)_e|$ and shape $t^2$;
* x given s is Gaussian with precision $Q = H^\top H/\sigma^2 + D^\top S^{-1} D$; it is drawn by
  solving $Qx = H^\top(y/\sigma^2 + \xi/\sigma) + D^\top S^{-1/2} \zeta$ (Papandreou and Yuille
  2010) by conjugate gradients. The error that remains has about `--tolerance` times the size of the
  posterior's own spread, both measured by Q.

The maximiser of the marginal likelihood solves $t = d / E_t \mathrm{TV}(x)$. Stochastic
approximation EM gets near it: $m \leftarrow m + \gamma_k (\mathrm{TV}(x) - m)$, $t = d/m$. Then t
is frozen, so that the moments are those of one posterior, and a Newton step on $\log t$ ends it:
the derivative of $\log(d/E_t \mathrm{TV})$ by $\log t$ is $r = t^2 \mathrm{Var}_t(\mathrm{TV})/d$.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.fft

#: Sweeps with gain one, until the chain has forgotten where x started.
FORGET = 20
#: Batches from which the Monte-Carlo error is taken.
BATCHES = 20


class Circular:
    """A convolution that wraps around."""

    def __init__(self, kernel: np.ndarray, shape: tuple[int, int]) -> None:
        self.shape = shape
        spread = np.zeros(shape)
        spread[: kernel.shape[0], : kernel.shape[1]] = kernel
        spread = np.roll(spread, [-(width // 2) for width in kernel.shape], (0, 1))
        self.transfer = scipy.fft.rfft2(spread)
        self.gram = np.abs(self.transfer) ** 2
        rows, columns = (2 - 2 * np.cos(2 * np.pi * np.arange(n) / n) for n in shape)
        self.roughness = rows[:, None] + columns[: shape[1] // 2 + 1]  # of D'D, if it wrapped

    def apply(self, x: np.ndarray) -> np.ndarray:
        return self.filter(self.transfer, x)

    def adjoint(self, x: np.ndarray) -> np.ndarray:
        return self.filter(self.transfer.conj(), x)

    def normal(self, x: np.ndarray) -> np.ndarray:
        return self.filter(self.gram, x)

    def filter(self, factor: np.ndarray, x: np.ndarray) -> np.ndarray:
        return scipy.fft.irfft2(factor * scipy.fft.rfft2(x), self.shape)


class Edges(NamedTuple):
    """A number for each vertical and each horizontal difference."""

    down: np.ndarray
    across: np.ndarray

    @staticmethod
    def of(x: np.ndarray) -> Edges:
        return Edges(x[1:] - x[:-1], x[:, 1:] - x[:, :-1])

    def adjoint(self) -> np.ndarray:
        out = np.zeros((self.across.shape[0], self.down.shape[1]))
        out[1:] += self.down
        out[:-1] -= self.down
        out[:, 1:] += self.across
        out[:, :-1] -= self.across
        return out

    def degree(self) -> np.ndarray:
        """The sum over the edges of each pixel: the diagonal of D'WD."""
        out = np.zeros((self.across.shape[0], self.down.shape[1]))
        out[1:] += self.down
        out[:-1] += self.down
        out[:, 1:] += self.across
        out[:, :-1] += self.across
        return out

    def total(self) -> float:
        return float(np.abs(self.down).sum() + np.abs(self.across).sum())


class Posterior:
    """The model, given t; `solves` and `iterations` count the work of conjugate gradients."""

    def __init__(
        self, operator: Circular, y: np.ndarray, sigma: float, tolerance: float = 1e-4
    ) -> None:
        self.operator, self.y, self.sigma, self.tolerance = operator, y, sigma, tolerance
        self.solves = self.iterations = 0

    def sweep(self, x: np.ndarray, t: float, rng: np.random.Generator) -> np.ndarray:
        """x, after a draw of all variances given x, and of x given all variances."""
        weights = Edges(*(inverse_variances(part, t, rng) for part in Edges.of(x)))
        data = self.y / self.sigma**2 + rng.standard_normal(self.y.shape) / self.sigma
        kicks = Edges(*(np.sqrt(w) * rng.standard_normal(w.shape) for w in weights))
        return self.solve(self.operator.adjoint(data) + kicks.adjoint(), weights, x)

    def solve(self, target: np.ndarray, weights: Edges, x: np.ndarray) -> np.ndarray:
        """The x with Qx = target, by conjugate gradients from x.

        Q is smooth in some directions (the blur) and very uneven in others (the weights), so the
        preconditioner adds up an inverse of each: one in the Fourier basis with the median weight
        everywhere, and one by pixels. On the boat it takes about 190 iterations to an error of
        1e-7 (squared, relative), where Fourier alone takes 250 and pixels alone 600.
        """
        typical = np.median(np.concatenate([part.ravel() for part in weights]))
        operator = self.operator
        smooth = 1 / (operator.gram / self.sigma**2 + typical * operator.roughness)
        uneven = 1 / weights.degree()

        def improve(residual: np.ndarray) -> np.ndarray:
            return uneven * residual + operator.filter(smooth, residual)

        residual = target - self._precision(x, weights)
        direction = improve(residual)
        size = np.vdot(residual, direction)
        x = x.copy()
        while size > self.tolerance**2 * x.size:  # the draw itself has size d
            image = self._precision(direction, weights)
            step = size / np.vdot(direction, image)
            x += step * direction
            residual -= step * image
            improved = improve(residual)
            size, last = np.vdot(residual, improved), size
            direction = improved + (size / last) * direction
            self.iterations += 1
        self.solves += 1
        return x

    def _precision(self, x: np.ndarray, weights: Edges) -> np.ndarray:
        rough = Edges(*(w * u for w, u in zip(weights, Edges.of(x), strict=True)))
        return self.operator.normal(x) / self.sigma**2 + rough.adjoint()


def inverse_variances(u: np.ndarray, t: float, rng: np.random.Generator) -> np.ndarray:
    """Inverse Gaussian with mean t/|u| and shape t² (Michael, Schucany and Haas 1976).

    NumPy's `wald` subtracts nearly equal numbers where u is small; the smaller root is written
    as a quotient here.
    """
    mean = t / np.maximum(np.abs(u), 1e-9)
    half = mean * rng.standard_normal(u.shape) ** 2 / (2 * t**2)
    root = mean / (1 + half + np.sqrt(half * (half + 2)))
    return np.where(rng.uniform(size=u.shape) * (mean + root) <= mean, root, mean * (mean / root))


class Answer(NamedTuple):
    """The maximiser with its Monte-Carlo error, and the posterior at `frozen`, which is near it."""

    t: float
    stderr: float
    frozen: float
    rate: float  # r: the share of the information on t that is missing
    mean: np.ndarray
    sd: np.ndarray
    strengths: np.ndarray  # t during stochastic approximation
    totals: np.ndarray  # TV(x) afterwards


def maximise(
    posterior: Posterior, start: float, warm: int, sweeps: int, rng: np.random.Generator
) -> Answer:
    """Stochastic approximation EM for `warm` sweeps, then `sweeps` at the t that it has found."""
    x, t, strengths, totals = posterior.y.copy(), start, [], []
    level = np.log(x.size / t)
    for k in range(warm):
        x = posterior.sweep(x, t, rng)
        gain = 1.0 if k < FORGET else (k - FORGET + 1) ** -0.7
        # In logarithms, so that the first steps from far away do not overshoot.
        level += gain * (np.log(Edges.of(x).total()) - level)
        t = float(np.exp(np.log(x.size) - level))
        strengths.append(t)
    t = float(np.exp(np.mean(np.log(strengths[warm // 2 :]))))  # Polyak and Juditsky's average
    mean, square = np.zeros_like(x), np.zeros_like(x)
    for _ in range(sweeps):
        x = posterior.sweep(x, t, rng)
        totals.append(Edges.of(x).total())
        mean += x / sweeps
        square += x**2 / sweeps
    trace = np.array(totals)
    rate = t**2 * trace.var() / x.size
    error = batch_error(trace) / trace.mean() / (1 - rate)
    best = t * (x.size / trace.mean() / t) ** (1 / (1 - rate))
    sd = np.sqrt(np.maximum(square - mean**2, 0))
    return Answer(best, best * error, t, rate, mean, sd, np.array(strengths), trace)


def batch_error(trace: np.ndarray) -> float:
    """The standard error of the mean of a correlated series."""
    means = [part.mean() for part in np.array_split(trace, BATCHES)]
    return float(np.std(means, ddof=1) / np.sqrt(BATCHES))


def image(size: int) -> tuple[str, np.ndarray]:
    from pipla_lab.data.images import find_image

    name = "boat" if os.environ.get("PIPLA_DATA") else "camera"
    whole = find_image(name)
    first = [(length - size) // 2 for length in whole.shape]
    return name, whole[first[0] : first[0] + size, first[1] : first[1] + size]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=128, help="of the crop from the middle")
    parser.add_argument("--warm", type=int, default=200, help="sweeps that look for t")
    parser.add_argument("--sweeps", type=int, default=600, help="sweeps at the t found")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="of conjugate gradients")
    parser.add_argument("--starts", type=float, nargs="+", default=[0.005, 0.1], help="of t")
    parser.add_argument("--noise-seed", type=int, default=0)
    parser.add_argument("--out", help="a file .npz for t, stderr, mean, sd, ...")
    options = parser.parse_args(arguments)
    from pipla.imaging.metrics import psnr, ssim

    name, truth = image(options.size)
    operator = Circular(np.full((9, 9), 1 / 81), truth.shape)
    blurred = operator.apply(truth)
    sigma = float(np.sqrt(blurred.var() / 1000))
    rng = np.random.default_rng(options.noise_seed)
    y = blurred + sigma * rng.standard_normal(truth.shape)
    print(
        f"{name}, {options.size}×{options.size}, sigma {sigma:.4f}, blurred {psnr(y, truth):.2f} dB"
    )
    answers = []
    for number, start in enumerate(options.starts):
        posterior = Posterior(operator, y, sigma, options.tolerance)
        began = time.perf_counter()
        rng = np.random.default_rng([1, number])
        answer = maximise(posterior, start, options.warm, options.sweeps, rng)
        answers.append(answer)
        print(
            f"from t = {start:g}: t = {answer.t:.5f} ± {answer.stderr:.5f}, mean "
            f"{psnr(answer.mean, truth):.3f} dB, SSIM {ssim(answer.mean, truth):.4f}; frozen at "
            f"{answer.frozen:.5f}, rate {answer.rate:.3f}, effective sweeps "
            f"{effective(answer.totals):.0f}, {posterior.iterations / posterior.solves:.0f} CG "
            f"iterations a sweep, {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    t = float(np.mean([answer.t for answer in answers]))
    stderr = float(np.sqrt(np.mean([answer.stderr**2 for answer in answers]) / len(answers)))
    mean = np.mean([answer.mean for answer in answers], axis=0)
    second = np.mean([answer.sd**2 + answer.mean**2 for answer in answers], axis=0)
    sd = np.sqrt(np.maximum(second - mean**2, 0))
    print(
        f"together: t = {t:.5f} ± {stderr:.5f} ({100 * stderr / t:.2f} %), posterior mean ", end=""
    )
    print(f"{psnr(mean, truth):.3f} dB, SSIM {ssim(mean, truth):.4f}, mean sd {sd.mean():.3f}")
    if options.out is None:
        return
    np.savez(
        options.out, t=t, stderr=stderr, mean=mean, sd=sd, truth=truth, y=y, sigma=sigma,
        runs_t=[a.t for a in answers], runs_stderr=[a.stderr for a in answers],
        runs_mean=[a.mean for a in answers], runs_totals=[a.totals for a in answers],
        runs_strengths=[a.strengths for a in answers],
    )  # fmt: skip
    print(f"saved: {options.out}")


def effective(trace: np.ndarray) -> float:
    """How many independent draws a series is worth, for its mean."""
    return float(trace.var() / batch_error(trace) ** 2)


if __name__ == "__main__":
    main()
