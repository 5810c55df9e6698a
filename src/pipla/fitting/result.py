"""What `pipla.fit` returns."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from pipla import _checks, _trees
from pipla._extras import extra
from pipla._intervals import LEVEL, normal_width
from pipla.algorithms.base import Algorithm, Both, given
from pipla.diagnostics import Finding, monte_carlo_error, warn_of
from pipla.engine import storage
from pipla.engine.compiled import History
from pipla.engine.doubts import rounded
from pipla.engine.hooks import Callback
from pipla.engine.result import Status, provenance
from pipla.engine.run import joined
from pipla.fitting.doubts import findings_of, kinked, uneven
from pipla.fitting.observer import Observer
from pipla.fitting.record import Record, Standing
from pipla.fitting.summary import columns_of, summary_of
from pipla.fitting.verdict import Estimate, answer_for_x
from pipla.models.model import Model
from pipla.report.inference_data import inference_data, variables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Intervals(NamedTuple):
    """Intervals of one level: pairs of pytrees for theta and x; estimates with ends by name."""

    theta: tuple[PyTree, PyTree]
    x: tuple[PyTree, PyTree]
    parameters: dict[str, tuple[float, float, float]]


@dataclasses.dataclass(frozen=True, repr=False)
class Fit:
    """Theta and x with their errors, and whether to believe them.

    Theta, `x_mean` and particles of modules are modules again. Errors, intervals and traces have
    `None` in the places of leaves that are not arrays of floats.

    Attributes:
        theta: the maximiser of the marginal likelihood, extrapolated to a step size of 0.
        theta_interval: a pair of pytrees, the ends of a 90 % interval: the standard error of the
            maximiser and the Monte-Carlo error together. `intervals` has other levels.
        theta_stderr: the standard error of the maximiser, from the observed information; infinite
            in directions that the data do not determine, or where it could not be measured.
        theta_mcse: the Monte-Carlo standard error of `theta`: longer runs make it smaller.
        theta_bias: the bias of the smaller step size, which extrapolation has removed; see
            `theta_bias_error`.
        theta_correlation: between the parts of theta, flattened.
        parameters: what theta means, by name: `(estimate, low, high)`, a 90 % interval.
        x_mean, x_sd: of x given theta and the data.
        x_interval: a pair of pytrees, the ends of a 90 % interval of x, its 5 % and 95 %
            quantiles; NaN while x has not mixed.
        converged: whether theta and x are as accurate as was asked.
        reasons: what was chosen and why, one sentence each.
        findings: what speaks against the answer.
        status, message: how the run ended.
        theta_trace: theta at every step, at the step size (`.coarse`) and half of it (`.fine`).
        particles: the last particles.
        num_steps, burn_in, num_particles: steps made, left out of the averages; particles.
        evaluations: of the gradient of the smooth potential, over all particles.
        seconds, compile_seconds: wall time of the steps, and of compiling.
        step_size: the larger one, in units of the prior's own time.
        order: that of the bias in the step size, by which it was extrapolated.
        algorithm: with all its numbers.
        record: what was seen of x during the run.
        standing: everything that `resume` needs.
        versions: of pipla, jax and Python; and the device.
        modules: after loading, the names of what a file could not hold of theta and particles:
            modules come back as dicts.
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
    findings: tuple[Finding, ...]
    status: Status
    message: str
    theta_trace: Both
    particles: PyTree
    num_steps: int
    burn_in: int
    num_particles: int
    evaluations: int
    seconds: float
    compile_seconds: float
    step_size: float
    order: float
    algorithm: Algorithm | None
    record: Record
    standing: Standing
    versions: dict[str, str]
    modules: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def theta_bias_error(self) -> PyTree:
        """How far off `theta_bias` may be: its Monte-Carlo error, and its own size.

        Its own size, because its order in the step is not known: if that is 1 or more, the bias is
        0 to 1.8 times what was removed, and `theta` is off by no more than that.
        """

        def error(coarse: np.ndarray, fine: np.ndarray, bias: np.ndarray) -> np.ndarray:
            apart = (np.asarray(coarse, np.float64) - fine)[self.burn_in :] / (2**self.order - 1)
            noise = monte_carlo_error(apart.reshape(len(apart), -1))
            return np.hypot(noise.reshape(np.shape(bias)), bias)

        return jax.tree.map(error, *self.theta_trace, self.theta_bias)

    @property
    def x_samples(self) -> PyTree:
        """Particles that were kept after burn-in, from time to time; axes: draws, particles, x."""
        return _like(self.x_sd, self.record.fine_samples(self.burn_in))

    def intervals(self, level: float = LEVEL) -> Intervals:
        """The intervals of theta, of x and of the parameters that have this probability."""
        width = normal_width(level)
        if level == LEVEL:
            return Intervals(self.theta_interval, self.x_interval, self.parameters)
        numbers = iter(leaf for leaf in jax.tree.leaves(self.theta) if _is_learned(leaf))
        middle = jax.tree.map(lambda _: next(numbers), self.theta_stderr)
        half = jax.tree.map(
            lambda error, noise: width * np.hypot(error, noise), self.theta_stderr, self.theta_mcse
        )
        theta = jax.tree.map(np.subtract, middle, half), jax.tree.map(np.add, middle, half)
        mixed = not any(np.any(np.isnan(leaf)) for leaf in jax.tree.leaves(self.x_interval))
        answer = answer_for_x(self.record.observer(), self.burn_in, self.order, mixed, level)
        x = _like(self.x_sd, answer.low), _like(self.x_sd, answer.high)
        ratio = width / normal_width(LEVEL)
        named = {name: stretched(*ends, ratio) for name, ends in self.parameters.items()}
        return Intervals(theta, x, named)

    def summary(self, level: float = LEVEL, *, most: int = 12) -> str:
        """A table of theta, of the parameters and of `most` numbers of x, at 80 columns.

        Intervals have the probability `level`.
        """
        return summary_of(self, _checks.integer("most", most, least=1), _checks.level(level))

    def to_pandas(self, level: float = LEVEL) -> Any:
        """A `pandas.DataFrame` with one row per number of theta, of the parameters and of x.

        Its columns: `part` (theta, parameter or x), `estimate`, `std_error` (theta), `sd` (x),
        `low` and `high`, the ends of an interval of probability `level`, `mcse` and `bias` (theta).
        """
        with extra("pandas", "to_pandas"):
            import pandas
        return pandas.DataFrame(columns_of(self, _checks.level(level))).set_index("name")

    def plot(self, most: int = 5, level: float = LEVEL) -> Figure:
        """A matplotlib figure: how `most` numbers of theta were found, and marginals of x.

        For each number its traces at both step sizes, with burn-in and interval; the
        autocorrelation of the trace; the estimates at both step sizes and at 0, with Monte-Carlo
        errors, in a band of a tenth of the standard error. `figure.savefig("fit.png")` writes it.
        """
        from pipla.fitting.plots import figure_of  # which needs to know what a fit is

        return figure_of(self, _checks.integer("most", most, least=1), _checks.level(level))

    def report(self, path: str | Path, level: float = LEVEL) -> Path:
        """Write one self-contained HTML page: warnings, what to conclude, tables, the figure.

        Returns:
            The path of the file, whose folder is made where it is missing.
        """
        from pipla.fitting.page import write_report

        return write_report(self, path, _checks.level(level))

    def to_arviz(self) -> Any:
        """The draws for ArviZ: a `DataTree`, or an `InferenceData` for ArviZ before 1.

        The group `posterior` holds x, with particles as chains. Theta is no draw of a posterior and
        has other steps: the group `theta` holds its trace after burn-in, at the smaller step size
        and as one chain (`az.plot_trace(data, group="theta")`).
        """
        samples = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), self.x_samples)
        trace = jax.tree.map(lambda leaf: leaf[self.burn_in :][None], self.theta_trace.fine)
        groups = {"posterior": variables("x", samples), "theta": variables("theta", trace)}
        return inference_data(groups)

    def save(self, path: str | Path) -> Path:
        """Write the fit to a folder of its own, in one step; `pipla.load` reads it."""
        return storage.save(self, path)

    def resume(
        self,
        model: Model,
        *,
        theta: PyTree = None,
        particles: PyTree = None,
        max_steps: int = 20_000,
        tolerance: PyTree = None,
        max_seconds: float | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Fit:
        """Resume the fit, also one that has converged, for example with a smaller tolerance.

        It goes on as if it had never stopped: bit for bit, if it stopped after a multiple of ten
        steps.

        Arguments:
            model: the model that was fitted.
            theta, particles: only needed when they were modules, or held functions, and the fit
                comes from a file, which holds no code: those of the original fit, of which only
                the structure and the leaves that are not learned are used.
            max_steps, max_seconds: the most further steps, and seconds of steps.
            tolerance: as in `pipla.fit`; by default that of the original fit.
            callbacks, progress: as in `pipla.run`.
        """
        from pipla.fitting.fitter import resume  # which needs to know what a fit is

        resumed = resume(
            self,
            model,
            theta=theta,
            particles=particles,
            max_steps=max_steps,
            tolerance=tolerance,
            max_seconds=max_seconds,
            callbacks=callbacks,
            progress=progress,
        )
        warn_of(resumed.findings)
        return resumed

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
    standing: Standing,
) -> Fit:
    """The answer of a run that has ended."""
    as_theta, fixed = functools.partial(_like, theta), model.fixed
    error = np.sqrt(np.diagonal(estimate.covariance) + estimate.error**2)
    low, high = (as_theta(estimate.theta + side * normal_width(LEVEL) * error) for side in (-1, 1))
    particles = history.carry.state.particles[1]
    x = jax.tree.map(lambda leaf: leaf[0], particles)
    x_mean, x_sd, x_low, x_high = (
        _like(x, values)
        for values in answer_for_x(observer, estimate.burn_in, estimate.order, estimate.mixed)
    )
    rounding = rounded(model, particles, jax.tree.map(np.square, x_sd))
    converged = converged and rounding is None
    step_size = float(given("step_size", algorithm.numbers()["step_size"]))
    cause, last = None, history.carry.state.theta[1]
    if not converged and status is not Status.NONFINITE:
        cause = kinked(model, last, particles)
    if cause is None and (artefacts or not np.all(np.isfinite(estimate.stderr))):
        cause = uneven(model, last, x, x_sd, step_size)
    found = findings_of(estimate, names, artefacts, converged, status, message, cause)
    found = found if rounding is None else (rounding, *found)
    trace: Both = joined(history.traces, history.carry.state.theta)
    return Fit(
        theta=fixed.complete_theta(as_theta(estimate.theta)),
        theta_interval=(low, high),
        theta_stderr=as_theta(estimate.stderr),
        theta_mcse=as_theta(estimate.error),
        theta_bias=as_theta(estimate.bias),
        theta_correlation=_correlation(estimate.covariance),
        parameters=_parameters(model, as_theta(estimate.theta), low, high),
        x_mean=fixed.complete_x(x_mean),
        x_sd=x_sd,
        x_interval=(x_low, x_high),
        converged=converged,
        reasons=reasons,
        findings=found,
        status=status,
        message=message,
        theta_trace=trace,
        particles=fixed.complete_x(particles),
        num_steps=history.step,
        burn_in=estimate.burn_in,
        num_particles=num_particles,
        # One for the flow and one for theta, at the step and twice at its half.
        evaluations=6 * history.step * num_particles,
        seconds=history.seconds,
        compile_seconds=history.compile_seconds,
        step_size=step_size,
        order=estimate.order,
        algorithm=algorithm,
        record=Record.of(observer),
        standing=standing,
        versions=provenance(),
    )


