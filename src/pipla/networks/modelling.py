r"""A model of any network: chosen layers are latent under a sparsity prior of learned scale.

$$ U(\theta, x) = \sum_i \ell(f_{\theta, x}(\text{features}_i), \text{label}_i)
   + \sum_l g_l(\alpha_l, x_l) $$

with $x_l$ the weights of layer $l$, $e^{2\alpha_l}$ the scale of its prior, and everything else in
the network (biases, convolutions, normalisations) a deterministic part of theta.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from pipla import _checks, _trees
from pipla._trees import Address, bounded_jit
from pipla.models.model import Model
from pipla.models.noncentred import NonCentred, noncentred
from pipla.networks._families import Family, Loss, Numbers, family_of, noise_of
from pipla.networks._layers import Layer, Prior, layers_of, network_dtype
from pipla.networks._likelihood import NetworkLikelihood
from pipla.prox.combine import separable_sum

FamilyName = Literal["classification", "regression", "poisson"]
#: The most pairs of particle and observation that are evaluated at a time.
LARGEST_BLOCK = 4096


@dataclasses.dataclass(frozen=True)
class NetworkModel:
    """A network as a latent variable model; made by `pipla.networks.model`.

    Attributes:
        model: the `pipla.Model`, centred: x is a dict with the weights of each latent layer. Its
            observations can be taken apart, so that `pipla.Minibatch` works.
        theta: where theta starts: `"scales"`, a dict with the $\\alpha$ of each layer;
            `"network"`, the module without its latent weights; `"noise"`, the log of the standard
            deviation of the noise of a regression.
        layers: the latent layers.
        family: what the network predicts.
    """

    model: Model
    theta: dict[str, Any]
    layers: tuple[Layer, ...]
    family: Family

    @property
    def likelihood(self) -> NetworkLikelihood:
        """The smooth part of the model."""
        assert isinstance(self.model.smooth, NetworkLikelihood)
        return self.model.smooth

    @functools.cached_property
    def noncentred(self) -> NonCentred:
        """The model in $z = e^{-2\\alpha} x$, and the map back; see `pipla.noncentred`."""
        with jax.ensure_compile_time_eval():  # it is kept, and may be asked for inside a program
            return noncentred(self.model)

    def particles(self, num: int, key: Key[Array, ""]) -> dict[str, Array]:
        """Weights of each layer for `num` particles, drawn at the scales of `theta`."""
        num = _checks.integer("num", num, least=1)
        _checks.random_key("key", key)
        # By NumPy: JAX compiles most of a second for the shape of each layer.
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        scales = self.theta["scales"]
        return {
            layer.name: layer.draw(rng, num, float(scales[layer.name]), scales[layer.name].dtype)
            for layer in self.layers
        }

    def modules(self, theta: PyTree, x: PyTree) -> PyTree:
        """The network as a plain module, with these weights put back; `x` is one particle."""
        return self.likelihood.network(theta, x)

    def likelihood_of(self, features: PyTree, labels: Any) -> NetworkLikelihood:
        """The smooth part of the model for other observations."""
        found = _like(features, self.likelihood.features)
        observed = (found, self._labels(labels, _rows(found)))
        return eqx.tree_at(
            lambda one: (one.features, one.labels),
            self.likelihood,
            jax.tree.map(jnp.asarray, observed),
        )

    def predict(self, theta: PyTree, particles: PyTree, features: PyTree) -> np.ndarray:
        """The posterior predictive mean: probabilities (rows, classes), numbers or rates (rows,).

        Averaged over the particles, for some rows at a time.
        """
        return self._over_rows(theta, particles, features)[0]

    def draws(self, theta: PyTree, particles: PyTree, features: PyTree) -> np.ndarray:
        """What each particle predicts: `predict` with a leading axis that counts the particles."""
        found = [
            np.asarray(_each(block, theta, particles))[:, :count]
            for block, count in self._blocks(particles, features)
        ]
        return np.concatenate(found, axis=1)

    def log_predictive_density(
        self, theta: PyTree, particles: PyTree, features: PyTree, labels: Any
    ) -> float:
        """The mean over observations of log p(label | features), averaged over the particles."""
        return float(np.mean(self._over_rows(theta, particles, features, labels)[1]))

    def error(self, theta: PyTree, particles: PyTree, features: PyTree, labels: Any) -> float:
        """The error of `predict`.

        The share of wrong classes, the root mean squared error, or the mean Poisson deviance.
        """
        checked = self._labels(labels, _rows(features))
        return self.family.error(self.predict(theta, particles, features), checked)

    def _labels(self, labels: Any, rows: int) -> np.ndarray:
        outputs, dtype = self._outputs, self.theta["scales"][self.layers[0].name].dtype
        return _checked_labels(self.family, labels, rows, outputs, dtype)

    @functools.cached_property
    def _outputs(self) -> tuple[int, ...]:
        module = self.modules(self.theta, _trees.first(self.particles(1, jax.random.key(0))))
        return _outputs_of(module, self.likelihood.features)

    def _over_rows(
        self, theta: PyTree, particles: PyTree, features: PyTree, labels: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The predictive mean and the log predictive density of every row."""
        checked = None if labels is None else self._labels(labels, _rows(features))
        means, densities = [], []
        for block, count in self._blocks(particles, features, checked):
            mean, density = _averaged(block, theta, particles)
            means.append(np.asarray(mean)[:count])
            densities.append(np.asarray(density)[:count])
        return np.concatenate(means), np.concatenate(densities)

    def _blocks(
        self, particles: PyTree, features: PyTree, labels: np.ndarray | None = None
    ) -> Iterator[tuple[NetworkLikelihood, int]]:
        """The likelihood of some rows at a time, padded to a few sizes, and how many there are."""
        own = self.likelihood
        features = _like(features, own.features)
        rows = _rows(features)
        if labels is None:
            labels = np.zeros((rows, *own.labels.shape[1:]), own.labels.dtype)
        most = max(1, LARGEST_BLOCK // _trees.num_particles(particles))
        size = min(most, 1 << (rows - 1).bit_length())
        for start in range(0, rows, size):
            chosen = np.minimum(np.arange(start, start + size), rows - 1)
            some = jax.tree.map(lambda leaf, i=chosen: jnp.asarray(leaf[i]), (features, labels))
            block = eqx.tree_at(lambda one: (one.features, one.labels), own, some)
            yield block, min(size, rows - start)


def model(
    module: PyTree,
    features: PyTree,
    labels: Any,
    *,
    family: FamilyName = "classification",
    prior: Prior = "laplace",
    layers: Mapping[Address, Prior] | Sequence[Address] | None = None,
    loss: Loss | None = None,
) -> NetworkModel:
    r"""A latent variable model of a network.

    Arguments:
        module: any equinox module that is called on the features of *one* observation and returns
            its scores. Its latent weights are replaced by those of the particles; its other floats
            are where the deterministic part of theta starts.
        features: an array (or a pytree of arrays) whose leading axis counts the observations.
        labels: one for each observation.
        family: `"classification"` (integers from 0; one score per class, or a single score for
            two classes), `"regression"` (numbers with normal noise, whose standard deviation is
            learned), `"poisson"` (counts; the score is the log of the rate).
        prior: the prior of every latent layer, with a scale $e^{2\alpha}$ for each layer:
            `"laplace"` (sparse weights), `"group"` (a group lasso on the weights that enter a
            unit), `"group-inputs"` (on the weights that leave an input: units of the layer before),
            or `"normal"`.
        layers: which layers are latent. `None`: the weights of every `eqx.nn.Linear`. A list of
            paths such as `["layers/0"]`; or a mapping from path to prior,
            `{"layers/0": "group", "layers/1": "laplace"}`. Paths may also be tuples,
            `("layers", 0)`, and name an array, `"layers/0/bias"`.
        loss: a function `(scores, label) -> scalar` for one observation, minus its log likelihood,
            in place of a family.

    Example:
        >>> import equinox as eqx, jax, numpy as np, pipla.networks
        >>> rng = np.random.default_rng(0)
        >>> features = rng.standard_normal((50, 3))
        >>> labels = (features[:, 0] > 0).astype(int)
        >>> module = eqx.nn.MLP(3, 2, width_size=4, depth=1, key=jax.random.key(0))
        >>> network = pipla.networks.model(module, features, labels)
        >>> particles = network.particles(10, jax.random.key(1))
        >>> {name: weights.shape for name, weights in particles.items()}
        {'layers/0': (10, 4, 3), 'layers/1': (10, 2, 4)}
        >>> network.predict(network.theta, particles, features).shape
        (50, 2)
    """
    _checks.leaves("module", module)
    if not callable(module):
        raise TypeError(
            "module must be callable on the features of one observation, such as eqx.nn.MLP; got "
            f"{type(module).__name__}."
        )
    chosen_family = family_of(family, loss)
    found = layers_of(module, layers, prior)
    dtype = network_dtype(module)
    features = _checked_features(features, dtype)
    floats, skeleton = eqx.partition(module, _checks.is_float)
    floats = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), floats)
    _checks.finite("module", floats)
    outputs = _outputs_of(eqx.combine(floats, skeleton), features)
    rows = _rows(features)
    checked = _checked_labels(chosen_family, labels, rows, outputs, dtype)
    for layer in found:
        floats = _trees.put_part(floats, layer.path, None)
    theta: dict[str, Any] = {
        "network": floats,
        "scales": {one.name: jnp.asarray(one.first_scale(), dtype) for one in found},
    }
    if isinstance(chosen_family, Numbers):
        theta["noise"] = jnp.asarray(np.log(max(float(np.std(checked)), 1e-6)), dtype)
    terms = [one.term().on(theta=("scales", one.name), x=one.name) for one in found]
    likelihood = NetworkLikelihood(
        skeleton=skeleton,
        features=jax.tree.map(jnp.asarray, features),
        labels=jnp.asarray(checked),
        family=chosen_family,
        paths=tuple((one.name, one.path) for one in found),
    )
    return NetworkModel(Model(likelihood, separable_sum(*terms)), theta, found, chosen_family)


