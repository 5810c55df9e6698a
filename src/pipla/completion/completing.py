"""Complete a matrix: the function that chooses the prior, and what it returns."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from pipla import _checks
from pipla._intervals import chosen_draws
from pipla.completion._observations import Observed, as_observed
from pipla.completion._outputs import columns_of, draws_of, figures_of, overview_of
from pipla.completion._running import ended_early
from pipla.completion.draws import Draws, FactorDraws, MatrixDraws
from pipla.completion.factors import fit_factors
from pipla.completion.nuclear import fit_nuclear
from pipla.diagnostics import Finding, warn_of
from pipla.engine.archive import DamagedResultError
from pipla.engine.hooks import Callback
from pipla.engine.result import Result, Status
from pipla.fitting.saved import Saved, SavedEstimator
from pipla.report.outputs import Outputs, Overview
from pipla.report.page import Figure

Prior = Literal["factors", "nuclear"]
#: The default number of particles.
PARTICLES = {"factors": 2, "nuclear": 10}


@dataclasses.dataclass(frozen=True)
class Completion(Outputs, Saved):
    r"""A completed matrix: draws from its posterior, and the parameters that were learned.

    Attributes:
        observed: what was given, as triplets.
        prior: `"factors"` or `"nuclear"`.
        draws: from the posterior of the matrix.
        rank: with factors, the number of columns well above the detection limit; with a nuclear
            norm, that of the posterior mean (single draws have full rank).
        noise: the standard deviation of the noise; with factors, of all that the columns that
            count for the rank leave over.
        noise_source: where it is from: `"learned"`, `"given"`, or `"held out"` if it was chosen by
            the error at held-out entries, which is no estimate of the noise.
        noise_mcse: its Monte-Carlo error, where a sampler learned it.
        strength: with a nuclear norm, $e^\theta$; with factors, $\sigma^2/\tau_k^2$ for each
            column that counts, the ridge penalty that the row $i$ of $U$ sees.
        strength_mcse: the Monte-Carlo error of a nuclear norm's strength.
        seconds: the time it took, compilation included.
        result: the run; `None` where there was nothing to learn.
        findings: what speaks against the answer.
        row_scales: with factors, the prior standard deviations of a row's factors and bias in
            every draw; `fill` needs them.
    """

    observed: Observed
    prior: Prior
    draws: Draws
    rank: int
    noise: float
    noise_source: str
    noise_mcse: float | None
    strength: Any
    strength_mcse: float | None
    seconds: float
    result: Result | None
    findings: tuple[Finding, ...]
    row_scales: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.observed.shape

    @property
    def status(self) -> Status:
        """How it ended: INTERRUPTED, STOPPED (by a callback), UNRELIABLE (warned of), COMPLETED."""
        if self.result is not None and ended_early(self.result):
            return self.result.status
        return Status.UNRELIABLE if self.findings else Status.COMPLETED

    def mean(self) -> np.ndarray:
        """The posterior mean of the matrix, without noise, also of observed entries."""
        return self.draws.mean()

    def std(self) -> np.ndarray:
        """The posterior standard deviation of every entry, without noise."""
        return self.draws.std()

    def entries(self, rows: Any, columns: Any) -> np.ndarray:
        """The posterior mean of single entries."""
        rows, columns = self._indices(rows, columns)
        return self.draws.mean_of(rows, columns)

    def interval(
        self, level: float = 0.9, rows: Any = None, columns: Any = None, *, noisy: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper ends of intervals that hold an entry with this probability.

        Arguments:
            level: the probability, between 0 and 1.
            rows, columns: the indices of single entries; by default all, as two matrices.
            noisy: intervals of an observation of the entry, instead of the entry without noise.
        """
        level = _checks.level(level)
        _checks.boolean("noisy", noisy)
        if rows is None and columns is None:
            return self.draws.interval(level, noisy=noisy)
        return self.draws.interval_of(*self._indices(rows, columns), level, noisy=noisy)

    def predict_draws(
        self,
        rows: Any = None,
        columns: Any = None,
        num_draws: int | None = None,
        *,
        noisy: bool = True,
        random_state: Any = 0,
    ) -> np.ndarray:
        """Draws of entries from their posterior: (draws, entries), or (draws, rows, columns).

        Arguments:
            rows, columns: the indices of single entries; by default all, as matrices.
            num_draws: how many; by default as many as there are.
            noisy: draws of an observation of the entry, instead of the entry without noise.
            random_state: the seed of the random numbers, or a generator of NumPy.
        """
        _checks.boolean("noisy", noisy)
        rng = np.random.default_rng(random_state)
        chosen = chosen_draws(len(self.draws.noise), num_draws, rng)
        if rows is None and columns is None:
            found = self.draws.block(slice(None))[chosen]
        else:
            found = self.draws.entries(*self._indices(rows, columns))[chosen]
        if not noisy:
            return found
        noise = self.draws.noise[chosen].reshape(-1, *(1,) * (found.ndim - 1))
        return found + noise * rng.standard_normal(found.shape)

    # What `Outputs` and `Saved` ask for. #

    def _overview(self, names: Sequence[str] | None, level: float) -> Overview:
        return overview_of(self, names, level)

    def _figures(
        self, names: Sequence[str] | None, level: float, most: int, observed: tuple[Any, Any]
    ) -> list[Figure]:
        return figures_of(self, level)

    def _columns(self, names: Sequence[str] | None, level: float) -> dict[str, Any]:
        return columns_of(self, names, level)

    def _draws(self, names: Sequence[str] | None) -> Any:
        return draws_of(self, names)

    @classmethod
    def _kinds(cls) -> tuple[type[Any], ...]:
        return Completion, Observed, FactorDraws, MatrixDraws

    def _state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        bare = dataclasses.replace(self, result=None)
        return {}, {"completion": bare}, {"result": self.result}

    @classmethod
    def _from_state(
        cls, parameters: dict[str, Any], state: dict[str, Any], found: SavedEstimator
    ) -> Completion:
        made: Completion = state["completion"]
        if made.draws.shape != tuple(made.observed.shape):
            raise DamagedResultError("the draws are not those of the matrix.")
        return dataclasses.replace(made, result=found.result)

    def fill(self, matrix: Any) -> np.ndarray:
        """A matrix with the same columns, its missing entries (NaN) predicted.

        With factors, rows may be new. With a nuclear norm they must be those that were completed.
        """
        given = np.array(_checks.on_host("matrix", matrix), np.float64)
        if given.ndim != 2 or given.shape[1] != self.shape[1]:
            raise ValueError(
                f"matrix must have {self.shape[1]} columns, like the one that was completed, got "
                f"shape {given.shape}."
            )
        missing = np.isnan(given)
        if not missing.any():
            return given
        if isinstance(self.draws, FactorDraws) and self.row_scales is not None:
            found = self.draws.given_columns(given, self.row_scales)
        elif given.shape == self.shape:
            found = self.mean()
        else:
            raise ValueError(
                "matrix has other rows than the one that was completed, which prior='nuclear' "
                "cannot predict; use prior='factors'."
            )
        return np.where(missing, found, given)

    def __repr__(self) -> str:
        error = "" if self.noise_mcse is None else f" ± {self.noise_mcse:.1g}"
        rows = {
            "observed": f"{len(self.observed.values)} entries, {100 * self.observed.share:.3g} %",
            "prior": self.prior,
            "rank": str(self.rank),
            "noise": f"{self.noise:.4g}{error} ({self.noise_source})",
            "work": f"{0 if self.result is None else self.result.num_steps} steps, "
            f"{self.seconds:.1f} s",
        }
        lines = [f"  {name:<9} {value}" for name, value in rows.items()]
        head = f"Completion of {self.shape[0]} × {self.shape[1]} entries"
        return "\n".join([head, *lines, *(f"  warning: {found}" for found in self.findings)])

    def _indices(self, rows: Any, columns: Any) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for name, given, limit in zip(
            ("rows", "columns"), (rows, columns), self.shape, strict=True
        ):
            array = np.atleast_1d(_checks.on_host(name, given))
            inside = array.size and array.dtype.kind in "iu"
            if not inside or array.ndim != 1 or array.min() < 0 or array.max() >= limit:
                raise ValueError(
                    f"{name} must be a vector of integers from 0 to {limit - 1}, got "
                    f"{_checks.show(given)}."
                )
            found.append(array)
        if len(found[0]) != len(found[1]):
            raise ValueError(
                f"rows and columns must have one length, got {len(found[0])} and {len(found[1])}."
            )
        return found[0], found[1]


