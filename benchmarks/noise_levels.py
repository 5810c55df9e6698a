"""Where a noise level can be learned together with the strength of a prior, and where it cannot.

Run with `python benchmarks/noise_levels.py [denoising|completion|deblurring ...]`: three data sets
each. In denoising by total variation in two dimensions and in completion by a nuclear norm the
marginal likelihood rises as the noise goes to 0, and `pipla.fit` must say so. In deblurring the
noise is identifiable, and must be right.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np
import skimage.data
from skimage.transform import resize

import pipla
from pipla.models.likelihoods import Gaussian
from pipla.operators import CircularConvolution, Identity, Mask, blur
from pipla.prox import NuclearStrength, TVStrength

SIDE = 24
#: A name, the true noise, the model and where x starts.
Problem = tuple[str, float, pipla.Model, np.ndarray]
THETA = {"strength": 0.0, "noise": 0.0}


def scenes() -> dict[str, np.ndarray]:
    """Three small pictures."""
    pictures = {
        "camera": skimage.data.camera()[40:280, 160:400],
        "coins": skimage.data.coins()[20:260, 60:300],
        "text": skimage.data.page()[10:130, 100:220],
    }
    return {
        name: 10 * resize(picture / 255.0, (SIDE, SIDE), anti_aliasing=True)
        for name, picture in pictures.items()
    }


def restoration(y: np.ndarray, operator: pipla.operators.Operator) -> pipla.Model:
    """Total variation of learned strength, learned noise."""
    term = TVStrength(degrees=y.size - 1).on(theta="strength")
    return pipla.Model(Gaussian(operator, y, None, theta="noise"), term)


def denoising() -> Iterator[Problem]:
    """Pictures in noise .5."""
    for seed, (name, scene) in enumerate(scenes().items()):
        y = scene + 0.5 * np.random.default_rng(seed).normal(size=scene.shape)
        yield name, 0.5, restoration(y, Identity()), np.zeros_like(y)


def deblurring() -> Iterator[Problem]:
    """Pictures after a box blur, in noise .2."""
    kernel = blur.box(5)
    operator = CircularConvolution(kernel, (SIDE, SIDE))
    for seed, (name, scene) in enumerate(scenes().items()):
        y = np.asarray(operator.apply(scene)) + 0.2 * np.random.default_rng(seed).normal(
            size=scene.shape
        )
        yield name, 0.2, restoration(y, operator), np.zeros_like(y)


def completion() -> Iterator[Problem]:
    """Matrices of low rank, half of the entries in noise .5."""
    for seed, (rows, columns, rank) in enumerate([(20, 15, 2), (16, 24, 3), (25, 25, 1)]):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
        seen = (rng.random(x.shape) < 0.5).astype(float)
        y = seen * (x + 0.5 * rng.normal(size=x.shape))
        term = NuclearStrength(normalised=True).on(theta="strength")
        model = pipla.Model(Gaussian(Mask(seen), y, None, theta="noise"), term)
        yield f"{rows}×{columns} of rank {rank}", 0.5, model, np.zeros_like(y)


def main(kinds: list[str]) -> None:
    """Print a line for each data set."""
    warnings.simplefilter("ignore")
    for kind in kinds:
        for name, truth, model, x in globals()[kind]():
            fit = pipla.fit(model, theta=THETA, x=x, max_steps=4000)
            words = [text for text in map(str, fit.findings) if "noise" in text] or ["no warning"]
            print(
                f"{kind}, {name}: noise {np.exp(fit.theta['noise']):.3f} (true {truth}, off by "
                f"{(fit.theta['noise'] - np.log(truth)) / fit.theta_stderr['noise']:.1f} standard "
                f"errors), strength "
                f"{np.exp(fit.theta['strength']):.3f}, converged: {fit.converged}, "
                f"{fit.num_steps} steps, {fit.seconds:.0f} s; {'; '.join(words)}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:] or ["denoising", "completion", "deblurring"])
