"""Do the data look like the model that was fitted? Findings for what they contradict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from scipy import stats

from pipla._dialects import listed
from pipla.diagnostics import Finding, Severity

#: Draws of the coefficients at which the residuals are looked at.
DRAWS = 20
#: Fewer residuals than this are not judged.
FEWEST = 20
#: The excess kurtosis that is worth a warning: that of Student's t with ten degrees of freedom.
HEAVY = 1.0
#: Residuals of this size, relative to the responses, are rounding.
ROUNDING = 1e-12
#: A bound on the probability of a warning where the noise is normal.
FALSE_ALARMS = 1e-3
#: With fewer observations than this, the noise is uncertain by more than a quarter.
FEW_ROWS = 10
#: Responses with no more values than this may be classes.
FEW_VALUES = 5
#: Counts with a smaller mean are far from normal: their skewness is more than a third.
SMALL_COUNTS = 10.0
#: Features are linearly dependent where an eigenvalue of their correlations is below this: they are
#: known to rounding only, 1e-16, of which there may be some hundred times more.
DEPENDENT = 1e-12
#: Correlations cost rows times features squared; beyond this they are not looked at.
MOST_WORK, MOST_FEATURES = 4e9, 1000
#: A code for missing values is looked for among more different values than labels or grades have:
#: of few, such as 1, 2 and 5, one is often farther away than the others are from each other.
FEWEST_VALUES = 10


def tails_doubt(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> Finding | None:
    r"""A finding if the noise of a linear regression has heavier tails than a normal one.

    If b is one draw from the posterior, (b, y) has the distribution that coefficients and responses
    have under the model, so that the residuals y - Xb of *one draw* are independent and normal
    (Johnson 2007: pivotal quantities). Their kurtosis has a known distribution then (Anscombe and
    Glynn 1983), and gives a p-value. Those of several draws depend on each other; twice their
    median is a valid p-value all the same (Meinshausen, Meier and Bühlmann 2009).

    A weight may count observations or divide the variance: the residuals must have heavy tails
    under either reading.

    Arguments:
        y: the responses.
        predicted: Xb with the intercept, of shape (draws, observations).
        weights: of the observations.
    """
    unit = float(np.max(np.abs(y)))
    residuals = (y - predicted) / (unit if unit > 0 else 1.0)  # fourth powers stay finite
    if len(y) < FEWEST or not np.all(np.std(residuals, axis=1) > ROUNDING):
        return None
    readings = [residuals, residuals * np.sqrt(weights)]
    tests = [stats.kurtosistest(r, axis=1, alternative="greater").pvalue for r in readings]
    excess = min(float(np.mean(stats.kurtosis(r, axis=1))) for r in readings)
    if not (2 * np.median(np.maximum(*tests)) < FALSE_ALARMS and excess > HEAVY):
        return None
    sizes = np.abs(residuals.mean(axis=0))
    largest = np.argsort(-sizes)[:3]
    ratio = float(sizes[largest[0]] / np.std(residuals))
    rows = ", ".join(str(row) for row in largest)
    return Finding(
        "the noise",
        f"the noise has heavier tails than a normal distribution (excess kurtosis {excess:.3g}, "
        f"normal is 0; the largest residual is {ratio:.3g} standard deviations), so that a few "
        "observations may decide the answer, and intervals assume normal noise",
        f"look at observations {rows}, transform y, or give observations far off a small "
        "sample_weight",
    )


def dispersion_doubt(y: np.ndarray, rates: np.ndarray, weights: np.ndarray) -> Finding | None:
    r"""A finding if counts vary by more than a Poisson distribution does.

    Pearson's $\sum_i w_i (y_i - \mu_i)^2 / \mu_i$ is about the number of observations, with the
    variance $\sum_i (2 + 1/(w_i \mu_i))$. Whole weights may count observations or be exposures: the
    larger number is taken. It has to be exceeded by half, and by five standard deviations.
    """
    rates = np.maximum(rates, 1e-300)
    whole = bool(np.all(weights == np.round(weights)))
    count = max(len(y), float(weights.sum()) if whole else 0.0)
    ratio = float(np.sum(weights * (y - rates) ** 2 / rates)) / count
    error = float(np.sqrt(np.sum(2 + 1 / np.maximum(weights * rates, 1e-3)))) / count
    if not ratio > 1 + max(0.5, 5 * error):
        return None
    return Finding(
        "y",
        f"the counts vary {ratio:.3g} times as much as a Poisson distribution does, so that "
        f"intervals are too short by a factor of about {np.sqrt(ratio):.2g}, and too many features "
        "are included",
        f"weights that are {ratio:.3g} times smaller (sample_weight) account for it",
    )


def rows_doubt(rows: int) -> Finding | None:
    """A finding if there are few observations."""
    if rows >= FEW_ROWS:
        return None
    return Finding(
        "observations",
        f"there are only {rows} observations, so that the prior decides coefficients, "
        "probabilities and intervals more than the data do",
    )


def constant_doubt(y: np.ndarray) -> Finding | None:
    """A finding if all responses are equal."""
    if np.ptp(y) > 1e-13 * np.max(np.abs(y)):
        return None
    return Finding("y", f"y is {y[0]:.6g} in all observations: there is nothing to explain")


def index_doubt(features: Any, name: Callable[[int], str]) -> Finding | None:
    """A finding about features that number the rows.

    That is: different integers, none negative and all below twice the number of rows, as an index
    has before and after some rows were left out. Of n integers drawn from so many, all are
    different with a probability of less than e^(-n/4), 1 in 148 at `FEWEST` rows.
    """
    rows = features.shape[0]
    if rows < FEWEST:
        return None
    found = []
    for j, values in enumerate(_columns_of(features)):
        if values.min() < 0 or values.max() >= 2 * rows or values[0] != np.floor(values[0]):
            continue
        if np.all(values == np.floor(values)) and len(np.unique(values)) == rows:
            found.append(name(j))
    if not found:
        return None
    others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Finding(
        found[0],
        f"{found[0]}{others} has another integer in every row, as an index has",
        "leave it out, unless the order of the rows means something",
        Severity.NOTE,
    )


def code_doubt(features: Any, name: Callable[[int], str]) -> Finding | None:
    """A finding about values that may stand for missing ones, such as -999."""
    found = [
        (name(j), value, count)
        for j, values in enumerate(_columns_of(features))
        for value, count in codes_of(values)
    ]
    if not found:
        return None
    said = [f"{count} values of {each} are {value:.15g}" for each, value, count in found]
    return Finding(
        found[0][0],
        f"{listed(said, quoted=False)}, far from all others",
        "if that means missing, leave these cells empty and impute them",
        Severity.NOTE,
    )


def codes_of(values: np.ndarray) -> list[tuple[float, int]]:
    """Values that may stand for missing ones, such as -999, and how often they occur.

    They are the smallest or the largest, occur at least twice, and are farther from the next value
    than all others are from each other. 0 is none: many columns are 0 in most rows.
    """
    known = values[np.isfinite(values)]
    # Sorting is for columns whose ends are repeated.
    if not any(end != 0 and np.sum(known == end) > 1 for end in (known.min(), known.max())):
        return []
    different, counts = np.unique(known, return_counts=True)
    if len(different) <= FEWEST_VALUES:
        return []
    found = []
    for place, others in ((0, different[1:]), (-1, different[:-1])):
        value, count = float(different[place]), int(counts[place])
        distance = np.min(np.abs(others - value))
        if value != 0 and count > 1 and distance > np.ptp(others):
            found.append((value, count))
    return found


def _columns_of(features: Any) -> Iterator[np.ndarray]:
    """The columns of a matrix, each with its zeros; the values of a sparse one come first."""
    rows, size = features.shape
    if isinstance(features, np.ndarray):
        yield from features.T
        return
    columns = features.tocsc()
    for j in range(size):
        values = columns.data[columns.indptr[j] : columns.indptr[j + 1]]
        yield np.append(values, np.zeros(rows - len(values)))


def family_doubt(y: np.ndarray) -> Finding | None:
    """A finding if the responses of a linear regression look like classes or counts."""
    values = np.unique(y)
    if len(y) < FEWEST or len(values) < 2 or not np.all(values == np.floor(values)):
        return None
    if len(values) == 2 or (len(values) <= FEW_VALUES and np.all(np.diff(values) == 1)):
        shown = ", ".join(f"{value:g}" for value in values)
        return Finding(
            "y",
            f"y has only the values {shown}, and intervals of a linear regression assume normal "
            "noise",
            "for classes use SparseLogisticRegression",
        )
    if values[0] == 0 and np.mean(y) < SMALL_COUNTS:
        return Finding(
            "y",
            f"y holds integers from 0 to {values[-1]:g}, and intervals of a linear regression "
            "assume normal noise",
            "for counts use SparsePoissonRegression",
        )
    return None


def dependent_doubt(
    features: Any,
    intercept: bool,
    factors: Sequence[Sequence[int]],
    name: Callable[[int], str],
) -> Finding | None:
    """A finding if features are linearly dependent, with the intercept if there is one.

    Nothing is said of what the sampler knows: levels of a category, and equal features. With as
    many features as observations they depend on each other anyhow.
    """
    rows, size = features.shape
    if rows <= size + 1 or size > MOST_FEATURES or rows * size**2 > MOST_WORK:
        return None
    dense = isinstance(features, np.ndarray)
    top = np.max(np.abs(features), axis=0) if dense else abs(features).max(axis=0).toarray().ravel()
    unit = 1 / np.where(top > 0, top, 1.0)  # squares stay finite
    means = unit * np.asarray(features.mean(axis=0)).ravel() if intercept else np.zeros(size)
    if dense:
        moved = unit * features - means
        gram = moved.T @ moved
    else:
        scaled = features @ scipy.sparse.diags_array(unit)
        gram = (scaled.T @ scaled).toarray() - rows * np.outer(means, means)
    squares = np.diagonal(gram)
    used = squares > 1e-14 * rows * means**2  # as far as constants are rounding
    used[[reference for reference, *_ in factors]] = False
    root = np.sqrt(np.where(used, squares, 1.0))
    gram = gram / np.outer(root, root)
    equal = np.abs(np.triu(gram, 1)) > 1 - DEPENDENT
    used &= ~np.any(equal & used[:, None], axis=0)
    if not np.any(used):
        return None
    kept = np.flatnonzero(used)
    values, vectors = np.linalg.eigh(gram[np.ix_(kept, kept)])
    null = vectors[:, values < DEPENDENT]
    found = [name(j) for j in kept[np.sum(null**2, axis=1) > 1e-6]]
    if not found:
        return None
    shown = ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
    return Finding(
        shown,
        f"{shown} determine each other{' up to a constant' if intercept else ''}; the data do not "
        "tell their effects apart, and the prior does",
        "leave one of them out",
    )
