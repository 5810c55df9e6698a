"""Do the responses look like the model that was fitted? Sentences for what they contradict."""

from __future__ import annotations

import numpy as np
from scipy import stats

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


def tails_doubt(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> str | None:
    r"""A sentence if the noise of a linear regression has heavier tails than a normal one.

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
    return (
        f"the noise has heavier tails than a normal distribution (excess kurtosis {excess:.3g}, "
        f"normal is 0; the largest residual is {ratio:.3g} standard deviations): a few "
        "observations may decide the answer, and intervals assume normal noise; look at "
        f"observations {rows}, transform y, or give observations far off a small sample_weight"
    )


def dispersion_doubt(y: np.ndarray, rates: np.ndarray, weights: np.ndarray) -> str | None:
    r"""A sentence if counts vary by more than a Poisson distribution does.

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
    return (
        f"the counts vary {ratio:.3g} times as much as a Poisson distribution does: intervals are "
        f"too short by a factor of about {np.sqrt(ratio):.2g}, and too many features are included; "
        f"weights that are {ratio:.3g} times smaller (sample_weight) account for it"
    )
