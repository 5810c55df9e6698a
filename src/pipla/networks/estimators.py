"""scikit-learn estimators: multilayer perceptrons whose sparsity is learned from the data."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np
from jaxtyping import Array, Key

from pipla import _checks
from pipla._extras import extra
from pipla.engine.archive import DamagedResultError
from pipla.fitting.saved import Saved, SavedEstimator, attributes
from pipla.networks._layers import Prior
from pipla.networks._outputs import columns_of, draws_of, figures_of, overview_of
from pipla.networks._perceptron import ACTIVATIONS, Perceptron, chain_names
from pipla.networks._ranking import Criterion
from pipla.networks.modelling import FamilyName, NetworkModel, model
from pipla.networks.pruning import Average, PrunedNetwork, chain_of
from pipla.networks.trained import TrainedNetwork
from pipla.networks.training import train
from pipla.report.outputs import Outputs, Overview
from pipla.report.page import Figure
from pipla.report.predictions import calibration, observed_against

with extra("sklearn", "a scikit-learn estimator"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

#: Standardised features are clipped here: a feature that hardly varies in training may be far off
#: in new data, and one such number would decide a prediction.
CLIP = 5.0
#: What a file holds of a `PrunedNetwork`; all else is that of the trained one.
PRUNED_FIELDS = ("particles", "masks", "loss_before", "loss_after", "loss_without", "findings")


class _SparseBayesianMLP(Outputs, Saved, BaseEstimator):
    """What the two estimators share."""

    _family: ClassVar[FamilyName]
    #: What the noise is multiplied by for the units of y.
    _unit: float = 1.0

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int = (40,),
        *,
        activation: str = "tanh",
        prior: Prior = "laplace",
        num_particles: int = 10,
        num_steps: int | None = None,
        batch_size: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.num_particles = num_particles
        self.num_steps = num_steps
        self.batch_size = batch_size
        self.random_state = random_state

    def _network(self, X: np.ndarray, labels: np.ndarray, key: Key[Array, ""]) -> NetworkModel:
        """The network of standardised features."""
        _checks.choice("activation", self.activation, tuple(ACTIVATIONS))
        hidden = self.hidden_layer_sizes
        hidden = (hidden,) if isinstance(hidden, int | np.integer) else tuple(hidden)
        hidden = tuple(_checks.integer("hidden_layer_sizes", one, least=1) for one in hidden)
        classes = self.__dict__.get("classes_")
        outputs = 1 if classes is None else len(classes)
        module = Perceptron([X.shape[1], *hidden, outputs], self.activation, key)
        return model(module, X, labels, family=self._family, prior=self.prior)

    def _train(self, X: np.ndarray, labels: np.ndarray) -> None:
        """Standardise, make the network, train it, and set the attributes."""
        self.mean_ = X.mean(axis=0)
        spread = X.std(axis=0)
        # A constant feature may have a spread of rounding errors.
        constant = spread <= 1e-12 * np.maximum(np.abs(self.mean_), 1e-300)
        self.scale_ = np.where(constant, 1.0, spread)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        for_module, for_run = jax.random.split(jax.random.key(seed))
        network = self._network(self._standardised(X), labels, for_module)
        self.network_: TrainedNetwork = train(
            network,
            num_particles=self.num_particles,
            num_steps=self.num_steps,
            batch_size=self.batch_size,
            key=for_run,
            progress=False,
        )
        self.__dict__.pop("pruned_", None)  # of a pruned estimator that is fitted again
        self.scales_ = dict(self.network_.scales)
        self.scales_mcse_ = dict(self.network_.scales_mcse)
        self.findings_ = self.network_.findings
        self.n_iter_ = self.network_.result.num_steps

    def prune(
        self,
        fraction: float | None = None,
        *,
        threshold: float | dict[str, float] | None = None,
        units: float | None = None,
        average: Average = "after",
        criterion: Criterion | None = None,
        X: Any = None,
        y: Any = None,
    ) -> Self:
        """A fitted copy of this estimator with weights set to 0; this one is left as it is.

        The copy takes the features and returns the responses of the data, as this one does. Its
        `pruned_` is the `PrunedNetwork`: what pruning costs, and the network as a plain module,
        which takes what `standardise` returns. The noise of a regression stays as it was learned.

        Arguments:
            fraction, threshold, units, average, criterion: see `TrainedNetwork.prune`.
            X, y: the data to judge by, in place of those of `fit`; a loaded model needs them.
        """
        check_is_fitted(self)
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together: the loss is judged by both.")
        observations = {}
        if X is not None:
            X, y = self._validated(X, y, reset=False)
            observations = {"features": self._standardised(X), "labels": self._labels(y)}
        found = self.network_.prune(
            fraction,
            threshold=threshold,
            units=units,
            average=average,
            criterion=criterion,
            chain=chain_names(self.network_.network),
            **observations,
        )
        made = copy.copy(self)
        made._set_pruned(found)
        return made

    def _set_pruned(self, found: PrunedNetwork) -> None:
        """Predict by the weights that are left."""
        self.pruned_ = found
        whole = self.network_
        self.findings_ = (*whole.findings, *found.findings)
        # The mean of some draws is one particle.
        count = whole.num_particles if found.num_draws % whole.num_particles == 0 else 1
        self.network_ = dataclasses.replace(
            whole, particles=found.particles, num_particles=count, findings=self.findings_
        )

    def predict_draws(
        self, X: Any, num_draws: int | None = None, *, random_state: Any = 0
    ) -> np.ndarray:
        """New responses from the posterior predictive distribution: an array (draws, rows).

        Arguments:
            X: features.
            num_draws: how many; by default as many as there are draws of the weights.
            random_state: the seed of the random numbers.
        """
        features = self.standardise(X)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return self._responses(self.network_.predict_draws(features, num_draws, random_state=seed))

    def _labels(self, y: Any) -> np.ndarray:
        """Responses as the network has them; the inverse of `_responses`."""
        raise NotImplementedError

    def _responses(self, drawn: np.ndarray) -> np.ndarray:
        """What the network draws in the units, or by the names, of the data."""
        raise NotImplementedError

    def standardise(self, X: Any) -> np.ndarray:
        """Features as the network sees them: standardised as in training, clipped at ±5."""
        check_is_fitted(self)
        return self._standardised(self._validated(X, reset=False))

    def _validated(self, X: Any, *others: Any, **options: Any) -> Any:
        _checks.in_memory("X", X)
        return validate_data(self, X, *others, dtype=np.float64, **options)

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        return np.clip((X - self.mean_) / self.scale_, -CLIP, CLIP)

    # What `Outputs` and `Saved` ask for. #

    def _names(self, given: Sequence[str] | None) -> Sequence[str] | None:
        check_is_fitted(self)
        return self.__dict__.get("feature_names_in_") if given is None else given

    def _overview(self, names: Sequence[str] | None, level: float) -> Overview:
        names = self._names(names)
        found = overview_of(
            self.network_, names, level, f"{type(self).__name__}, prior {self.prior}"
        )
        pruned: PrunedNetwork | None = vars(self).get("pruned_")
        if pruned is None:
            return found
        return found._replace(lead=f"{found.lead} {pruned.in_short}.")

    def _figures(
        self, names: Sequence[str] | None, level: float, most: int, observed: tuple[Any, Any]
    ) -> list[Figure]:
        names = self._names(names)
        found = figures_of(self.network_, names, most)
        if observed[0] is not None:
            found.append(self._prediction(observed[0], np.asarray(observed[1])))
        return found

    def _prediction(self, X: Any, y: np.ndarray) -> Figure:
        """Observations beside what is predicted of them."""
        raise NotImplementedError

    def _columns(self, names: Sequence[str] | None, level: float) -> dict[str, Any]:
        check_is_fitted(self)
        return columns_of(self.network_, level, self._unit)

    def _draws(self, names: Sequence[str] | None) -> Any:
        check_is_fitted(self)
        return draws_of(self.network_)

    def _state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        check_is_fitted(self)
        state = attributes(self, frozenset({"network_", "pruned_"}))
        state["num_observations"] = self.network_.num_observations
        if "pruned_" in vars(self):
            state["findings_"] = self.findings_[: -len(self.pruned_.findings) or None]
            state["pruned"] = {name: getattr(self.pruned_, name) for name in PRUNED_FIELDS}
        return self.get_params(deep=False), state, {"result": self.network_.result}

    @classmethod
    def _from_state(
        cls, parameters: dict[str, Any], state: dict[str, Any], found: SavedEstimator
    ) -> Any:
        made = cls(**parameters)
        count = state.pop("num_observations")
        pruned = state.pop("pruned", None)
        made.__dict__.update(state)
        if found.result is None:
            raise DamagedResultError("the run of the network is missing.")
        network = made._network(np.zeros((1, made.n_features_in_)), np.zeros(1), jax.random.key(0))
        made.network_ = TrainedNetwork.of(network, found.result, made.findings_, count)
        if pruned is not None:
            chain = chain_of(network, chain_names(network))
            made._set_pruned(PrunedNetwork(network, made.network_.theta, chain=chain, **pruned))
        return made


class SparseBayesianMLPClassifier(ClassifierMixin, _SparseBayesianMLP):
    r"""A multilayer perceptron for classes; how sparse its weights are is learned from the data.

    The weights of each layer are Laplace (or normal, or grouped) with a scale $e^{2\alpha}$ that
    maximises the marginal likelihood; they are sampled from their posterior, and probabilities are
    averages over it. Biases are deterministic. Features are standardised and clipped at ±5.

    Arguments:
        hidden_layer_sizes: the number of units of each hidden layer.
        activation: `"tanh"`, `"relu"`, `"selu"` or `"silu"`.
        prior: `"laplace"`, `"group"`, `"group-inputs"` or `"normal"`; see `pipla.networks.model`.
        num_particles: how many networks are sampled side by side, an even number.
        num_steps: the steps of the sampler; see `pipla.networks.train`.
        batch_size: the most observations per step; by default all.
        random_state: the seed of the random numbers. Equal seeds give equal answers.

    Attributes:
        classes_: the labels.
        scales_, scales_mcse_: $\alpha$ of each layer, and its Monte-Carlo error.
        network_: the `pipla.networks.TrainedNetwork`.
        pruned_: the `pipla.networks.PrunedNetwork`, only of what `prune` returns.
        findings_: what speaks against the answer.
        mean_, scale_: of the features.
        n_iter_: the number of steps.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from pipla.networks.estimators import SparseBayesianMLPClassifier
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = SparseBayesianMLPClassifier((10,), num_steps=500).fit(X[::2], y[::2])
        >>> bool(model.score(X[1::2], y[1::2]) > 0.95)
        True
    """

    _family: ClassVar[FamilyName] = "classification"

    def fit(self, X: Any, y: Any) -> SparseBayesianMLPClassifier:
        """Sample the weights and learn their scales.

        Arguments:
            X: features of shape (observations, features).
            y: a label for each observation.
        """
        X, y = self._validated(X, y, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must have at least two classes, got only one class: {self.classes_.tolist()}."
            )
        self._train(X, labels)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, averaged over the posterior: (rows, classes)."""
        features = self.standardise(X)
        found = self.network_.predict_proba(features).astype(np.float64)
        return found / found.sum(axis=1, keepdims=True)  # to the last digit

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        probabilities = self.predict_proba(X)  # before `classes_`, for the error of an unfitted one
        return self.classes_[np.argmax(probabilities, axis=1)]

    def _labels(self, y: Any) -> np.ndarray:
        unknown = ~np.isin(y, self.classes_)
        if np.any(unknown):
            raise ValueError(
                f"y must hold labels of fit, {self.classes_.tolist()}, got {y[unknown][0]!r}."
            )
        return np.searchsorted(self.classes_, y)

    def _responses(self, drawn: np.ndarray) -> np.ndarray:
        return self.classes_[drawn]

    def _prediction(self, X: Any, y: np.ndarray) -> Figure:
        last = self.classes_[-1]
        return calibration(self.predict_proba(X)[:, -1], y == last, str(last))