# Programs. #


@bounded_jit()
def _averaged(fixed: Any, arrays: Any, theta: PyTree, particles: PyTree) -> tuple[Array, Array]:
    """For each row the mean prediction, and the log of the mean density, over the particles."""
    block: NetworkLikelihood = eqx.combine(fixed, arrays)

    def one(x: PyTree) -> tuple[Array, Array]:
        module = block.network(theta, x)

        def row(features: PyTree, label: Array) -> tuple[Array, Array]:
            scores = module(features)
            loss = block.family.loss(scores, label, noise_of(theta))
            return block.family.mean(scores), -loss

        return jax.vmap(row)(block.features, block.labels)

    means, densities = jax.vmap(one)(particles)
    count = jnp.log(jnp.asarray(_trees.num_particles(particles), densities.dtype))
    return jnp.mean(means, axis=0), jax.nn.logsumexp(densities, axis=0) - count


@bounded_jit()
def _each(fixed: Any, arrays: Any, theta: PyTree, particles: PyTree) -> Array:
    """For each particle and row the mean of an observation."""
    block: NetworkLikelihood = eqx.combine(fixed, arrays)

    def one(x: PyTree) -> Array:
        module = block.network(theta, x)
        return jax.vmap(lambda features: block.family.mean(module(features)))(block.features)

    return jax.vmap(one)(particles)


