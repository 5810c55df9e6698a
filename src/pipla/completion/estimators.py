"""A scikit-learn estimator: missing values of a table of low rank, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipla import _checks
from pipla._extras import extra
from pipla.completion._observations import Triplets
from pipla.completion.completing import Completion, Prior, complete
from pipla.fitting.saved import Saved, SavedEstimator
from pipla.report.outputs import Outputs, Overview
from pipla.report.page import Figure

with extra("sklearn", "a scikit-learn estimator"):
    from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data

#: What scikit-learn notes of the data.
INPUTS = ("n_features_in_", "feature_names_in_")


class LowRankCompletion(OneToOneFeatureMixin, TransformerMixin, Outputs, Saved, BaseEstimator):
    r"""Fill in the missing entries of a matrix of low rank; rank, noise and shrinkage are learned.

    NaN marks missing entries. Observed entries come back as they are. New rows are completed
    given the columns that were learned (not with `prior="nuclear"`).

    Arguments:
        prior: `"factors"`, two factors with learned column scales; or `"nuclear"`, a nuclear norm
            of learned strength, as in the paper.
        max_rank: the number of columns of the factors; by default 10, and more where needed.
        biases: whether rows and columns have means of their own.
        noise: the standard deviation of the noise, for `prior="nuclear"`; by default chosen by
            the error at held-out entries. Factors learn it.
        num_steps: the number of steps of the sampler.
        random_state: the seed of the random numbers.

    Attributes:
        completion_: the `pipla.completion.Completion`, with draws from the posterior.
        rank_: the number of columns of the factors well above the detection limit.
        noise_: the standard deviation of the noise. `noise_source_` says whether it was learned,
            given, or held out; with `prior="nuclear"` it is not identifiable, and no estimate.
        strength_: the strength of the nuclear norm; or the ridge penalty of each column.
        status_: how the fit ended (`pipla.Status`).
        n_features_in_: the number of columns.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> table = rng.standard_normal((30, 1)) @ rng.standard_normal((1, 20))
        >>> table[rng.random(table.shape) < 0.3] = np.nan
        >>> model = LowRankCompletion(max_rank=2).fit(table)
        >>> filled = model.transform(table)
        >>> low, high = model.predict_interval(0.9)
        >>> bool(np.isnan(filled).any()), model.rank_, low.shape
        (False, 1, (30, 20))
    """

    def __init__(
        self,
        prior: Prior = "factors",
        *,
        max_rank: int | None = None,
        biases: bool = True,
        noise: float | None = None,
        num_steps: int = 600,
        random_state: int = 0,
    ) -> None:
        self.prior = prior
        self.max_rank = max_rank
        self.biases = biases
        self.noise = noise
        self.num_steps = num_steps
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> LowRankCompletion:
        """Learn from a matrix whose missing entries are NaN, or from `Triplets`."""
        if isinstance(X, Triplets):
            found = self._completed(X)
            self.n_features_in_ = found.shape[1]
        else:
            found = self._completed(self._validated(X, reset=True))
        self._keep(found)
        return self

    def _keep(self, found: Completion) -> None:
        self.completion_ = found
        self.rank_ = found.rank
        self.noise_ = found.noise
        self.noise_source_ = found.noise_source
        self.strength_ = found.strength
        self.status_ = found.status

    def transform(self, X: Any) -> np.ndarray:
        """A matrix with its missing entries predicted by their posterior mean."""
        check_is_fitted(self)
        return self.completion_.fill(self._validated(X, reset=False))

    def predict_entries(self, rows: Any, columns: Any) -> np.ndarray:
        """The posterior mean of single entries of the matrix that was fitted."""
        check_is_fitted(self)
        return self.completion_.entries(rows, columns)

    def predict_interval(
        self, level: float = 0.9, rows: Any = None, columns: Any = None, *, noisy: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ends of intervals that hold an entry with this probability.

        Arguments:
            level: the probability.
            rows, columns: the indices of single entries; by default all of the fitted matrix.
            noisy: intervals of an observation of the entry, instead of the entry without noise.
        """
        check_is_fitted(self)
        return self.completion_.interval(level, rows, columns, noisy=noisy)

    def predict_draws(
        self,
        rows: Any = None,
        columns: Any = None,
        num_draws: int | None = None,
        *,
        noisy: bool = True,
        random_state: Any = 0,
    ) -> np.ndarray:
        """Draws of entries of the fitted matrix; see `Completion.predict_draws`."""
        check_is_fitted(self)
        options = {"noisy": noisy, "random_state": random_state}
        return self.completion_.predict_draws(rows, columns, num_draws, **options)

    # What `Outputs` and `Saved` ask for. #

    def _names(self, given: Sequence[str] | None) -> Sequence[str] | None:
        check_is_fitted(self)
        return self.__dict__.get("feature_names_in_") if given is None else given

    def _overview(self, names: Sequence[str] | None, level: float) -> Overview:
        names = self._names(names)
        return self.completion_._overview(names, level)

    def _figures(
        self, names: Sequence[str] | None, level: float, most: int, observed: tuple[Any, Any]
    ) -> list[Figure]:
        names = self._names(names)
        return self.completion_._figures(names, level, most, observed)

    def _columns(self, names: Sequence[str] | None, level: float) -> dict[str, Any]:
        names = self._names(names)
        return self.completion_._columns(names, level)

    def _draws(self, names: Sequence[str] | None) -> Any:
        names = self._names(names)
        return self.completion_._draws(names)

    @classmethod
    def _kinds(cls) -> tuple[type[Any], ...]:
        return Completion._kinds()

    def _state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        check_is_fitted(self)
        _, state, runs = self.completion_._state()
        left = {name: vars(self)[name] for name in INPUTS if name in vars(self)}
        return self.get_params(deep=False), state | left, runs

    @classmethod
    def _from_state(
        cls, parameters: dict[str, Any], state: dict[str, Any], found: SavedEstimator
    ) -> Any:
        made = cls(**parameters)
        made._keep(Completion._from_state({}, state, found))
        made.__dict__.update({name: state[name] for name in INPUTS if name in state})
        return made

    def _completed(self, observed: Any) -> Completion:
        return complete(
            observed,
            prior=self.prior,
            noise=self.noise,
            max_rank=self.max_rank,
            biases=self.biases,
            num_steps=self.num_steps,
            seed=self.random_state,
            progress=False,
        )

    def _validated(self, X: Any, *, reset: bool) -> np.ndarray:
        _checks.in_memory("X", X)
        return validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", copy=True
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
