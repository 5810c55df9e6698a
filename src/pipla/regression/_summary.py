"""The table that `summary()` of a sparse regression returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipla._intervals import tails_of
from pipla.regression._answers import Answer
from pipla.report.numbers import aligned, interval, more, paragraph

#: The column of probabilities, for a prior that lets coefficients be 0 and for one that does not.
EFFECT, EXCEEDS = "P(effect)", "P(size > t)"
EFFECT_EXPLAINED = (
    "P(effect): the posterior probability that the size of the coefficient exceeds the threshold, "
    "by default half of the standard error that it would have alone."
)
EXCEEDS_EXPLAINED = (
    "P(size > t): the posterior probability that the size of the coefficient exceeds the threshold "
    "t, by default half of the standard error that it would have alone. No coefficient is 0 under "
    "this prior: one that is 0 up to a standard error has 0.62, and whether there is an effect is "
    "for the interval to say."
)
#: The factors and levels that are named.
MOST_FACTORS, MOST_LEVELS = 5, 3


def summary_of(
    title: str,
    answer: Answer,
    inclusion: np.ndarray,
    names: Sequence[str],
    classes: Sequence[str],
    most: int,
    level: float,
    units: str,
    meaning: str,
) -> str:
    """The table, at 80 columns or so.

    `units` says in which units what was learned is given, `meaning` what coefficients add up to.
    """
    lines = [title, *(paragraph(f"Coefficients: {meaning}.")[1:] if meaning else [])]
    for finding in answer.findings:
        lines += paragraph(f"WARNING: {finding}.")
    percent = f"{100 * level:.4g} % interval"
    learned = answer.learned(level)
    rows = [[name, f"{middle:.4g}", interval(*ends)] for name, (middle, *ends) in learned.items()]
    lines += ["", *aligned(["learned", "median", percent], rows), *paragraph(units)]
    outputs, features = answer.mean.shape
    flat = np.argsort(-inclusion.ravel() - 1e-9 * np.abs(answer.mean.ravel()), kind="stable")
    chosen = [divmod(int(place), features) for place in flat[:most]]
    tails = tails_of(level)
    rows, outside = [], False
    for output in range(outputs):
        where = f" ({classes[output]})" if outputs > 1 else ""
        draws, mean = answer.levels[:, output], answer.level[output]
        rows.append(_row(f"intercept{where}", mean, draws, tails, ""))
    for output, feature in chosen:
        where = f" ({classes[output]})" if outputs > 1 else ""
        draws, mean = answer.draws[:, output, feature], answer.mean[output, feature]
        draws = draws * answer.units[feature]
        low, high = np.quantile(draws, tails)
        outside |= not low <= mean <= high
        probability = f"{inclusion[output, feature]:.2f}"
        rows.append(_row(f"{names[feature]}{where}", mean, draws, tails, probability))
    sparse = "zeros" in answer.theta
    head = ["", "mean", "sd", percent, EFFECT if sparse else EXCEEDS]
    lines += ["", *aligned(head, rows), *more(len(chosen), answer.mean.size)]
    explained = "Coefficients: posterior mean, standard deviation and interval between quantiles, "
    explained += f"most certain first. {EFFECT_EXPLAINED if sparse else EXCEEDS_EXPLAINED}"
    if outside:
        explained += (
            " A mean outside of its interval is that of a coefficient which is 0 with a "
            f"probability of more than {tails[1]:.4g}."
        )
    for reference, *others in answer.factors[:MOST_FACTORS]:
        shown = ", ".join(names[j] for j in others[:MOST_LEVELS])
        shown += f" and {len(others) - MOST_LEVELS} more" if len(others) > MOST_LEVELS else ""
        explained += f" The effects of {shown} are relative to {names[reference]}."
    return "\n".join(lines + paragraph(explained))


def _row(
    name: str, mean: float, draws: np.ndarray, tails: tuple[float, float], probability: str
) -> list[str]:
    ends = interval(*np.quantile(draws, tails))
    return [name, f"{mean:.4g}", f"{draws.std():.3g}", ends, probability]
