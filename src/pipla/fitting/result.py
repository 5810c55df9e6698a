"""What `pipla.fit` returns."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from pipla import _trees
from pipla.algorithms.base import Algorithm
from pipla.engine.diagnostics import ConvergenceWarning
from pipla.engine.driver import History
from pipla.engine.result import Status
from pipla.fitting.observer import Observer
from pipla.fitting.summary import summary_of
from pipla.fitting.verdict import Estimate, answer_for_x
from pipla.models.model import Model

#: Half of the width of a 95 % interval, in standard errors.
Z = 1.959964


@dataclasses.dataclass(frozen=True, repr=False)
class Fit:
    """Theta and x with their errors, and whether to believe them.

    Attributes:
        theta: the maximiser of the marginal likelihood, extrapolated to a step size of 0.
        theta_interval: a pair of pytrees, the ends of a 95 % interval: the standard error of the
            maximiser and the Monte-Carlo error together.
        theta_stderr: the standard error of the maximiser, from the observed information; infinite
            in directions that the data do not determine.
        theta_mcse: the Monte-Carlo standard error of `theta`: longer runs make it smaller.
        theta_bias: the bias of the smaller step size, which extrapolation has removed.
        theta_correlation: between the parts of theta, flattened.
        parameters: what theta means, by name: `(estimate, low, high)`.
        x_mean, x_sd: of x given theta and the data.
        x_interval: a pair of pytrees, the 5 % and 95 % quantiles of x; NaN while x has not mixed.
        converged: whether theta and x are as accurate as was asked.
        reasons: what was chosen and why, one sentence each.
        warnings: what speaks against the answer, one sentence each.
        status, message: how the run ended.
        theta_trace: theta at every step, at the step size (`.coarse`) and half of it (`.fine`).
        particles: the last particles.
        num_steps, burn_in, num_particles: steps made, left out of the averages; particles.
        evaluations: of the gradient of the smooth potential, over all particles.
        seconds, compile_seconds: wall time of the steps, and of compiling.
    """

    theta: PyTree
    theta_interval: tuple[PyTree, PyTree]
    theta_stderr: PyTree
    theta_mcse: PyTree
    theta_bias: PyTree
    theta_correlation: np.ndarray
    parameters: dict[str, tuple[float, float, float]]
    x_mean: PyTree
    x_sd: PyTree
    x_interval: tuple[PyTree, PyTree]
    converged: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    status: Status
    message: str
    theta_trace: PyTree
    particles: PyTree
    num_steps: int
    burn_in: int
    num_particles: int
    evaluations: int
    seconds: float
    compile_seconds: float
    algorithm: Algorithm

    def summary(self, most: int = 12) -> str:
        """A table of theta, of the parameters and of `most` elements of x, at 80 columns."""
        return summary_of(self, most)

    def __repr__(self) -> str:
        theta, error = _trees.brief(self.theta), _trees.brief(self.theta_stderr)
        verdict = "converged" if self.converged else "NOT converged"
        return f"Fit(theta={theta} ± {error} after {self.num_steps} steps, {verdict})"


def fit_of(
    model: Model,
    theta: PyTree,
    algorithm: Algorithm,
    history: History,
    status: Status,
    message: str,
    estimate: Estimate,
    observer: Observer,
    names: list[str],
    artefacts: tuple[str, ...],
    reasons: tuple[str, ...],
    num_particles: int,
    converged: bool,
) -> Fit:
    """The answer of a run that has ended; its doubts become warnings."""
    as_theta = functools.partial(_like, theta)
    error = np.sqrt(np.diagonal(estimate.covariance) + estimate.mcse**2)
    low, high = (as_theta(estimate.theta + side * Z * error) for side in (-1, 1))
    x = jax.tree.map(lambda leaf: leaf[0], history.carry.state.particles[1])
    x_mean, x_sd, x_low, x_high = (
        _like(x, values) for values in answer_for_x(observer, estimate.burn_in)
    )
    doubts = _doubts(estimate, names, artefacts, converged, status, message)
    for sentence in doubts:
        warnings.warn(sentence, ConvergenceWarning, stacklevel=3)
    trace = jax.tree.map(lambda *rows: np.concatenate(rows), *history.traces)
    return Fit(
        theta=as_theta(estimate.theta),
        theta_interval=(low, high),
        theta_stderr=as_theta(estimate.stderr),
        theta_mcse=as_theta(estimate.mcse),
        theta_bias=as_theta(estimate.bias),
        theta_correlation=_correlation(estimate.covariance),
        parameters=_parameters(model, as_theta(estimate.theta), low, high),
        x_mean=x_mean,
        x_sd=x_sd,
        x_interval=(x_low, x_high),
        converged=converged,
        reasons=reasons,
        warnings=doubts,
        status=status,
        message=message,
        theta_trace=trace,
        particles=history.carry.state.particles[1],
        num_steps=history.step,
        burn_in=estimate.burn_in,
        num_particles=num_particles,
        # One for the flow and one for theta, at the step and twice at its half.
        evaluations=6 * history.step * num_particles,
        seconds=history.seconds,
        compile_seconds=history.compile_seconds,
        algorithm=algorithm,
    )


def _like(tree: PyTree, values: np.ndarray) -> PyTree:
    """Numbers in a row in the shapes of a tree."""
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([leaf.size for leaf in leaves])
    pieces = np.split(np.asarray(values, np.float64), ends[:-1])
    shaped = [piece.reshape(leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def _correlation(covariance: np.ndarray) -> np.ndarray:
    sd = np.sqrt(np.diagonal(covariance))
    known = np.where(np.isfinite(sd) & (sd > 0), sd, 1.0)
    return np.where(np.isfinite(covariance), covariance, 0.0) / known[:, None] / known


def _parameters(
    model: Model, theta: PyTree, low: PyTree, high: PyTree
) -> dict[str, tuple[float, float, float]]:
    """The named parameters at theta and at both ends of its interval."""

    def at(theta: PyTree) -> dict[str, Any]:
        both = model.nonsmooth.parameters(theta) | model.smooth.parameters(theta)
        return {name: float(value) for name, value in both.items()}

    middle, first, second = at(theta), at(low), at(high)
    return {name: (middle[name], *sorted((first[name], second[name]))) for name in middle}


def _doubts(
    estimate: Estimate,
    names: list[str],
    artefacts: tuple[str, ...],
    converged: bool,
    status: Status,
    message: str,
) -> tuple[str, ...]:
    found = []
    if artefacts:
        found.append(
            f"{', '.join(artefacts)}: decided by the step size, not by the data: half the step "
            "changes it as much as the whole one did. The likelihood has no maximum there (it "
            "rises as a noise level goes to 0, for instance). Fix it at a value that is known or "
            "estimated by other means"
        )
    flat = [name for name, se in zip(names, estimate.stderr, strict=True) if not np.isfinite(se)]
    if flat:
        found.append(
            f"{', '.join(flat)}: the data do not determine it (the observed information is not "
            "positive), so that it has no standard error; fix it, or simplify the model"
        )
    if not converged:
        if status is Status.NONFINITE:
            found.append("theta or a particle became non-finite; start nearer to the answer")
        elif estimate.open_points:
            found.append("not converged: " + "; ".join(estimate.open_points))
        else:
            found.append(f"not converged: {message}")
    return tuple(found)
