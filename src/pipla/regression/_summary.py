"""The table that `summary()` of a sparse regression returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipla.regression._answers import Answer
from pipla.report.numbers import aligned, interval, more, paragraph

EXPLAINED = (
    "Coefficients: posterior mean, standard deviation and the 5 % and 95 % quantiles, most certain "
    "first. P(effect): the posterior probability that the size of the coefficient exceeds the "
    "threshold, by default half of the standard error that it would have alone."
)


def summary_of(
    title: str,
    answer: Answer,
    inclusion: np.ndarray,
    names: Sequence[str],
    classes: Sequence[str],
    most: int,
) -> str:
    """The table, at 80 columns or so."""
    lines = [title]
    for doubt in answer.doubts:
        lines += paragraph(f"WARNING: {doubt}.")
    rows = [
        [name, f"{value:.4g}", interval(*answer.theta_interval[name])]
        for name, value in answer.theta.items()
    ]
    lines += ["", *aligned(["learned", "estimate", "95 % interval"], rows)]
    outputs, features = answer.mean.shape
    flat = np.argsort(-inclusion.ravel() - 1e-9 * np.abs(answer.mean.ravel()), kind="stable")
    chosen = [divmod(int(place), features) for place in flat[:most]]
    rows = []
    for output in range(outputs):
        where = f" ({classes[output]})" if outputs > 1 else ""
        rows.append(_row(f"intercept{where}", answer.levels[:, output], None))
        rows[-1][1] = f"{answer.level[output]:.4g}"
    for output, feature in chosen:
        where = f" ({classes[output]})" if outputs > 1 else ""
        draws = answer.draws[:, output, feature] * answer.units[feature]
        rows.append(_row(f"{names[feature]}{where}", draws, inclusion[output, feature]))
        rows[-1][1] = f"{answer.mean[output, feature]:.4g}"
    lines += ["", *aligned(["", "mean", "sd", "5 % to 95 %", "P(effect)"], rows)]
    lines += more(len(chosen), answer.mean.size)
    lines += paragraph(EXPLAINED)
    return "\n".join(lines)


def _row(name: str, draws: np.ndarray, probability: float | None) -> list[str]:
    low, high = np.quantile(draws, [0.05, 0.95])
    shown = "" if probability is None else f"{probability:.2f}"
    return [name, f"{draws.mean():.4g}", f"{draws.std():.3g}", interval(low, high), shown]
