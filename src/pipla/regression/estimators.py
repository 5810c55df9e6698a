"""scikit-learn estimators: regressions whose sparse prior is learned, with intervals."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from pipla._extras import extra
from pipla._intervals import mixture_quantile, tails_of
from pipla.regression._base import More, SparseRegression
from pipla.regression._callbacks import with_callbacks
from pipla.regression._doubts import (
    DRAWS,
    constant_doubt,
    dispersion_doubt,
    family_doubt,
    tails_doubt,
)

with extra("sklearn", "a scikit-learn estimator"):
    from scipy.special import expit, log_softmax
    from sklearn.base import ClassifierMixin, RegressorMixin
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted


class SparseLinearRegression(RegressorMixin, SparseRegression):
    r"""Linear regression whose sparse prior and noise are learned from the data.

    No number is to be chosen: neither a penalty nor a grid to cross-validate over. With
    `prior="learned"` each coefficient (of features scaled to variance 1) is
    $\pi_0 \delta_0 + \sum_k \pi_k N(0, v_k)$ a priori, on a geometric grid of variances; the
    weights and the noise are learned, so that the prior is sparse where the data are and dense
    where they are: they start at the maximum of the marginal likelihood and are drawn around it
    with the coefficients, which are sampled one after the other from their exact conditionals.

    Arguments:
        prior: `"learned"`; or one whose scale alone is learned, by `pipla.fit`, good for dense
            effects and not for sparse ones: `"laplace"` (the Bayesian lasso), `"elastic-net"`, or
            `"group"` (the Bayesian group lasso).
        groups: the group of each feature, for `prior="group"`: any labels. By default each feature
            is a group of its own; several classes share the groups.
        l1_ratio: the part of the L1 penalty in the elastic net, between 0 and 1.
        fit_intercept: whether there is an intercept. It has no prior.
        standardise: scale every feature to variance 1 first. Coefficients are reported for the
            features as given.
        threshold: what counts as an effect in `inclusion_`, on the scale of the coefficients: 0 for
            anything but 0. By default half of the standard error a coefficient would have alone.
        warm_start: start from the last coefficients and the last prior.
        random_state: the seed of the random numbers. Equal seeds give equal answers.
        callbacks: functions or hooks (`pipla.hooks`) that are called between sweeps, for example
            `[pipla.hooks.Progress()]`; they may stop the fit, once something was sampled.

    Attributes:
        coef_, intercept_: posterior means.
        coef_interval_: 5 % and 95 % quantiles of each coefficient.
        inclusion_: the posterior probability that each coefficient exceeds the threshold in size.
            With `"learned"` that is an effect; under the other priors no coefficient is 0, and one
            that is 0 up to a standard error has .62.
        noise_: the learned standard deviation of the noise.
        theta_, theta_interval_: what was learned, by name, posterior medians and 90 % intervals:
            `zeros` (the weight of 0 in the prior), `scale` (the standard deviation of the effects
            that are not 0, for standardised features; with other priors the scale parameter c),
            `noise`.
        fit_: the draws and how they were made; a `pipla.Fit` unless the prior is `"learned"`.
        status_, message_: how the fit ended (`pipla.Status`), and a sentence about it. After Ctrl-C
            it is INTERRUPTED, the answer is of the sweeps so far, and `resume` continues there;
            before anything was sampled, Ctrl-C raises `KeyboardInterrupt`.
        findings_: what speaks against the answer.
        n_iter_: the sweeps, or steps, of each chain.

    Example:
        >>> import numpy as np
        >>> from pipla.regression import SparseLinearRegression
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((200, 300))
        >>> y = 2 * X[:, 0] - X[:, 1] + rng.standard_normal(200)
        >>> model = SparseLinearRegression().fit(X, y)
        >>> np.flatnonzero(model.inclusion_ > 0.9).tolist()
        [0, 1]
        >>> low, high = model.coef_interval_
        >>> bool(low[0] < 2 < high[0])
        True
    """

    _unit = "units of y"

    def __init__(
        self,
        prior: str = "learned",
        *,
        groups: Any = None,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        standardise: bool = True,
        threshold: float | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
        callbacks: Any = None,
    ) -> None:
        self.prior = prior
        self.groups = groups
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.standardise = standardise
        self.threshold = threshold
        self.warm_start = warm_start
        self.random_state = random_state
        self.callbacks = callbacks

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseLinearRegression:
        """Learn the prior and the noise, and sample the coefficients.

        Arguments:
            X: features of shape (observations, features): an array, a DataFrame or sparse.
            y: responses of shape (observations,).
            sample_weight: weights of the observations; a weight of 2 counts one twice.
        """
        return self._fitted(X, y, sample_weight, None)

    def _fitted(self, X: Any, y: Any, sample_weight: Any, more: More | None) -> Self:
        X, y, weights = self._checked(X, y, sample_weight, more, y_numeric=True)
        y = np.asarray(y, np.float64)
        self._answer(X, y, weights, more)
        self.coef_ = self._answer_.mean[0]
        self.intercept_ = float(self._answer_.level[0])
        self.noise_ = self._answer_.noise
        predicted = self._over_draws(X, lambda z: z[..., 0], DRAWS)
        unlike = tails_doubt(y, predicted, weights)
        self._doubt(X, y, constant_doubt(y), family_doubt(y), unlike)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The posterior mean of the response."""
        X = self._features(X)
        return X @ self.coef_ + self.intercept_

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:
        """An interval that holds a new response with this probability: an array (2, rows)."""
        tails = tails_of(level)

        def quantiles(z: np.ndarray) -> np.ndarray:
            if self.noise_ == 0:  # of a constant response
                return np.quantile(z[..., 0], tails, axis=0)
            return np.stack([mixture_quantile(z[..., 0], self.noise_, tail) for tail in tails])

        return self._over_draws(self._features(X), quantiles)

    def _responses(self, X: Any, z: np.ndarray, rng: Any) -> np.ndarray:
        return z[..., 0] + self.noise_ * rng.standard_normal(z.shape[:2])


