r"""Whether what an image leaves unexplained looks like the noise that was stated.

If $x$ is a draw from the posterior and the model is right, $(x, y)$ has the same law as the true
image and its observation, so $(y - Hx)/\sigma$ is white noise of variance 1. Its power in a group
of $n$ frequencies or pixels that was fixed in advance, times $n$, is $\chi^2_n$ (of the mean over
several draws: less spread out). A wrong blur leaves power at frequencies that it does not let
pass, and a wrong noise level at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pipla.diagnostics import Finding

#: How probable it is that a right model is reported.
FALSE_ALARMS = 1e-4
#: A standard deviation that is off by less than this part is not reported, however certain: a
#: photograph is no draw from the prior, and on right models textured regions are off by half of
#: this. `benchmarks/restored.py` decides, with and without `--wrong`.
LEAST = 0.25
#: Groups: frequencies by half octaves, each in four by how well the operator sees them; and
#: regions, eight along each of the first two axes.
PER_OCTAVE, BY_RESPONSE, REGIONS = 2, 4, 8
#: The fewest frequencies or pixels in a group.
FEWEST = 50
#: The median of the absolute value of a standard normal number.
NORMAL_MEDIAN = 0.6745
#: Random images from which the response of the operator is measured.
PROBES = 4


class MisfitWarning(UserWarning):
    """What a restored image leaves unexplained is not the noise that was stated."""


class Residuals(NamedTuple):
    """What the residuals of posterior draws say.

    Attributes:
        sd: their standard deviation, in units of the noise.
        worst: the largest standard deviation in a group that is surely not 1; or `sd`.
        finding: what does not fit; or `None`.
    """

    sd: float
    worst: float
    finding: Finding | None


def examine(likelihood: Any, noise: float, particles: Array) -> Residuals:
    """Compare the residuals of these posterior draws with the noise."""
    operator = likelihood.operator
    observed = np.asarray(likelihood.observations, np.float64)
    seen = np.ones(observed.shape, bool)
    if operator.seen() is not None:
        seen = np.broadcast_to(np.asarray(operator.seen()), observed.shape)
    made = np.stack([np.asarray(operator.apply(x), np.float64) for x in particles])
    scaled = np.where(seen, (observed - made) / noise, 0.0)
    power = np.mean(scaled**2, axis=0)
    transform = np.fft.fftn(scaled, axes=tuple(range(1, scaled.ndim)))
    spectrum = np.mean(np.abs(transform) ** 2, axis=0).ravel() / seen.sum()
    total, count = float(power[seen].mean()), int(seen.sum())
    groups = [("on the whole", total, count)]
    for where, cell in _regions(observed.shape):
        if np.sum(seen[cell]) >= FEWEST:
            groups.append((where, float(power[cell][seen[cell]].mean()), int(np.sum(seen[cell]))))
    for where, chosen in _bands(operator, particles.shape[1:], observed.shape):
        groups.append((where, float(spectrum[chosen].mean()), len(chosen)))
    where, worst = _surest(groups)
    finding = None
    known = operator.multiplier() is not None
    if where:
        what, check = ("the noise", "it") if known else ("the blur or the noise", "both")
        finding = Finding(
            what,
            f"{what} does not fit; {where}, the observations differ from what the restored image "
            f"predicts by {np.sqrt(worst):.3g} times the stated noise, and should by 1",
            f"check {check}, for the image and its uncertainty rest on it",
        )
    elif known and seen.all():
        fine = noise_in_details(observed, noise)
        if fine is not None:
            finding = Finding(
                "the noise",
                f"the noise does not fit: the finest details of the observations are those of "
                f"noise with a standard deviation of {fine:.3g}, and {noise:.3g} is stated; the "
                "restored image keeps what is above it",
            )
    return Residuals(total**0.5, (worst if where else total) ** 0.5, finding)


def noise_in_details(observed: np.ndarray, stated: float) -> float | None:
    """The noise that the finest details show, where it is surely more than the stated one.

    For images that were observed as they are: there, a residual cannot tell, for an image with more
    details explains more noise. A blur lets no details pass, so that noise stays in the residual;
    what a tomograph or a scanner observes has details of its own. White noise is as large in the
    details of blocks of 2 x 2 pixels as in those of 4 x 4; what an image itself has there grows
    with the blocks, and then nothing is said.
    """
    if observed.ndim < 2 or min(observed.shape[:2]) < 8:
        return None
    levels = np.unique(observed)
    # Values on a grid, of a file with 8 bits: their median would be on one, too.
    grid = float(np.diff(levels).min()) if levels.size > 1 else 0.0
    dither = np.random.default_rng(0).uniform(-0.5, 0.5, observed.shape)
    found = observed + grid * dither
    sizes: list[tuple[float, int]] = []
    for _ in range(2):
        rows, columns = (2 * (size // 2) for size in found.shape[:2])
        block = found[:rows, :columns]
        a, b, c, d = block[::2, ::2], block[::2, 1::2], block[1::2, ::2], block[1::2, 1::2]
        # The standard deviation by the median, which edges hardly change (Donoho).
        sizes.append((float(np.median(np.abs(a - b - c + d))) / 2 / NORMAL_MEDIAN, a.size))
        found = (a + b + c + d) / 2
    (fine, count), (coarse, _) = sizes
    # The median's own standard error is 1.17 parts of a root of the count; three of them.
    surely = stated * (1 + LEAST + 3.5 / count**0.5)
    return fine if fine > surely and coarse < (1 + LEAST) * fine else None


def _surest(groups: list[tuple[str, float, int]]) -> tuple[str, float]:
    """The group with the most power beyond chance; the whole also if it has too little.

    Groups with too little are common: pixels that are clipped at black have no noise.
    """
    from scipy.special import chdtr, chdtrc

    level = FALSE_ALARMS / (len(groups) + 1)
    where, worst = "", 1.0
    for name, power, count in groups:
        if power > max(worst, (1 + LEAST) ** 2) and chdtrc(count, count * power) < level:
            where, worst = name, power
    name, power, count = groups[0]
    if not where and power < (1 - LEAST) ** 2 and chdtr(count, count * power) < level:
        where, worst = name, power
    return where, worst


def _regions(shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[slice, ...]]]:
    """Parts of the observations along their first two axes."""
    edges = [np.linspace(0, size, min(REGIONS, size) + 1).astype(int) for size in shape[:2]]
    for place in np.ndindex(*(len(edge) - 1 for edge in edges)):
        ends = [(int(edge[i]), int(edge[i + 1])) for edge, i in zip(edges, place, strict=True)]
        middle = ", ".join(str((low + high) // 2) for low, high in ends)
        yield f"around [{middle}]", tuple(slice(*pair) for pair in ends)


def _bands(
    operator: Any, x_shape: tuple[int, ...], shape: tuple[int, ...]
) -> Iterator[tuple[str, np.ndarray]]:
    """Frequencies of the observations, of similar size and similarly well seen by the operator.

    How well is measured by the power of the observations of random images.
    """
    # Nobody else's seed: of simulated noise that were a probe, the groups would be chosen by it.
    rng = np.random.default_rng(list(b"pipla"))
    response = np.zeros(shape)
    for _ in range(PROBES):
        image = jnp.asarray(rng.standard_normal(x_shape), jnp.result_type(float))
        response += np.abs(np.fft.fftn(np.asarray(operator.apply(image)))) ** 2
    squares = np.zeros((1,) * len(shape))
    for axis, length in enumerate(shape):
        along = np.fft.fftfreq(length).reshape([-1 if k == axis else 1 for k in range(len(shape))])
        squares = squares + along**2
    size = np.sqrt(squares).ravel()
    octave = np.floor(-PER_OCTAVE * np.log2(np.maximum(size, 1 / size.size)))
    for level in np.unique(octave):
        inside = np.flatnonzero(octave == level)
        ordered = inside[np.argsort(response.ravel()[inside])]
        for chosen in np.array_split(ordered, max(1, min(BY_RESPONSE, len(inside) // FEWEST))):
            if len(chosen) >= FEWEST:
                yield f"at periods near {1 / np.median(size[chosen]):.2g} pixels", chosen
