"""scikit-learn estimators: multilayer perceptrons whose sparsity is learned from the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from pipla import _checks
from pipla._extras import extra
from pipla.networks._layers import Prior
from pipla.networks.modelling import FamilyName, model
from pipla.networks.pruning import PrunedNetwork
from pipla.networks.trained import TrainedNetwork
from pipla.networks.training import train

with extra("sklearn", "a scikit-learn estimator"):
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

#: The activations by name.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "selu": jax.nn.selu,
    "silu": jax.nn.silu,
}
#: Standardised features are clipped here: a feature that hardly varies in training may be far off
#: in new data, and one such number would decide a prediction.
CLIP = 5.0


class Perceptron(eqx.Module):
    """Linear layers with an elementwise activation in between."""

    layers: tuple[eqx.nn.Linear, ...]
    activation: str = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], activation: str, key: Key[Array, ""]) -> None:
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            _without_bias(eqx.nn.Linear(inputs, outputs, key=one))
            for inputs, outputs, one in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.activation = activation

    def __call__(self, features: Array) -> Array:
        for layer in self.layers[:-1]:
            features = ACTIVATIONS[self.activation](layer(features))
        return self.layers[-1](features)


def _without_bias(layer: eqx.nn.Linear) -> eqx.nn.Linear:
    """The layer with biases that start at 0."""
    zeros = jnp.zeros(layer.weight.shape[0], layer.weight.dtype)
    return eqx.tree_at(lambda one: one.bias, layer, zeros)


class _SparseBayesianMLP(BaseEstimator):
    """What the two estimators share."""

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

    def _train(self, X: np.ndarray, labels: np.ndarray, outputs: int, family: FamilyName) -> None:
        """Standardise, make the network, train it, and set the attributes."""
        _checks.choice("activation", self.activation, tuple(ACTIVATIONS))
        hidden = self.hidden_layer_sizes
        hidden = (hidden,) if isinstance(hidden, int | np.integer) else tuple(hidden)
        hidden = tuple(_checks.integer("hidden_layer_sizes", one, least=1) for one in hidden)
        self.mean_ = X.mean(axis=0)
        spread = X.std(axis=0)
        # A constant feature may have a spread of rounding errors.
        constant = spread <= 1e-12 * np.maximum(np.abs(self.mean_), 1e-300)
        self.scale_ = np.where(constant, 1.0, spread)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        for_module, for_run = jax.random.split(jax.random.key(seed))
        module = Perceptron([X.shape[1], *hidden, outputs], self.activation, for_module)
        network = model(module, self._standardised(X), labels, family=family, prior=self.prior)
        self.network_: TrainedNetwork = train(
            network,
            num_particles=self.num_particles,
            num_steps=self.num_steps,
            batch_size=self.batch_size,
            key=for_run,
            progress=False,
        )
        self.scales_ = dict(self.network_.scales)
        self.scales_stderr_ = dict(self.network_.scales_stderr)
        self.warnings_ = self.network_.warnings
        self.n_iter_ = self.network_.result.num_steps

    def prune(self, fraction: float | None = None, **options: Any) -> PrunedNetwork:
        """A smaller network; see `TrainedNetwork.prune`. It takes what `standardise` returns."""
        check_is_fitted(self)
        layers = self.network_.layers
        chain = tuple(layer.name for layer in layers) if len(layers) > 1 else None
        return self.network_.prune(fraction, **({"chain": chain} | options))

    def standardise(self, X: Any) -> np.ndarray:
        """Features as the network sees them: standardised as in training, clipped at ±5."""
        check_is_fitted(self)
        return self._standardised(self._validated(X, reset=False))

    def _validated(self, X: Any, *others: Any, **options: Any) -> Any:
        _checks.in_memory("X", X)
        return validate_data(self, X, *others, dtype=np.float64, **options)

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        return np.clip((X - self.mean_) / self.scale_, -CLIP, CLIP)


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
        scales_, scales_stderr_: $\alpha$ of each layer, and its Monte-Carlo error.
        network_: the `pipla.networks.TrainedNetwork`.
        warnings_: what speaks against the answer, one sentence each.
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
        self._train(X, labels, len(self.classes_), "classification")
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


class SparseBayesianMLPRegressor(RegressorMixin, _SparseBayesianMLP):
    r"""A multilayer perceptron for numbers, whose sparsity and noise are learned from the data.

    As `SparseBayesianMLPClassifier`, with normal noise. The response is standardised, too.

    Arguments:
        hidden_layer_sizes, activation, prior, num_particles, num_steps, batch_size, random_state:
            as for `SparseBayesianMLPClassifier`.

    Attributes:
        noise_: the learned standard deviation of the noise, in the units of y.
        scales_, scales_stderr_, network_, warnings_, mean_, scale_, n_iter_: as for
            `SparseBayesianMLPClassifier`.
    """

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
        self._train(X, (y - self._level) / self._unit, 1, "regression")
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
