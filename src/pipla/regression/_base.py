"""What the sparse regressions share: checks, fitting, intervals, the table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from pipla import _checks
from pipla._extras import extra
from pipla._intervals import tails_of
from pipla.diagnostics import Finding, warn_of
from pipla.engine.result import OtherModelWarning, Status, fingerprint
from pipla.engine.run import checked_callbacks
from pipla.regression._callbacks import SklearnCallbacks, told
from pipla.regression._doubts import code_doubt, dependent_doubt, index_doubt, rows_doubt
from pipla.regression._frames import refuse_frame, refuse_text
from pipla.regression._reporting import Reporting

with extra("sklearn", "a scikit-learn estimator"):
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        validate_data,
    )


#: The priors that an estimator takes.
PRIORS = ("learned", "laplace", "elastic-net", "group")
#: The probability of an interval, unless another is asked for.
LEVEL = 0.9
#: Numbers of linear predictors (draws times rows) that are in memory at a time.
_CHUNK = 4_000_000


def _spread(features: Any) -> np.ndarray:
    """The standard deviation of each column, dense or sparse."""
    if isinstance(features, np.ndarray):
        return features.std(axis=0)
    from sklearn.utils.sparsefuncs import mean_variance_axis

    return np.sqrt(mean_variance_axis(features, axis=0)[1])


def _numbers_of(features: Any) -> Any:
    """The arrays of features, dense or sparse."""
    if isinstance(features, np.ndarray):
        return features
    return features.shape, features.data, features.indices, features.indptr


def _warn_of_other_data(earlier: str, now: str) -> None:
    if earlier != now:
        warnings.warn(
            "X, y or sample_weight are not those that this model was fitted to: its prior was "
            "learned from others, and only the coefficients drawn from now on are of these.",
            OtherModelWarning,
            stacklevel=6,
        )


class More(NamedTuple):
    """How far a fit is resumed; see `SparseRegression.resume`."""

    rounds: int | None


class SparseRegression(SklearnCallbacks, Reporting, BaseEstimator):
    """Shared by all: a sparse prior on the coefficients that is learned from the data."""

    prior: str
    groups: Any
    l1_ratio: float
    fit_intercept: bool
    standardise: bool
    threshold: float | None
    warm_start: bool
    random_state: Any
    callbacks: Any
    formula_: Any
    _quantiles_: tuple[Any, np.ndarray]
    _seed_: int
    _data_: str
    #: What coefficients are measured in.
    _unit: str

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, more: More | None, **options: Any
    ) -> tuple[Any, Any, Any]:
        """Features, responses and weights; observations of weight 0 are left out."""
        _checks.choice("prior", self.prior, PRIORS)
        for name in ("fit_intercept", "standardise", "warm_start"):
            _checks.boolean(name, getattr(self, name))
        if self.threshold is not None and _checks.real("threshold", self.threshold) < 0:
            raise ValueError(f"threshold must not be negative, got {self.threshold!r}.")
        if not 0 <= _checks.real("l1_ratio", self.l1_ratio) <= 1:
            raise ValueError(f"l1_ratio must be between 0 and 1, got {self.l1_ratio!r}.")
        _checks.in_memory("X", X)
        refuse_frame(X)
        if options.get("y_numeric"):
            refuse_text(y)
        self.__dict__.pop("formula_", None)
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse=("csc", "csr"),
            dtype=np.float64,
            ensure_min_samples=2,
            reset=more is None,
            **options,
        )
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not np.all(np.isfinite(weights)):  # scikit-learn lets a single number pass
            raise ValueError(f"sample_weight must be finite, got {sample_weight!r}.")
        if not np.all(weights):
            X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        return X, y, weights

    def _answer(
        self,
        X: Any,
        y: np.ndarray,
        weights: np.ndarray,
        more: More | None,
        *,
        classes: int = 1,
        poisson: bool = False,
    ) -> None:
        """Fit, or resume a fit, and set the attributes that all estimators have."""
        with extra("kernels", "a sparse regression"):
            from pipla.regression._answers import Task, learned_glm, learned_linear
            from pipla.regression._design import merged
            from pipla.regression._learned import Posterior
        callbacks = checked_callbacks(() if self.callbacks is None else self.callbacks, False)
        self._spread_ = _spread(X)
        X, y, weights = merged(X, y, weights)
        mark = fingerprint((_numbers_of(X), y, weights))
        earlier = self.__dict__.get("fit_")
        if more is None:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            callbacks += told(self) if self.prior == "learned" else []
        else:
            seed = self._seed_
            _warn_of_other_data(self._data_, mark)
        warm = self.warm_start and more is None and isinstance(earlier, Posterior)
        task = Task(
            features=X,
            y=y,
            weights=weights,
            classes=classes,
            poisson=poisson,
            intercept=self.fit_intercept,
            standardise=self.standardise,
            seed=seed,
            callbacks=callbacks,
            start=earlier if warm else None,
            earlier=None if more is None else earlier,
            rounds=None if more is None else more.rounds,
            name=self._name,
        )
        if self.prior != "learned":
            from pipla.regression._proximal import proximal

            answer = proximal(task, self.prior, float(self.l1_ratio), self._groups(X.shape[1]))
        elif classes > 1 or poisson:
            answer = learned_glm(task)
        else:
            answer = learned_linear(task)
        self._seed_, self._data_, self._answer_ = seed, mark, answer
        if self.prior == "learned":  # of others `pipla.fit` has warned
            warn_of(answer.findings, stacklevel=6)
        self.findings_ = answer.findings
        self.fit_ = answer.fit
        self.status_, self.message_ = answer.fit.status, answer.fit.message
        if answer.findings and self.status_ is Status.COMPLETED:
            self.status_ = Status.UNRELIABLE
        learned = answer.learned(LEVEL)
        self.theta_ = {name: middle for name, (middle, _, _) in learned.items()}
        self.theta_interval_ = {name: (low, high) for name, (_, low, high) in learned.items()}
        self.n_iter_ = answer.fit.sweeps if self.prior == "learned" else answer.fit.num_steps

    def resume(
        self, X: Any, y: Any, sample_weight: Any = None, *, rounds: int | None = None
    ) -> Self:
        """Continue a fit, also one from a file, bit for bit as if it had never stopped.

        Arguments:
            X, y, sample_weight: those of `fit`. Others are warned of.
            rounds: the rounds to add, each twice as long as the one before it; one that was
                interrupted is completed as the first of them. By default as many as `fit` would
                have made, and one where it would have stopped. With priors other than
                `"learned"`, the most steps to add, in place of rounds.
        """
        check_is_fitted(self)
        if "formula_" in self.__dict__:
            raise TypeError("resume cannot continue a model of a formula; fit it again.")
        if rounds is not None:
            rounds = _checks.integer("rounds", rounds, least=1)
        return self._fitted(X, y, sample_weight, More(rounds))

    def _fitted(self, X: Any, y: Any, sample_weight: Any, more: More | None) -> Self:
        """What `fit` does, or with `more` what `resume` does."""
        raise NotImplementedError

    @classmethod
    def from_formula(
        cls, formula: str, data: Any, *, sample_weight: Any = None, **options: Any
    ) -> Self:
        """Fit to a DataFrame by a formula such as `"y ~ age * sex + C(city)"`.

        The formula is read by formulaic (`pipla[formula]`). Afterwards `predict` and its relatives
        take DataFrames with the columns of the formula, and code them as those that were fitted.

        Arguments:
            formula: the response, `~`, and terms; `- 1` leaves out the intercept.
            data: the rows, without missing values in the columns of the formula.
            sample_weight: weights of the observations.
            options: arguments of the estimator.

        Returns:
            The fitted estimator; its `formula_` holds the formula.
        """
        from pipla.regression._formula import matrices

        made = matrices(formula, data)
        if not made.formula.has_intercept:
            options = {"fit_intercept": False} | options
        model = cls(**options).fit(made.features, made.y, sample_weight)
        model.formula_ = made.formula
        return model

    def _groups(self, features: int) -> np.ndarray | None:
        """The group of each feature; `None` if each is one of its own."""
        if self.groups is None:
            return None
        groups = np.asarray(self.groups)
        if groups.shape != (features,):
            raise ValueError(
                f"groups must hold the group of each of the {features} features, got an array of "
                f"shape {groups.shape}."
            )
        return np.unique(groups, return_inverse=True)[1]

    @property
    def coef_interval_(self) -> np.ndarray:
        """The 5 % and 95 % quantiles of each coefficient: an array (2, *shape of coef_)."""
        check_is_fitted(self)
        if "_quantiles_" not in self.__dict__ or self._quantiles_[0] is not self._answer_:
            self._quantiles_ = (self._answer_, self._coef_interval(LEVEL))
        return self._quantiles_[1]

    def _coef_interval(self, level: float) -> np.ndarray:
        """The ends of an interval of each coefficient: an array (2, *shape of coef_)."""
        check_is_fitted(self)
        tails, draws = tails_of(level), self._answer_.draws
        found = np.empty((2, *draws.shape[1:]))
        step = max(_CHUNK // len(draws), 1)
        for start in range(0, draws.shape[2], step):
            part = slice(start, start + step)
            found[..., part] = np.quantile(draws[..., part], tails, axis=0)
        return (found * self._answer_.units).reshape(2, *self.coef_.shape)

    def _learned(self, level: float) -> dict[str, tuple[float, float, float]]:
        """What was learned, by name: an estimate and the ends of its interval."""
        check_is_fitted(self)
        return self._answer_.learned(_checks.level(level))

    @property
    def inclusion_(self) -> np.ndarray:
        """The posterior probability that the size of each coefficient exceeds the threshold."""
        check_is_fitted(self)
        answer = self._answer_
        if self.threshold == 0:
            return answer.slab.reshape(self.coef_.shape)
        limit = answer.threshold if self.threshold is None else self.threshold
        counts = np.zeros(answer.mean.shape)
        for draw in answer.draws:
            counts += np.abs(draw) * answer.units > limit
        return (counts / len(answer.draws)).reshape(self.coef_.shape)

    def summary(
        self,
        level: float = LEVEL,
        *,
        most: int = 12,
        feature_names: Sequence[str] | None = None,
    ) -> str:
        """A table of what was learned, and of the `most` most certain coefficients.

        The names of features are those of the DataFrame that the model was fitted to, unless
        `feature_names` are given. Intervals have the probability `level`.
        """
        check_is_fitted(self)
        from pipla.regression._outputs import names_of
        from pipla.regression._summary import summary_of

        most, level = _checks.integer("most", most, least=1), _checks.level(level)
        names = names_of(self, feature_names)
        classes = [str(label) for label in self.__dict__.get("classes_", [""])]
        title = f"{type(self).__name__}, prior {self.prior}"
        inclusion = self.inclusion_.reshape(self._answer_.mean.shape)
        shown = (inclusion, names, classes, most, level, self._units(), self._meaning())
        return summary_of(title, self._answer_, *shown)

    def _meaning(self) -> str:
        """What the coefficients add up to, where the unit alone does not say it."""
        return ""

    def _units(self) -> str:
        """What the learned numbers are, and in which units."""
        per = "standard deviation of the feature" if self.standardise else "unit of the feature"
        found = f"scale: the scale c of the prior, in {self._unit} per {per}."
        if self.prior == "learned":
            found = (
                "zeros: the weight of 0 in the prior. scale: the standard deviation of the "
                f"effects that are not 0, in {self._unit} per {per}."
            )
        return found + (f" noise: in {self._unit}." if "noise" in self.theta_ else "")

    def _features(self, X: Any) -> Any:
        check_is_fitted(self)
        if "formula_" in self.__dict__:
            X = self.formula_.features(X)
        _checks.in_memory("X", X)
        refuse_frame(X)
        return validate_data(self, X, reset=False, accept_sparse=("csc", "csr"), dtype=np.float64)

    def _doubt(self, X: Any, y: np.ndarray, *found: Finding | None) -> None:
        """Warn of data that contradict the model: by these findings, and those for all models."""
        common = [rows_doubt(len(y)), index_doubt(X, self._name), code_doubt(X, self._name)]
        if self.prior == "learned":  # others have no answers that exclude each other
            factors = self._answer_.factors
            common.append(dependent_doubt(X, self.fit_intercept, factors, self._name))
        more = tuple(finding for finding in (*common, *found) if finding is not None)
        warn_of(more, UserWarning, stacklevel=6)
        self.findings_ = (*self.findings_, *more)
        self._answer_ = self._answer_._replace(findings=self.findings_)

    def _name(self, feature: int) -> str:
        """A feature in a sentence."""
        names = self.__dict__.get("feature_names_in_")
        return f"feature {feature}" if names is None else f"feature {names[feature]!r}"

    def _over_draws(self, X: Any, function: Any, most: int | None = None) -> np.ndarray:
        """`function` of the linear predictors (draws, rows, outputs), for some rows at a time.

        With `most`, no more draws than this are used.
        """
        every = 1 if most is None else max(-(-len(self._answer_.draws) // most), 1)
        draws, levels = self._answer_.draws[::every], self._answer_.levels[::every]
        count, outputs, features = draws.shape
        flat = draws.reshape(-1, features) * self._answer_.units
        step = max(_CHUNK // (count * outputs), 1)
        X = X if isinstance(X, np.ndarray) else X.tocsr()
        parts = []
        for start in range(0, X.shape[0], step):
            z = (X[start : start + step] @ flat.T).reshape(-1, count, outputs)
            parts.append(function(z.transpose(1, 0, 2) + levels[:, None, :]))
        return np.concatenate(parts, axis=-1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