# Checks. #


def _rows(features: PyTree) -> int:
    return int(np.shape(jax.tree.leaves(features)[0])[0])


def _checked_features(features: PyTree, dtype: Any) -> PyTree:
    """Host arrays with one leading axis; floats in the dtype of the network."""

    def leaf(where: str, value: Any) -> np.ndarray:
        found = _checks.on_host(where, value)
        if not found.ndim or not len(found):
            raise ValueError(
                f"{where} must have a leading axis that counts the observations, got shape "
                f"{found.shape}."
            )
        _checks.finite(where, found)
        # Integers may be indices, of an embedding for example.
        return found.astype(dtype) if found.dtype.kind in "fb" else found

    if isinstance(features, list):
        features = _checks.on_host("features", features)
    found = _checks.map_leaves("features", leaf, features)
    counts = {len(one) for one in jax.tree.leaves(found)}
    if len(counts) != 1:
        raise ValueError(
            "features must have one number of observations in every array, got "
            f"{sorted(counts) or 'no array'}."
        )
    return found


def _like(features: PyTree, known: PyTree) -> PyTree:
    """New features, of the kind that the model was made with."""
    floats = [leaf.dtype for leaf in jax.tree.leaves(known) if _checks.is_float(leaf)]
    found = _checked_features(features, floats[0] if floats else np.float32)
    if _checks.structure(found) != _checks.structure(known):
        raise ValueError(
            f"features must have the structure {_checks.structure(known)} of those that the model "
            f"was made with, got {_checks.structure(found)}."
        )

    def leaf(where: str, value: np.ndarray) -> np.ndarray:
        old = next(kept)
        if value.shape[1:] != old.shape[1:]:
            raise ValueError(
                f"{where} must have shape (observations, {', '.join(map(str, old.shape[1:]))}) "
                f"like those that the model was made with, got {value.shape}."
            )
        return value.astype(old.dtype)

    kept = iter(jax.tree.leaves(known))
    return _checks.map_leaves("features", leaf, found)


def _outputs_of(module: PyTree, features: PyTree) -> tuple[int, ...]:
    """The shape of the scores of one observation; an error where the module cannot be called."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), features)
    try:
        scores = eqx.filter_eval_shape(module, one)
    except Exception as error:  # a module may raise anything at a shape it is not made for
        shapes = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", one)
        raise ValueError(
            f"module failed on the features of one observation, {shapes}: "
            f"{str(error).rstrip('.')}. It is called as "
            "module(features[i]), without a batch axis, a key or a state; shape the features as "
            "its first layer expects them."
        ) from error
    if not isinstance(scores, jax.ShapeDtypeStruct):
        raise ValueError(
            "module must return its scores as one array, got "
            f"{_checks.show(jax.tree.structure(scores))}."
        )
    return tuple(scores.shape)


def _checked_labels(
    family: Family, labels: Any, rows: int, outputs: tuple[int, ...], dtype: Any
) -> np.ndarray:
    checked = family.labels(labels, outputs, dtype)
    if len(checked) != rows:
        raise ValueError(
            f"labels must have one entry for each of the {rows} observations in features, got "
            f"{len(checked)}."
        )
    return checked
