"""From data to an answer: the posterior of a regression on the scale of the user's features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipla._intervals import tails_of
from pipla.diagnostics import Finding
from pipla.engine.hooks import Callback
from pipla.engine.result import Status
from pipla.regression._chains import (
    LEVEL_VARIANCE,
    GlmChain,
    LinearChain,
    LinearData,
    MultinomialChain,
    visits_of,
)
from pipla.regression._design import Design, centre_and_scale, design_of, equal_columns
from pipla.regression._learned import CHAINS, Posterior, sample
from pipla.regression._precision import DISAGREE
from pipla.regression._stacking import Labels, Mode, stacked
from pipla.regression._state import Prior


class Answer(NamedTuple):
    """The posterior of coefficients; C outputs (classes, or 1) and p features.

    Attributes:
        mean: posterior means, of shape (C, p).
        slab: posterior probabilities of not being 0, of the same shape.
        draws: of the coefficients of standardised features, of shape (draws, C, p), in float32.
        units: what a draw is multiplied by for the user's features, of shape (p,); 0 for features
            that do not vary.
        level: posterior means of the intercepts, of shape (C,). They belong to `mean`, which is
            more accurate than the mean of the draws: features far from 0 multiply any difference.
        levels: draws of the intercepts, of shape (draws, C).
        threshold: half of the standard error that a coefficient would have alone; (p,).
        noise: sigma; NaN where there is none.
        theta: what was learned, by name: draws, or where a normal distribution stands for it,
            its quantiles. The median is the estimate: it is inside of every interval.
        findings: what speaks against the answer.
        factors: features that are the levels of a category, the reference first.
        fit: the `Posterior` or the `pipla.Fit` that this comes from.
        mode: the second prediction of labels, where there is one.
    """

    mean: np.ndarray
    slab: np.ndarray
    draws: np.ndarray
    units: np.ndarray
    level: np.ndarray
    levels: np.ndarray
    threshold: np.ndarray
    noise: float
    theta: dict[str, np.ndarray]
    findings: tuple[Finding, ...]
    fit: Any
    mode: Mode | None = None
    factors: tuple[tuple[int, ...], ...] = ()

    def learned(self, level: float) -> dict[str, tuple[float, float, float]]:
        """Estimates of what was learned, and the ends of their intervals of this probability."""
        tails = (0.5, *tails_of(level))
        found = {  # without interpolation, because draws may be infinite
            name: np.quantile(draws, tails, method="nearest") for name, draws in self.theta.items()
        }
        return {name: (float(a), float(b), float(c)) for name, (a, b, c) in found.items()}


class Task(NamedTuple):
    """What is to be fitted.

    Attributes:
        features: of shape (observations, p), dense or sparse.
        y: responses: numbers, counts, or labels 0, 1, ...
        weights: of the observations.
        classes: the number of classes; 1 for numbers and counts.
        poisson: counts.
        intercept, standardise: as in the estimators.
        seed: of the random numbers.
        callbacks: as for `pipla.run`.
        start: an earlier answer for a warm start.
        earlier: an earlier answer that is resumed.
        rounds: the rounds, or steps, that are added to it.
        name: of a feature, in a sentence.
    """

    features: Any
    y: np.ndarray
    weights: np.ndarray
    classes: int
    poisson: bool
    intercept: bool
    standardise: bool
    seed: int
    callbacks: Sequence[Callback] = ()
    start: Any = None
    earlier: Any = None
    rounds: int | None = None
    name: Callable[[int], str] = "feature {}".format


def learned_linear(task: Task) -> Answer:
    """Linear regression with a learned prior and noise."""
    design = design_of(task.features, task.weights, task.intercept, task.standardise)
    total = float(task.weights.sum())
    level, scale = centre_and_scale(task.y, task.weights, task.intercept)
    # A constant y has the scale 0, as all coefficients and the noise have then.
    data = LinearData(design, (task.y - level) / (scale or 1), task.weights, task.intercept)
    coefficients, prior = _start(task, (design.size,))
    noise = 0.7 if prior is None else task.start.noise**2
    chains = [
        LinearChain(data, b, noise, seed)
        for b, seed in zip(coefficients, _seeds(task.seed), strict=True)
    ]
    smallest = min(0.1 / total, 0.25 / max(design.size, 1))
    equal = equal_columns(design.columns)
    found = _sampled(task, chains, smallest, data.degrees, prior, equal, scale)
    errors = found.noise / np.sqrt(np.maximum(data.squares, 1e-300))
    # Given the coefficients, the intercept of centred features is normal and independent of them.
    rng = np.random.default_rng([task.seed, 1])
    levels, centre = np.zeros_like(found.levels), np.zeros(1)
    if task.intercept:
        means = _column_means(design, task)
        levels = rng.standard_normal(found.levels.shape) * found.noise / np.sqrt(total)
        levels -= (means @ found.draws.astype(np.float64).T)[:, None]
        centre = -means @ found.mean[:, None]
    answer = _answer(task, design, found, scale, errors, (centre, levels), np.array([level]), 1)
    return answer._replace(noise=answer.learned(0.9)["noise"][0])


def _column_means(design: Design, task: Task) -> np.ndarray:
    """The weighted mean of each column as the sampler has it: 0 where it is centred."""
    if design.is_dense or design.size == 0:
        return np.zeros(design.size)
    owner = np.repeat(np.arange(design.size), np.diff(design.columns.starts))
    weights = task.weights[design.columns.rows] / task.weights.sum()
    return np.bincount(owner, design.columns.values * weights, design.size)


def learned_glm(task: Task) -> Answer:
    """Logistic (two or more classes) or Poisson regression with a learned prior."""
    design = design_of(task.features, task.weights, task.intercept, task.standardise)
    total, rows = float(task.weights.sum()), len(task.y)
    outputs = 1 if task.classes <= 2 else task.classes
    base = np.zeros(outputs)
    if task.classes > 2:
        shares = np.bincount(task.y.astype(int), task.weights, task.classes) / total
        curvature = float(np.mean(shares * (1 - shares)))
        base = np.log(shares) - np.mean(np.log(shares))
    else:
        mean = float(task.weights @ task.y) / total
        curvature = mean if task.poisson else mean * (1 - mean)
        base[0] = np.log(mean) if task.poisson else np.log(mean / (1 - mean))
    if not task.intercept:
        base[:] = 0.0
    shape = (outputs, design.size) if outputs > 1 else (design.size,)
    coefficients, prior = _start(task, shape)
    chains: list[Any] = []
    for b, seed in zip(coefficients, _seeds(task.seed), strict=True):
        if outputs > 1:
            y, weights = task.y.astype(int), task.weights
            chains.append(
                MultinomialChain(design.columns, y, weights, base, task.intercept, b, seed)
            )
        else:
            y, offset = task.y.astype(np.float64), np.full(rows, base[0])
            kind = (task.intercept, task.poisson)
            chains.append(GlmChain(design.columns, y, task.weights, offset, *kind, b, seed))
    # The information about a coefficient of a standardised feature, at no effect at all.
    information = max(curvature * total, 1e-300)
    smallest = min(0.25 / information, 4.0 / max(design.size, 1))
    # Each class has a coefficient for every feature.
    equal = [k * design.size + g for g in equal_columns(design.columns) for k in range(outputs)]
    found = _sampled(task, chains, min(smallest, 1.0), 0.0, prior, equal, 1.0)
    mode = None
    if task.classes == 2 and found.status is not Status.INTERRUPTED:  # nobody waits any longer
        level_variance = LEVEL_VARIANCE if task.intercept else 0.0
        data = Labels(design.columns, task.y, task.weights, float(base[0]), level_variance)
        average = (_prior_of(found), -1.0, visits_of(found.slab))
        try:
            mode = stacked(data, design, found.prior_sd**2, *average)
        except KeyboardInterrupt:
            message = f"interrupted after {found.sweeps} sweeps, before probabilities were stacked"
            found = found._replace(status=Status.INTERRUPTED, message=message)
    errors = np.full(design.size, information**-0.5)
    levels = (found.levels.mean(axis=0), found.levels)
    answer = _answer(task, design, found, 1.0, errors, levels, base, outputs)
    return answer._replace(mode=mode)


def _start(task: Task, shape: tuple[int, ...]) -> tuple[list[np.ndarray], Prior | None]:
    """Where the coefficients of each chain start, and the prior if there is an earlier one."""
    if task.start is not None:
        last = [position["b"] for position in task.start.history.positions]
        if all(b.shape == shape for b in last):
            return last, _prior_of(task.start)
    return [np.zeros(shape)] * CHAINS, None


def _sampled(
    task: Task,
    chains: Sequence[Any],
    smallest: float,
    degrees: float,
    prior: Prior | None,
    equal: Sequence[np.ndarray],
    scale: float,
) -> Posterior:
    more = {"scale": scale, "earlier": task.earlier, "rounds": task.rounds}
    return sample(chains, smallest, degrees, prior, task.callbacks, equal, **more)


def _seeds(seed: int) -> list[np.random.SeedSequence]:
    return np.random.SeedSequence(seed).spawn(CHAINS)


def _prior_of(found: Posterior) -> Prior:
    return Prior(found.variances, found.weights)


def _answer(
    task: Task,
    design: Design,
    found: Posterior,
    scale: float,
    errors: np.ndarray,
    levels: tuple[np.ndarray, np.ndarray],
    base: np.ndarray,
    outputs: int,
) -> Answer:
    """A posterior on the scale of the user's features; `scale` is that of y.

    `levels` are the mean and the draws of the intercepts of standardised features.
    """
    draws = found.draws.reshape(len(found.draws), outputs, design.size)
    mean = found.mean.reshape(outputs, design.size)
    level, moved = levels
    if design.size:
        level = design.level(mean, level)
        moved = design.level(draws.astype(np.float64), moved)
    theta = {"zeros": found.theta[:, 1], "scale": scale * found.theta[:, 2]}
    if np.isfinite(found.noise):
        theta["noise"] = scale * found.theta[:, 0]
    findings = []
    if found.status is Status.INTERRUPTED:
        findings.append(Finding("sweeps", found.message))
    if found.rhat > DISAGREE:
        about = "the noise"
        if found.worst >= 0:
            about = f"the coefficient of {task.name(design.kept[found.worst % design.size])}"
        findings.append(
            Finding(
                about,
                f"the chains disagree, most of all about {about} (R-hat {found.rhat:.2f}, above "
                f"{DISAGREE}). Means and predictions are usually sound. Not accurate are the "
                "probabilities of strongly correlated features, which may replace each other, the "
                "sizes of effects that separate labels, which hardly anything bounds, and what was "
                "learned (theta_ and its intervals)",
            )
        )
    elif found.theta_rhat > DISAGREE:
        findings.append(
            Finding(
                "theta_",
                f"the chains disagree about the weights of the prior (R-hat {found.theta_rhat:.2f},"
                f" above {DISAGREE}), but neither about predictions nor about the largest "
                "coefficients: theta_ and its intervals are not accurate",
            )
        )
    return Answer(
        mean=design.coefficients(mean) * scale,
        slab=spread_out(design, found.slab.reshape(outputs, design.size)),
        draws=spread_out(design, draws),
        units=spread_out(design, scale / design.scales),
        level=level * scale + base,
        levels=moved * scale + base,
        threshold=0.5 * scale * spread_out(design, errors / design.scales),
        noise=float("nan"),
        theta=theta,
        findings=tuple(findings),
        fit=found,
        factors=tuple(tuple(design.kept[list(factor)].tolist()) for factor in found.factors),
    )


def spread_out(design: Design, values: np.ndarray) -> np.ndarray:
    """Numbers of the features that vary, with 0 for the others."""
    found = np.zeros((*values.shape[:-1], design.num_features), values.dtype)
    found[..., design.kept] = values
    return found