def complete(
    observed: Any,
    *,
    prior: Prior = "factors",
    noise: float | None = None,
    max_rank: int | None = None,
    biases: bool = True,
    num_steps: int = 600,
    num_particles: int | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> Completion:
    r"""Predict the missing entries of a matrix of low rank, with intervals.

    With `prior="factors"` an entry is $\mu + a_i + b_j + \sum_k u_{ik} v_{jk}$ with normal biases
    and factors (`pipla.likelihoods.Factors`). The scales of the columns, which choose the rank,
    and the noise maximise the marginal likelihood. With `prior="nuclear"` the density of the
    matrix is proportional to $e^{-e^\theta |x|_*}$, as in the paper: its predictions and intervals
    are worse, and its noise cannot be learned.

    Arguments:
        observed: a matrix in which NaN (or a mask) marks missing entries, or `Triplets`.
        prior: `"factors"` or `"nuclear"`.
        noise: the standard deviation of the noise, for `prior="nuclear"`; by default chosen by
            the error at held-out entries. Factors learn it.
        max_rank: the number of columns of the factors; by default 10, and twice as many while
            most are needed, up to 40. Superfluous ones shrink to nothing.
        biases: whether rows and columns have means of their own.
        num_steps: the number of steps of the sampler; the first third is burn-in.
        num_particles: chains side by side; by default 2 with factors, 10 with a nuclear norm.
        seed: the seed of the random numbers.
        callbacks: as for `pipla.run`; they are called in every run that is needed.
        progress: show a progress bar; by default only on a terminal.

    Returns:
        A `Completion`. Ctrl-C after burn-in returns one of the draws so far, with a warning and
        `status` INTERRUPTED; before, it raises `KeyboardInterrupt`.

    Example:
        >>> import numpy as np
        >>> from pipla.completion import complete
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.standard_normal((30, 1)) @ rng.standard_normal((1, 20))
        >>> seen = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
        >>> found = complete(seen + 0.1 * rng.standard_normal(truth.shape), max_rank=2)
        >>> found.rank, bool(abs(found.noise - 0.1) < 0.02)
        (1, True)
    """
    given = as_observed(observed)
    _checks.choice("prior", prior, get_args(Prior))
    _checks.positive("noise", noise)
    _checks.boolean("biases", biases)
    num_steps = _checks.integer("num_steps", num_steps, least=3)
    if max_rank is not None:
        max_rank = _checks.integer("max_rank", max_rank, least=1)
    if num_particles is None:
        num_particles = PARTICLES[prior]
    num_particles = _checks.integer("num_particles", num_particles, least=1)
    seed = _checks.seed(seed)
    began = time.perf_counter()
    if prior == "nuclear":
        found = fit_nuclear(
            given,
            None if noise is None else float(noise),
            num_steps=num_steps,
            num_particles=num_particles,
            seed=seed,
            callbacks=callbacks,
            progress=progress,
        )
        return _noted(
            Completion(
                observed=given,
                prior=prior,
                draws=found.draws,
                rank=found.rank,
                noise=found.noise,
                noise_source="held out" if noise is None else "given",
                noise_mcse=None,
                strength=found.strength,
                strength_mcse=found.strength_mcse,
                seconds=time.perf_counter() - began,
                result=found.result,
                findings=found.result.findings,
            )
        )
    if noise is not None:
        raise ValueError("noise is learned with prior='factors': leave it out.")
    fitted = fit_factors(
        given,
        max_rank=max_rank,
        biases=biases,
        num_steps=num_steps,
        num_particles=num_particles,
        seed=seed,
        callbacks=callbacks,
        progress=progress,
    )
    return _noted(
        Completion(
            observed=given,
            prior=prior,
            draws=fitted.draws,
            rank=fitted.rank,
            noise=fitted.noise,
            noise_source="learned",
            noise_mcse=fitted.noise_mcse,
            strength=fitted.strength,
            strength_mcse=None,
            seconds=time.perf_counter() - began,
            result=fitted.result,
            findings=fitted.findings,
            row_scales=fitted.row_scales,
        )
    )


def _noted(completion: Completion) -> Completion:
    """The same, and a warning if Ctrl-C ended its run."""
    if completion.status is not Status.INTERRUPTED or completion.result is None:
        return completion
    sentence = f"interrupted after {completion.result.num_steps} steps: the draws so far are kept"
    found = Finding("draws", sentence)
    warn_of([found], stacklevel=4)
    return dataclasses.replace(completion, findings=(found, *completion.findings))