class SparseLogisticRegression(ClassifierMixin, SparseRegression):
    r"""Logistic regression, for two or more classes, whose sparse prior is learned from the data.

    The prior is that of `SparseLinearRegression`; several classes share it, and each has
    coefficients of its own. The coefficients are sampled one after the other: the conditional to
    second order is proposed, and Metropolis' rule makes it exact. The intercept is normal with
    standard deviation 10 around the log-odds.

    Probabilities are averages over the posterior. Where a plane separates two classes, that is too
    cautious, and the mode under a normal prior with the learned variance may do better: both
    predictions are mixed then, with the weights that predict best when each fifth of the labels is
    left out in turn (stacking). Coefficients and their intervals are those of the posterior.

    Arguments:
        prior, groups, l1_ratio, fit_intercept, standardise, threshold, warm_start, random_state,
            callbacks: as for `SparseLinearRegression`.
        class_weight: `"balanced"`, or a dict of weights by class; by default all are 1.

    Attributes:
        classes_: the labels.
        coef_, intercept_: posterior means, of shapes (1, features) and (1,) for two classes,
            (classes, features) and (classes,) for more.
        stacking_: the weight of the average over the posterior in probabilities; 1 where no plane
            separates two classes, for more than two classes, and where the mode would take too
            long (more than 1000 features and rows).
        coef_interval_, inclusion_, theta_, theta_interval_, fit_, status_, message_, n_iter_: as
            for `SparseLinearRegression`.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from pipla.regression import SparseLogisticRegression
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = SparseLogisticRegression().fit(X[::2], y[::2])
        >>> bool(model.score(X[1::2], y[1::2]) > 0.95)
        True
    """

    _unit = "log-odds"

    def __init__(
        self,
        prior: str = "learned",
        *,
        groups: Any = None,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        standardise: bool = True,
        class_weight: Any = None,
        threshold: float | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
        callbacks: Any = None,
    ) -> None:
        self.prior = prior
        self.groups = groups
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.standardise = standardise
        self.class_weight = class_weight
        self.threshold = threshold
        self.warm_start = warm_start
        self.random_state = random_state
        self.callbacks = callbacks

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseLogisticRegression:
        """Learn the prior and sample the coefficients; arguments as in `SparseLinearRegression`."""
        return self._fitted(X, y, sample_weight, None)

    def _fitted(self, X: Any, y: Any, sample_weight: Any, more: More | None) -> Self:
        X, y, weights = self._checked(X, y, sample_weight, more)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must have at least two classes with positive weight, got only one class: "
                f"{self.classes_.tolist()}."
            )
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
        targets = labels.astype(np.float64)
        self._answer(X, targets, weights, more, classes=len(self.classes_))
        self.coef_ = self._answer_.mean
        self.intercept_ = self._answer_.level
        self.stacking_ = 1.0 if self._answer_.mode is None else self._answer_.mode.share
        self._doubt(X, y)
        return self

    def _meaning(self) -> str:
        classes = self.classes_.tolist()
        if len(classes) == 2:
            return f"log-odds of {classes[1]!r} against {classes[0]!r}"
        return (
            "for each class, the logarithm of its probability up to a term that all classes share "
            "(the difference of two classes is the log-odds of one against the other)"
        )

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class: (rows, classes).

        It is an average over the posterior, possibly mixed with the mode (`stacking_`).
        """
        X = self._features(X)
        average = self._over_draws(X, lambda z: _probabilities(z).mean(axis=0).T).T
        return self._mixed(X, average)

    def _mixed(self, X: Any, p: np.ndarray) -> np.ndarray:
        """Probabilities p of shape (..., rows, classes), mixed with those of the mode."""
        mode = self._answer_.mode
        if mode is None or mode.share == 1:
            return p
        z = (X @ mode.coefficients + mode.level)[:, None]
        return mode.share * p + (1 - mode.share) * _probabilities(z)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:
        """Quantiles of the probability of each class, over the posterior: (2, rows, classes)."""
        tails = tails_of(level)

        def quantiles(z: np.ndarray) -> np.ndarray:
            return np.quantile(_probabilities(z), tails, axis=0).transpose(0, 2, 1)

        X = self._features(X)
        return self._mixed(X, self._over_draws(X, quantiles).transpose(0, 2, 1))

    def _responses(self, X: Any, z: np.ndarray, rng: Any) -> np.ndarray:
        reached = np.cumsum(self._mixed(X, _probabilities(z)), axis=-1)
        places = np.sum(rng.random_sample((*z.shape[:2], 1)) > reached, axis=-1)
        return self.classes_[np.minimum(places, len(self.classes_) - 1)]


class SparsePoissonRegression(RegressorMixin, SparseRegression):
    r"""Poisson regression with a logarithmic link, whose sparse prior is learned from the data.

    The prior is that of `SparseLinearRegression`, the sampler that of `SparseLogisticRegression`.
    The intercept is normal with standard deviation 10 around the log of the mean count.

    Arguments and attributes are those of `SparseLinearRegression`, without the noise.

    Example:
        >>> import numpy as np
        >>> from pipla.regression import SparsePoissonRegression
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((200, 50))
        >>> y = rng.poisson(np.exp(1 + X[:, 0]))
        >>> model = SparsePoissonRegression().fit(X, y)
        >>> bool(abs(model.coef_[0] - 1) < 0.1 and abs(model.intercept_ - 1) < 0.1)
        True
    """

    _unit = "logarithms of the rate"

    def __init__(
        self,
        prior: str = "learned",
        *,
        groups: Any = None,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        standardise: bool = True,
        threshold: float | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
        callbacks: Any = None,
    ) -> None:
        self.prior = prior
        self.groups = groups
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.standardise = standardise
        self.threshold = threshold
        self.warm_start = warm_start
        self.random_state = random_state
        self.callbacks = callbacks

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparsePoissonRegression:
        """Learn the prior and sample the coefficients; y holds counts, or rates with weights."""
        return self._fitted(X, y, sample_weight, None)

    def _fitted(self, X: Any, y: Any, sample_weight: Any, more: More | None) -> Self:
        X, y, weights = self._checked(X, y, sample_weight, more, y_numeric=True)
        y = np.asarray(y, np.float64)
        if np.any(y < 0) or not np.any(y):
            raise ValueError(
                "y must hold counts, none negative and one positive at least; got the smallest "
                f"{y.min():g} and the largest {y.max():g}."
            )
        self._answer(X, y, weights, more, poisson=True)
        self.coef_ = self._answer_.mean[0]
        self.intercept_ = float(self._answer_.level[0])
        rates = np.exp(np.minimum(X @ self.coef_ + self.intercept_, 700.0))
        self._doubt(X, y, constant_doubt(y), dispersion_doubt(y, rates, weights))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The posterior mean of the rate."""
        X = self._features(X)
        return self._over_draws(X, lambda z: _rates(z).mean(axis=0))

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:
        """An interval that holds a new count with this probability at least: (2, rows)."""
        tails = tails_of(level)
        rng = np.random.default_rng(0)

        def quantiles(z: np.ndarray) -> np.ndarray:
            counts = rng.poisson(np.minimum(_rates(z), 1e18))
            return np.quantile(counts, tails, axis=0, method="inverted_cdf")

        return self._over_draws(self._features(X), quantiles)

    def _responses(self, X: Any, z: np.ndarray, rng: Any) -> np.ndarray:
        return rng.poisson(np.minimum(_rates(z), 1e18))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The fraction of Poisson deviance that is explained, as in scikit-learn's regressor."""
        check_is_fitted(self)
        return d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _rates(z: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(z[..., 0], 700.0))


def _probabilities(z: np.ndarray) -> np.ndarray:
    """Of each class, from linear predictors (draws, rows, outputs)."""
    if z.shape[-1] == 1:
        return np.concatenate([expit(-z), expit(z)], axis=-1)
    return np.exp(log_softmax(z, axis=-1))