class SparseBayesianMLPRegressor(RegressorMixin, _SparseBayesianMLP):
    r"""A multilayer perceptron for numbers, whose sparsity and noise are learned from the data.

    As `SparseBayesianMLPClassifier`, with normal noise. The response is standardised, too.

    Arguments:
        hidden_layer_sizes, activation, prior, num_particles, num_steps, batch_size, random_state:
            as for `SparseBayesianMLPClassifier`.

    Attributes:
        noise_: the learned standard deviation of the noise, in the units of y.
        scales_, scales_mcse_, network_, findings_, mean_, scale_, n_iter_: as for
            `SparseBayesianMLPClassifier`.
    """

    _family: ClassVar[FamilyName] = "regression"

    def fit(self, X: Any, y: Any) -> SparseBayesianMLPRegressor:
        """Sample the weights, learn their scales and the noise.

        Arguments:
            X: features of shape (observations, features).
            y: a response for each observation.
        """
        X, y = self._validated(X, y, ensure_min_samples=2, y_numeric=True)
        y = np.asarray(y, np.float64)
        self._level = float(y.mean())
        self._unit = float(y.std()) or 1.0
        self._train(X, (y - self._level) / self._unit)
        self.noise_ = float(self.network_.noise or 0.0) * self._unit
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The posterior mean of the response."""
        features = self.standardise(X)
        return self.network_.predict(features).astype(np.float64) * self._unit + self._level

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:
        """An interval that holds a new response with this probability: an array (2, rows)."""
        features = self.standardise(X)
        found = self.network_.predict_interval(features, level).astype(np.float64)
        return found * self._unit + self._level

    def _labels(self, y: Any) -> np.ndarray:
        return (np.asarray(y, np.float64) - self._level) / self._unit

    def _responses(self, drawn: np.ndarray) -> np.ndarray:
        return drawn.astype(np.float64) * self._unit + self._level

    def _prediction(self, X: Any, y: np.ndarray) -> Figure:
        return observed_against(self.predict(X), y)
