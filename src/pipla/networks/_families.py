r"""What a network predicts: classes, numbers with noise, counts, or what a loss of your own says.

A family turns the scores of a network into minus a log likelihood, and draws of the scores into
predictions. `theta["noise"]`, where there is one, is $\log \sigma$.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla import _checks

#: Minus the log likelihood of one observation, of its scores and its label.
Loss = Callable[[Array, Array], Array]


class Family(eqx.Module):
    """The observation model of a network."""

    #: Whether theta has a part "noise".
    learns_noise: ClassVar[bool] = False

    @abc.abstractmethod
    def labels(self, labels: Any, outputs: tuple[int, ...], dtype: Any) -> np.ndarray:
        """The labels as the loss needs them, or an error that says what is wrong with them."""

    @abc.abstractmethod
    def loss(self, scores: Array, label: Array, noise: Array | None) -> Array:
        """Minus the log likelihood of one observation."""

    @abc.abstractmethod
    def mean(self, scores: Array) -> Array:
        """The mean of an observation given its scores: probabilities, a number, a rate."""

    def point(self, predicted: np.ndarray) -> np.ndarray:
        """A prediction from an average of `mean`."""
        return predicted

    def observations(
        self, means: np.ndarray, noise: float | None, rng: np.random.Generator
    ) -> np.ndarray:
        """New observations with these means: (draws, rows, ...)."""
        raise TypeError(
            "predict_draws is not defined for a loss of your own, which is no distribution to draw "
            "from; `network.draws` has what each particle predicts."
        )

    def constant_loss(self, labels: np.ndarray) -> float | None:
        """The mean loss of the best prediction that is one for all labels; `None` if unknown."""
        return None

    @abc.abstractmethod
    def error(self, predicted: np.ndarray, labels: np.ndarray) -> float:
        """How wrong averages of `mean` are on these labels."""


class Classes(Family):
    """Classes 0, 1, ...: a softmax of one score per class; with a single score, its logistic."""

    def labels(self, labels: Any, outputs: tuple[int, ...], dtype: Any) -> np.ndarray:
        if len(outputs) > 1:
            raise ValueError(
                "module must return one score per class, a vector, for family='classification'; "
                f"got shape {outputs}."
            )
        count = outputs[0] if outputs and outputs[0] > 1 else 2
        found = _checks.on_host("labels", labels)
        whole = found.astype(np.int32) if np.all(np.isfinite(found)) else np.full_like(found, -1)
        if found.ndim != 1 or np.any(whole != found) or np.any((whole < 0) | (whole >= count)):
            seen = np.unique(found)[:12]
            raise ValueError(
                f"labels must be a vector of integers from 0 to {count - 1}, one class for each "
                f"score of the network, got shape {found.shape} with the values "
                f"{_checks.show(seen)}."
            )
        return whole

    def loss(self, scores: Array, label: Array, noise: Array | None) -> Array:
        if scores.size == 1:
            score = scores.reshape(())
            return jnp.logaddexp(jnp.zeros_like(score), jnp.where(label == 1, -score, score))
        # Not an index: its gradient would be a scatter, which is slow on a CPU.
        hot = label == jnp.arange(scores.size, dtype=label.dtype)
        return jax.nn.logsumexp(scores) - jnp.sum(jnp.where(hot, scores, 0))

    def mean(self, scores: Array) -> Array:
        if scores.size == 1:
            score = scores.reshape(())
            return jnp.stack([jax.nn.sigmoid(-score), jax.nn.sigmoid(score)])
        return jax.nn.softmax(scores)

    def point(self, predicted: np.ndarray) -> np.ndarray:
        return np.argmax(predicted, axis=-1)

    def observations(
        self, means: np.ndarray, noise: float | None, rng: np.random.Generator
    ) -> np.ndarray:
        reached = np.cumsum(means, axis=-1, dtype=np.float64)
        found = np.sum(rng.random((*means.shape[:-1], 1)) > reached, axis=-1)
        return np.minimum(found, means.shape[-1] - 1)

    def constant_loss(self, labels: np.ndarray) -> float:
        """The entropy of the shares of the classes."""
        shares = np.unique(labels, return_counts=True)[1] / len(labels)
        return float(-np.sum(shares * np.log(shares)))

    def error(self, predicted: np.ndarray, labels: np.ndarray) -> float:
        """The share of wrong classes."""
        return float(np.mean(np.argmax(predicted, axis=-1) != labels))


class Numbers(Family):
    r"""Numbers with normal noise of learned standard deviation $\sigma$ (one for all outputs)."""

    learns_noise: ClassVar[bool] = True

    def labels(self, labels: Any, outputs: tuple[int, ...], dtype: Any) -> np.ndarray:
        return _responses(labels, outputs, dtype)

    def loss(self, scores: Array, label: Array, noise: Array | None) -> Array:
        assert noise is not None
        squares = jnp.sum(jnp.square(scores.reshape(-1) - label.reshape(-1)))
        constant = scores.size * (noise + 0.5 * float(np.log(2 * np.pi)))
        return 0.5 * squares * jnp.exp(-2 * noise) + constant

    def mean(self, scores: Array) -> Array:
        return scores.reshape(()) if scores.size == 1 else scores

    def observations(
        self, means: np.ndarray, noise: float | None, rng: np.random.Generator
    ) -> np.ndarray:
        assert noise is not None
        return means + noise * rng.standard_normal(means.shape)

    def constant_loss(self, labels: np.ndarray) -> float:
        """That of the means of the outputs, with the noise around them."""
        values = labels.reshape(len(labels), -1).astype(np.float64)
        variance = max(float(np.mean(np.var(values, axis=0))), np.finfo(np.float64).tiny)
        return 0.5 * values.shape[1] * float(np.log(2 * np.pi * variance) + 1)

    def error(self, predicted: np.ndarray, labels: np.ndarray) -> float:
        """The root of the mean squared error."""
        return float(np.sqrt(np.mean((predicted - labels.reshape(predicted.shape)) ** 2)))


class Counts(Family):
    """Poisson counts; the score is the logarithm of the rate."""

    def labels(self, labels: Any, outputs: tuple[int, ...], dtype: Any) -> np.ndarray:
        found = _responses(labels, outputs, dtype)
        if np.any(found < 0) or np.any(found != np.round(found)):
            raise ValueError(
                "labels must be counts (0, 1, 2, ...) for family='poisson', got "
                f"{_checks.show(np.unique(found)[:12])}."
            )
        return found

    def loss(self, scores: Array, label: Array, noise: Array | None) -> Array:
        scores, label = scores.reshape(-1), label.reshape(-1)
        return jnp.sum(jnp.exp(scores) - label * scores + jax.lax.lgamma(label + 1))

    def mean(self, scores: Array) -> Array:
        return jnp.exp(scores.reshape(()) if scores.size == 1 else scores)

    def observations(
        self, means: np.ndarray, noise: float | None, rng: np.random.Generator
    ) -> np.ndarray:
        return rng.poisson(np.minimum(means.astype(np.float64), 1e18))

    def constant_loss(self, labels: np.ndarray) -> float:
        """That of the mean count of each output."""
        values = labels.reshape(len(labels), -1).astype(np.float64)
        scores = jnp.log(jnp.maximum(jnp.asarray(values.mean(axis=0)), 1e-30))
        return float(self.loss(jnp.tile(scores, len(values)), jnp.asarray(values), None)) / len(
            values
        )

    def error(self, predicted: np.ndarray, labels: np.ndarray) -> float:
        """The mean Poisson deviance."""
        y = labels.reshape(predicted.shape)
        logarithms = y * np.log(np.where(y > 0, y, 1.0) / predicted)
        return float(np.mean(2 * (logarithms - y + predicted)))


class OwnLoss(Family):
    """A loss of the user's own; the prediction is the mean score."""

    function: Loss

    def labels(self, labels: Any, outputs: tuple[int, ...], dtype: Any) -> np.ndarray:
        found = _checks.on_host("labels", labels)
        if not found.ndim:
            raise ValueError("labels must have one entry per observation, got a single number.")
        return found.astype(dtype) if found.dtype.kind == "f" else found

    def loss(self, scores: Array, label: Array, noise: Array | None) -> Array:
        return self.function(scores, label)

    def mean(self, scores: Array) -> Array:
        return scores

    def error(self, predicted: np.ndarray, labels: np.ndarray) -> float:
        """There is none: only the loss is known."""
        raise TypeError(
            "error is not defined for a loss of your own; compare `predict` with the labels, or "
            "use `log_predictive_density`."
        )


FAMILIES: dict[str, type[Family]] = {
    "classification": Classes,
    "regression": Numbers,
    "poisson": Counts,
}


def family_of(name: Any, loss: Any) -> Family:
    """The family of this name, or that of the loss."""
    _checks.choice("family", name, tuple(FAMILIES))
    if loss is None:
        return FAMILIES[name]()
    if not callable(loss):
        raise TypeError(
            "loss must be a function (scores, label) -> minus the log likelihood of one "
            f"observation, got {_checks.show(loss)}."
        )
    return OwnLoss(loss)


def _responses(labels: Any, outputs: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Finite numbers, one for each score of each observation."""
    found = _checks.on_host("labels", labels).astype(dtype)
    one = int(np.prod(outputs)) == 1
    wanted = [()] if outputs == () else [outputs, ()] if one else [outputs]
    if not found.ndim or found.shape[1:] not in wanted:
        rest = "".join(f", {size}" for size in outputs) if not one else ""
        raise ValueError(
            f"labels must have shape (observations{rest or ','}) like the output of the network, "
            f"got {found.shape}."
        )
    _checks.finite("labels", found)
    return found


def noise_of(theta: PyTree) -> Array | None:
    """The part of theta that is the noise."""
    return theta.get("noise")
