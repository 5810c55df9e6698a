"""What the sparse regressions have to say: tables, figures and draws of their coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipla._intervals import tails_of
from pipla.regression._answers import Answer
from pipla.regression._learned import CHAINS, Posterior
from pipla.regression._summary import EFFECT, EFFECT_EXPLAINED, EXCEEDS, EXCEEDS_EXPLAINED
from pipla.report.inference_data import Draws
from pipla.report.numbers import interval
from pipla.report.outputs import Listing, Overview
from pipla.report.page import Figure
from pipla.report.plots import new_figure
from pipla.report.predictions import calibration, observed_against, some_rows


def names_of(model: Any, given: Sequence[str] | None) -> list[str]:
    """The names of the features: those given, those of the data, or x0, x1, ..."""
    names = model.__dict__.get("feature_names_in_") if given is None else given
    if names is None:
        return [f"x{j}" for j in range(model.n_features_in_)]
    if len(names) != model.n_features_in_:
        raise ValueError(
            f"feature_names must hold {model.n_features_in_} names, one for each feature, got "
            f"{len(names)}."
        )
    return [str(name) for name in names]


def outputs_of(model: Any) -> list[str]:
    """The names of the outputs: the classes, where there are more than two."""
    several = len(model._answer_.mean) > 1
    return [str(label) for label in model.classes_] if several else [""]


def columns_of(model: Any, given: Sequence[str] | None, level: float) -> dict[str, Any]:
    """A row per number: what was learned (theta), intercepts, coefficients."""
    answer: Answer = model._answer_
    features, outputs = names_of(model, given), outputs_of(model)
    suffixes = [f" ({output})" if output else "" for output in outputs]
    learned = model._learned(level)
    estimates, *ends = np.asarray(list(learned.values())).T
    low, high = np.quantile(answer.levels, tails_of(level), axis=0)
    parts = {
        "theta": (list(learned), estimates, ends),
        "intercept": ([f"intercept{each}" for each in suffixes], answer.level, (low, high)),
        "coefficient": (
            [f"{name}{each}" for each in suffixes for name in features],
            answer.mean.ravel(),
            model._coef_interval(level).reshape(2, -1),
        ),
    }
    counts = [len(names) for names, _, _ in parts.values()]
    sd = np.concatenate([np.full(counts[0], np.nan), answer.levels.std(axis=0), _spread(answer)])
    chance = np.concatenate([np.full(sum(counts[:2]), np.nan), model.inclusion_.ravel()])
    return {
        "name": [name for names, _, _ in parts.values() for name in names],
        "part": np.repeat(list(parts), counts),
        "estimate": np.concatenate([np.asarray(mean, float) for _, mean, _ in parts.values()]),
        "sd": sd,
        "low": np.concatenate([np.asarray(both[0], float) for _, _, both in parts.values()]),
        "high": np.concatenate([np.asarray(both[1], float) for _, _, both in parts.values()]),
        "level": np.full(sum(counts), level),
        "probability": chance,
    }


def _spread(answer: Answer) -> np.ndarray:
    """The posterior standard deviation of each coefficient."""
    total, square = np.zeros(answer.mean.shape), np.zeros(answer.mean.shape)
    for draw in answer.draws.astype(np.float64):
        total += draw
        square += draw**2
    count = len(answer.draws)
    variance = np.maximum(square / count - (total / count) ** 2, 0.0)
    return (np.sqrt(variance) * answer.units).ravel()


def overview_of(model: Any, given: Sequence[str] | None, level: float, units: str) -> Overview:
    """The tables of a page, the most certain effects first; `units` explains what was learned."""
    columns = columns_of(model, given, level)
    kind = np.asarray(columns["part"])
    ends = [interval(low, high) for low, high in zip(columns["low"], columns["high"], strict=True)]
    learned, rest = np.flatnonzero(kind == "theta"), np.flatnonzero(kind == "intercept")
    places = np.flatnonzero(kind == "coefficient")
    places = places[order_of(model)]
    about = f"{100 * level:g} % interval"

    def row(i: int) -> list[str]:
        chance = columns["probability"][i]
        shown = "" if np.isnan(chance) else f"{chance:.2f}"
        numbers = (columns["estimate"][i], columns["sd"][i])
        return [columns["name"][i], f"{numbers[0]:.4g}", f"{numbers[1]:.3g}", ends[i], shown]

    theta = [[columns["name"][i], f"{columns['estimate'][i]:.4g}", ends[i]] for i in learned]
    sparse = "zeros" in model._answer_.theta
    head = ["", "mean", "sd", about, EFFECT if sparse else EXCEEDS]
    explained = EFFECT_EXPLAINED if sparse else EXCEEDS_EXPLAINED
    return Overview(
        f"{type(model).__name__}, prior {model.prior}",
        f"{model.n_features_in_} features, {len(model._answer_.draws)} draws of the posterior; the "
        "prior was learned from the data.",
        tuple(model.findings_),
        [
            Listing(heading_of(model), head, [row(i) for i in (*rest, *places)]),
            Listing("What was learned", ["learned", "median", about], theta, whole=True),
        ],
        f"Coefficients: posterior mean, standard deviation and interval. {explained} {units}",
    )


def heading_of(model: Any) -> str:
    """The heading of coefficients, which says for which class log-odds are."""
    return ": ".join(filter(None, ("Coefficients", model._meaning())))


def order_of(model: Any) -> np.ndarray:
    """The places of the coefficients, the most certain effects first, then by their size."""
    answer: Answer = model._answer_
    sizes = np.abs(answer.mean) * np.where(model._spread_ > 0, model._spread_, 0.0)
    largest = max(float(sizes.max(initial=0.0)), 1e-300)
    return np.argsort(-model.inclusion_.ravel() - 1e-6 * sizes.ravel() / largest, kind="stable")


# Draws. #


def draws_of(model: Any, given: Sequence[str] | None) -> Mapping[str, Draws]:
    """Coefficients and intercepts by chain; what was learned in a group of its own."""
    answer: Answer = model._answer_
    chains = CHAINS if isinstance(answer.fit, Posterior) else 1
    features, outputs = names_of(model, given), outputs_of(model)
    coefficients = (answer.draws * answer.units).reshape(chains, -1, *answer.mean.shape)
    levels = answer.levels.reshape(chains, -1, len(outputs))
    axes = ["class"] if len(outputs) > 1 else []
    if not axes:
        coefficients, levels = coefficients[:, :, 0], levels[:, :, 0]
    coords = {"feature": features} | ({"class": outputs} if axes else {})
    dims = {"coef": [*axes, "feature"]} | ({"intercept": axes} if axes else {})
    groups = {"posterior": Draws({"coef": coefficients, "intercept": levels}, dims, coords)}
    if isinstance(answer.fit, Posterior):
        traces = {name: draws.reshape(chains, -1) for name, draws in answer.theta.items()}
        groups["theta"] = Draws(traces)
    return groups


# Figures. #


def figures_of(
    model: Any, given: Sequence[str] | None, level: float, most: int, observed: tuple[Any, Any]
) -> list[Figure]:
    """The coefficients, the learned prior, and predictions beside observations."""
    found = [_coefficients(model, names_of(model, given), level, most)]
    if isinstance(model._answer_.fit, Posterior):
        found.append(_prior(model._answer_.fit))
    if observed[0] is not None:
        found.append(_calibration(model, *observed))
    return found


def _coefficients(model: Any, features: list[str], level: float, most: int) -> Figure:
    answer: Answer = model._answer_
    outputs = outputs_of(model)
    names = [f"{name} {output}".strip() for output in outputs for name in features]
    spread = np.tile(model._spread_, len(outputs))
    order = order_of(model)[:most][::-1]
    low, high = (ends.ravel()[order] * spread[order] for ends in model._coef_interval(level))
    figure, (axis,) = new_figure(1, width=7, height=1.2 + 0.22 * len(order))
    places = np.arange(len(order))
    axis.hlines(places, low, high, color="0.6")
    middle, chances = answer.mean.ravel()[order] * spread[order], model.inclusion_.ravel()[order]
    shown = axis.scatter(middle, places, c=chances, cmap="viridis_r", vmin=0, vmax=1)
    figure.colorbar(shown, ax=axis, label="probability of an effect")
    axis.axvline(0, color="0.8", linewidth=1)
    axis.set_yticks(places, [names[j][:40] for j in order], fontsize=8)
    axis.set_xlabel("effect of one standard deviation of the feature")
    text = (
        f"Posterior means and {100 * level:g} % intervals of the {len(order)} most certain "
        f"coefficients of {len(names)}. The colour is the probability that there is an effect."
    )
    return Figure(figure, text)


def _prior(found: Posterior) -> Figure:
    figure, (axis,) = new_figure(1, width=6, height=3)
    labels = ["0", *(f"{np.sqrt(v):.2g}" for v in found.variances[1:])]
    axis.bar(np.arange(len(labels)), found.weights)
    axis.set_xticks(np.arange(len(labels)), labels, fontsize=8)
    axis.set(xlabel="standard deviation of the component", ylabel="weight", yscale="log")
    axis.set_ylim(bottom=1e-5)
    text = (
        "The learned prior of the coefficients of standardised features (and of a standardised "
        "response): a point mass at 0 and normals."
    )
    return Figure(figure, text)


def _calibration(model: Any, features: Any, target: Any) -> Figure:
    """At most `MOST_DRAWN` of the rows."""
    target = np.asarray(target)
    chosen = some_rows(len(target))
    rows = features.iloc[chosen] if hasattr(features, "iloc") else features[chosen]
    target = target[chosen]
    if hasattr(model, "classes_"):
        last = model.classes_[-1]
        return calibration(model.predict_proba(rows)[:, -1], target == last, str(last))
    return observed_against(model.predict(rows), target)
