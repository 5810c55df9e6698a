"""What a fitted regression can do beside predicting: intervals, draws, pages, files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipla import _checks
from pipla._extras import extra
from pipla._intervals import chosen_draws
from pipla.engine.archive import DamagedResultError
from pipla.engine.result import Status
from pipla.fitting.saved import Saved, SavedEstimator, attributes
from pipla.report.outputs import Outputs, Overview
from pipla.report.page import Figure

with extra("sklearn", "a scikit-learn estimator"):
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted


class Reporting(Outputs, Saved):
    """The outputs of a sparse regression."""

    prior: str
    _answer_: Any
    _features: Any
    _units: Any
    _meaning: Any
    get_params: Any

    def conf_int(
        self,
        level: float | None = None,
        feature_names: Sequence[str] | None = None,
        *,
        alpha: float | None = None,
    ) -> Any:
        """The intervals of intercepts and coefficients: a DataFrame, columns `lower` and `upper`.

        Arguments:
            level: the probability with which they hold a coefficient, given the data; 0.9 by
                default.
            feature_names: names for the features.
            alpha: 1 - level, as in statsmodels' method of this name; instead of `level`.
        """
        if level is not None and alpha is not None:
            raise ValueError("conf_int takes level or alpha = 1 - level, not both.")
        if alpha is not None:
            level = 1 - _checks.real("alpha", alpha)
        elif level is None:
            level = 0.9
        elif 0 < _checks.real("level", level) < 0.5:
            raise ValueError(
                f"level {level:g} is the probability of an interval, and seems to be 1 - level: "
                f"write conf_int(level={1 - level:g}) or conf_int(alpha={level:g})."
            )
        table = self.to_pandas(feature_names, level=level)
        table = table[table["part"] != "theta"][["low", "high"]]
        return table.rename(columns={"low": "lower", "high": "upper"})

    def predict_draws(
        self, X: Any, num_draws: int | None = None, *, random_state: Any = 0
    ) -> np.ndarray:
        """New responses from the posterior predictive distribution: an array (draws, rows).

        Arguments:
            X: features.
            num_draws: how many; by default as many as there are draws of the coefficients.
            random_state: the seed of the random numbers.
        """
        X = self._features(X)
        rng = check_random_state(random_state)
        answer = self._answer_
        chosen = chosen_draws(len(answer.draws), num_draws, rng)
        flat = answer.draws[chosen] * answer.units
        count, outputs, features = flat.shape
        z = (X @ flat.reshape(-1, features).T).reshape(-1, count, outputs).transpose(1, 0, 2)
        return self._responses(X, z + answer.levels[chosen][:, None, :], rng)

    def _responses(self, X: Any, z: np.ndarray, rng: Any) -> np.ndarray:
        """New responses (draws, rows) for linear predictors (draws, rows, outputs)."""
        raise NotImplementedError

    # What `Outputs` and `Saved` ask for. #

    def _overview(self, names: Sequence[str] | None, level: float) -> Overview:
        check_is_fitted(self)
        from pipla.regression._outputs import overview_of

        return overview_of(self, names, level, self._units())

    def _figures(
        self, names: Sequence[str] | None, level: float, most: int, observed: tuple[Any, Any]
    ) -> list[Figure]:
        check_is_fitted(self)
        from pipla.regression._outputs import figures_of

        return figures_of(self, names, level, most, observed)

    def _columns(self, names: Sequence[str] | None, level: float) -> dict[str, Any]:
        check_is_fitted(self)
        from pipla.regression._outputs import columns_of

        return columns_of(self, names, level)

    def _draws(self, names: Sequence[str] | None) -> Any:
        check_is_fitted(self)
        from pipla.regression._outputs import draws_of

        return draws_of(self, names)

    @classmethod
    def _kinds(cls) -> tuple[type[Any], ...]:
        from pipla.regression._answers import Answer
        from pipla.regression._learned import Posterior
        from pipla.regression._stacking import Mode
        from pipla.regression._state import Prior, Tally
        from pipla.regression._sweeps import Swept

        return Answer, Posterior, Mode, Prior, Status, Swept, Tally

    def _state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        check_is_fitted(self)
        if "formula_" in self.__dict__:
            raise TypeError(
                "save cannot write a model of a formula, which is code: fit the columns of the "
                "formula themselves, or keep the formula and fit again."
            )
        left_out = frozenset({"_quantiles_", "fit_", "_answer_"})
        answer, runs = self._answer_, {}
        if self.prior != "learned":
            answer, runs = answer._replace(fit=None), {"fit": answer.fit}
        state = attributes(self, left_out) | {"_answer_": answer}
        return self.get_params(deep=False) | {"callbacks": None}, state, runs  # which are code

    @classmethod
    def _from_state(
        cls, parameters: dict[str, Any], state: dict[str, Any], found: SavedEstimator
    ) -> Any:
        made = cls(**parameters)
        answer = state["_answer_"]
        answer = answer if found.fit is None else answer._replace(fit=found.fit)
        made.__dict__.update(state | {"_answer_": answer, "fit_": answer.fit})
        shape = (len(answer.draws), *answer.mean.shape)
        if answer.draws.shape != shape or answer.units.shape != shape[2:]:
            raise DamagedResultError("the draws are not those of the features.")
        return made
