"""Ratings of films: the error at held-out ratings, and what the intervals hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipla.report import Figure, fixed, new_figure
from pipla_lab.experiments.base import mean_sd
from pipla_lab.experiments.completion import matrices, methods
from pipla_lab.experiments.completion.experiment import (
    CompletionEntry,
    CompletionExperiment,
    CompletionJob,
    CompletionPreset,
    CompletionRow,
)
from pipla_lab.experiments.results import Results


def matrix(preset: CompletionPreset, seed: int) -> matrices.Matrix:
    """The ratings of this split."""
    size = (preset.rows, preset.columns)
    return matrices.ratings(size if all(size) else None, seed)


def reference(job: CompletionJob) -> dict[str, Any]:
    """There is no truth: rows are compared with each other."""
    return {"method": "Rows are compared at the same held-out ratings.", "seconds": 0.0}


def figures(results: Results[CompletionRow]) -> Mapping[str, Figure]:
    """The errors of all methods."""
    errors = {row.algorithm: row.rmse for row in results.rows if row.rmse is not None}
    figure, (axis,) = new_figure(1, height=0.8 + 0.45 * len(errors))
    axis.barh(list(errors), list(errors.values()))
    axis.invert_yaxis()
    axis.set(xlabel="RMSE at held-out ratings", xlim=(0.95 * min(errors.values()), None))
    text = "Root mean square error at held-out ratings, mean over splits."
    return {"errors": Figure(figure, text)}


def _rmse(row: CompletionRow) -> Any:
    values = [value for value in row.each["rmse"] if value is not None]
    spread = max(values) - min(values) if len(values) > 1 else None
    return mean_sd(row.rmse, None if spread is None else spread / 2, 4)


RATINGS = CompletionExperiment(
    name="ratings",
    title="Ratings of films",
    about="MovieLens (latest, small; Harper and Konstan 2015): 100 836 ratings of 9724 films by "
    "610 users, of which a tenth is held out. SoftImpute completes what the biases leave over, "
    "with a penalty chosen at further held-out ratings. Intervals are of a rating, noise included.",
    matrix=matrix,
    ready=lambda: matrices.ratings_path() is not None,
    where=f"The ratings are read from {matrices.RATINGS_FILE} in the folder in PIPLA_DATA.",
    compared_with=reference,
    entries=[
        CompletionEntry(
            *("factors", "none", "recommended", methods.factors),
            steps="factor_steps",
            num_particles=2,
        ),
        CompletionEntry("SoftImpute-CV", "none", "peer", methods.soft_impute_cv),
        CompletionEntry("biased mean", "none", "peer", methods.biased_mean),
    ],
    presets={
        "quick": CompletionPreset(3, 300, 500),
        "paper": CompletionPreset(3, 0, 0, factor_steps=300),
        "tiny": CompletionPreset(1, 20, 20, factor_steps=6),
    },
    columns={
        "algorithm": lambda row: row.algorithm,
        "RMSE": _rmse,
        "90 % intervals hold": lambda row: fixed(row.coverage, 3),
        "their width": lambda row: fixed(row.width, 2),
        "noise": lambda row: fixed(row.noise, 3),
        "rank": lambda row: fixed(row.rank, 1),
        "seconds": lambda row: fixed(row.seconds, 1),
    },
    figures=figures,
)
