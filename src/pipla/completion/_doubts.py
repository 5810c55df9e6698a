"""What speaks against a completion by factors: one sentence each."""

from __future__ import annotations

import numpy as np

from pipla.completion._observations import Observed
from pipla.diagnostics import Finding, still_moving
from pipla.engine.result import Result

#: There is a warning if the columns that are counted as noise add more than this share to it.
MATERIAL = 0.04
#: A drift of the logarithm of a scale below this means nothing to a prediction.
NEGLIGIBLE = 0.05
#: The kurtosis of Gaussian noise is 3, and 4.2 with logistic tails.
LARGEST_KURTOSIS = 5.0
#: Of the variation of all values, and in units of their variance: what a single one may have. The
#: largest of a million entries of rank one is 13 standard deviations away.
LARGEST_SHARE, LARGEST_SQUARE = 0.1, 150.0
#: A row (or column) is called much less noisy than the whole below this share of the noise; there
#: is a warning if more than this share of them is.
QUIET, SHARE_QUIET = 0.2, 0.1
#: A difference between missing and observed entries is mentioned from this many standard errors
#: on, and from this share of the spread of the entries on.
CLEAR, RELEVANT = 6.0, 0.25
#: Up to this many entries, all of them are looked at.
LARGEST_TABLE = 2**25


def moving(result: Result) -> tuple[Finding, ...]:
    """Whether the noise and the size of the matrix have settled.

    Single scales wander: columns of nearly equal scales may turn into each other.
    """
    trace = {name: np.asarray(leaf, np.float64) for name, leaf in result.theta_trace.items()}
    size = 0.5 * np.log(np.sum(np.exp(4 * trace["scale"]), axis=1))
    for name, values in (("noise", trace["noise"]), ("size of the factors", size)):
        if still_moving(values[result.burn_in :], ignore=NEGLIGIBLE):
            sentence = f"the {name} was still moving after burn-in"
            return (Finding(f"the {name}", sentence, "raise num_steps (--steps)"),)
    return ()


def near_the_limit(unsure: int, level: float, whole: float) -> tuple[Finding, ...]:
    """Whether columns that may be noise or not decide the noise."""
    if whole < (1 + MATERIAL) * level:
        return ()
    sentence = (
        f"columns of the factors near the detection limit: {unsure}; they are counted as noise, "
        f"and without them its standard deviation is {level:.3g}, not {whole:.3g}"
    )
    return (Finding("the noise", sentence),)


def other_noise(
    observed: Observed, residual: np.ndarray, noise: float, rank: int
) -> tuple[Finding, ...]:
    r"""Whether the noise is one Gaussian for all entries, as the model has it.

    Two checks of the residuals $z$ of the observations, in units of the noise. The mean square of
    $z$ in every column, and row, with several times as many observations as it has factors: in a
    table whose columns have units of their own, most have next to no residual. And the kurtosis
    $\langle z^4\rangle / \langle z^2\rangle^2$, whose standard error for Gaussian noise is
    $\sqrt{24/N}$; five of them are allowed. An outlier that the factors follow leaves no residual,
    but has much of the variation of the values. A table without noise is not judged: there the
    noise is the smallest that is learned, and all residuals are below it.

    Arguments:
        residual: of each observation, from the posterior mean.
        noise, rank: what was learned.
    """
    z = residual / noise
    if np.mean(z**2) < QUIET**2:
        return ()
    sides = {"columns": (observed.columns, 1), "rows": (observed.rows, 0)}
    for name, (index, axis) in sides.items():
        quiet, judged = _quiet(z, index, observed.shape[axis], rank)
        if judged and quiet > SHARE_QUIET * judged:
            return (
                Finding(
                    name,
                    f"{quiet} of {judged} {name} have residuals below a fifth of the noise, "
                    f"{noise:.3g}; no single noise describes this table, and intervals of single "
                    f"{name} are too wide or too narrow",
                    f"divide {name} that have units of their own by their standard deviations "
                    "first",
                ),
            )
    kurtosis = float(np.mean(z**4) / max(float(np.mean(z**2)) ** 2, np.finfo(float).tiny))
    squares = (observed.values - observed.values.mean()) ** 2
    worst = int(np.argmax(squares))
    share, count = float(squares[worst] / np.sum(squares)), len(z)
    usual = kurtosis <= max(LARGEST_KURTOSIS, 3 + 5 * np.sqrt(24 / count))
    if usual and share <= max(LARGEST_SHARE, LARGEST_SQUARE / count):
        return ()
    place = f"row {observed.rows[worst]}, column {observed.columns[worst]}"
    return (
        Finding(
            place,
            "outliers, or noise that is not Gaussian; the kurtosis of the residuals is "
            f"{kurtosis:.3g} (3 if it is), and {place} (from 0; {observed.values[worst]:.4g}) has "
            f"{100 * share:.2g} % of the variation of all values. Factors follow outliers, which "
            "raises the rank",
            "correct, remove or transform them",
        ),
    )


def selection(observed: Observed, mean: np.ndarray) -> tuple[Finding, ...]:
    r"""Whether entries of the same row and column are missing more often if they are large.

    $m$ is 1 where an entry is missing and $x$ the posterior mean, both minus the means of rows and
    columns: gaps may depend on these. If they depend on nothing else, the coefficient
    $b = \langle m, x\rangle / |m|^2$ of the regression of $x$ on $m$ has mean 0 and standard error
    $\text{rms}(x)/|m|$.
    """
    if observed.shape[0] * observed.shape[1] > LARGEST_TABLE:
        return ()
    gaps, entries = _interaction((~observed.mask()).astype(np.float64)), _interaction(mean)
    size, rms = float(np.linalg.norm(gaps)), float(np.sqrt(np.mean(entries**2)))
    if not size > 1e-6 or not rms > 0:
        return ()
    difference = float(np.sum(gaps * entries)) / size**2
    if abs(difference) * size < CLEAR * rms or abs(difference) < RELEVANT * rms:
        return ()
    sentence = (
        f"missing entries are predicted to be {abs(difference):.3g} "
        f"{'larger' if difference > 0 else 'smaller'} than observed ones, after allowing for their "
        "rows and columns; if entries are missing because of their values, predictions are biased "
        "towards the observed ones and intervals do not hold"
    )
    return (Finding("missing entries", sentence),)


def _interaction(matrix: np.ndarray) -> np.ndarray:
    """What the means of rows and columns leave over."""
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    return centred - centred.mean(axis=0, keepdims=True)


def _quiet(z: np.ndarray, index: np.ndarray, count: int, rank: int) -> tuple[int, int]:
    """How many groups have hardly any residual, of those that can be judged."""
    number = np.bincount(index, minlength=count)
    squares = np.bincount(index, z**2, count) / np.maximum(number, 1)
    judged = number >= 4 * (rank + 1)  # elsewhere the factors may follow every observation
    return int(np.sum(squares[judged] < QUIET**2)), int(np.sum(judged))