def _is_learned(leaf: Any) -> bool:
    """Whether a leaf of a complete theta is one of those with errors."""
    return getattr(getattr(leaf, "dtype", None), "kind", "") == "f"


def stretched(value: float, low: float, high: float, ratio: float) -> tuple[float, float, float]:
    """A parameter with its ends where theta's interval is this many times as wide.

    Exact for what is linear in theta (a location) or the exponential of something linear (a scale,
    a strength, a noise); elsewhere a parabola through the three values.
    """
    if value > 0 and low > 0 and np.isclose(low * high, value**2, rtol=1e-3):
        return value, value * (low / value) ** ratio, value * (high / value) ** ratio
    slope, bend = (high - low) / 2, (high + low) / 2 - value
    ends = (value - ratio * slope + ratio**2 * bend, value + ratio * slope + ratio**2 * bend)
    return value, *ends


def _like(tree: PyTree, values: np.ndarray) -> PyTree:
    """Numbers in a row in the shapes of a tree; leading axes stay."""
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([leaf.size for leaf in leaves])
    pieces = np.split(np.asarray(values, np.float64), ends[:-1], axis=-1)
    shaped = [
        piece.reshape((*piece.shape[:-1], *leaf.shape))
        for piece, leaf in zip(pieces, leaves, strict=True)
    ]
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
