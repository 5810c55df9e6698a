"""Pruned networks: weights set to 0, units without weights removed, and what that costs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla import _checks, _trees
from pipla.networks._layers import Layer, layer_named
from pipla.networks.modelling import NetworkModel

#: Of which weights one network, or several, are made: the mean of all draws, the mean of the draws
#: of one particle, or every draw.
Average = Literal["before", "particle", "after"]
#: What ranks the weights.
Criterion = Literal["magnitude", "path"]


@dataclasses.dataclass(frozen=True)
class PrunedNetwork:
    """A network (or one per draw) with some weights set to 0; made by `TrainedNetwork.prune`.

    Attributes:
        network, theta: as in `TrainedNetwork`.
        particles: the weights of each layer that are left; the leading axis counts the draws, and
            has length 1 unless they were averaged `"after"`.
        masks: which of them are left.
        chain: the latent layers that follow each other, whose dead units can be removed.
    """

    network: NetworkModel
    theta: PyTree
    particles: dict[str, np.ndarray]
    masks: dict[str, np.ndarray]
    chain: tuple[Layer, ...]

    @property
    def sparsity(self) -> dict[str, float]:
        """The share of the weights of each layer that are 0."""
        return {name: float(np.mean(~mask)) for name, mask in self.masks.items()}

    @property
    def pruned(self) -> float:
        """The share of all latent weights that are 0."""
        total = sum(mask.size for mask in self.masks.values())
        return sum(int(np.sum(~mask)) for mask in self.masks.values()) / total

    @property
    def dead_units(self) -> dict[str, np.ndarray]:
        """The units that each layer of the chain computes in vain, as booleans (draws, units).

        A unit is dead if no weight leaves it; or if none enters it, where it is then a constant
        that the next layer's bias can take over.
        """
        found = {}
        for layer, after in zip(self.chain[:-1], self.chain[1:], strict=True):
            unused = ~np.any(self.masks[after.name], axis=1)
            found[layer.name] = unused
            if self._constant(0, layer, after) is not None:
                found[layer.name] = unused | ~np.any(self.masks[layer.name], axis=2)
        return found

    @property
    def occupancy(self) -> float:
        """The size of the latent weights without dead units, over their size before: a mean."""
        total = sum(mask[0].size for mask in self.masks.values())
        kept = []
        for draw in range(self.num_draws):
            sizes = {name: mask[0].size for name, mask in self.masks.items()}
            alive = [np.sum(~dead[draw]) for dead in self.dead_units.values()]
            for index, layer in enumerate(self.chain):
                outputs = alive[index] if index < len(alive) else layer.shape[0]
                inputs = alive[index - 1] if index else layer.shape[1]
                sizes[layer.name] = int(outputs * inputs)
            kept.append(sum(sizes.values()))
        return float(np.mean(kept)) / total

    @property
    def num_draws(self) -> int:
        """How many networks there are."""
        return len(next(iter(self.masks.values())))

    def module(self, draw: int = 0) -> PyTree:
        """The network as a plain module with its dead units removed: the same function, smaller."""
        draw = _checks.integer("draw", draw, least=0, most=self.num_draws - 1)
        x = {name: jnp.asarray(weights[draw]) for name, weights in self.particles.items()}
        module = self.network.modules(self.theta, x)
        for layer, after in zip(self.chain[:-1], self.chain[1:], strict=True):
            dead = self.dead_units[layer.name][draw]
            constants = self._constant(draw, layer, after)
            if constants is not None:
                carried = _weight(module, after)[:, dead] @ constants[dead]
                if np.any(carried):
                    path = (*after.path[:-1], "bias")
                    bias = _trees.part("module", module, path)
                    module = _trees.put_part(module, path, bias + carried)
            module = _sliced(module, layer, 0, ~dead)
            module = _sliced(module, after, 1, ~dead)
        return module

    def weights(self, draw: int = 0) -> dict[str, np.ndarray]:
        """All arrays of floats of `module(draw)` by path, as plain NumPy."""
        leaves = jax.tree_util.tree_leaves_with_path(self.module(draw))
        return {
            "/".join(map(str, _trees.path_keys(path))): np.asarray(leaf)
            for path, leaf in leaves
            if _checks.is_float(leaf)
        }

    def predict_proba(self, features: PyTree) -> np.ndarray:
        """As `TrainedNetwork.predict_proba`: the mean over the pruned networks."""
        return self.network.predict(self.theta, self.particles, features)

    def predict(self, features: PyTree) -> np.ndarray:
        """As `TrainedNetwork.predict`."""
        return self.network.family.point(self.predict_proba(features))

    def error(self, features: PyTree, labels: Any) -> float:
        """As `TrainedNetwork.error`."""
        return self.network.error(self.theta, self.particles, features, labels)

    def log_predictive_density(self, features: PyTree, labels: Any) -> float:
        """As `TrainedNetwork.log_predictive_density`."""
        return self.network.log_predictive_density(self.theta, self.particles, features, labels)

    def __repr__(self) -> str:
        head = (
            f"PrunedNetwork: {self.pruned:.1%} of the latent weights are 0, "
            f"{self.num_draws} draw(s), occupancy {self.occupancy:.1%} without dead units"
        )
        dead = {name: float(np.mean(np.sum(one, axis=1))) for name, one in self.dead_units.items()}
        lines = [
            f"  {layer.name}: {self.sparsity[layer.name]:.1%} zeros"
            + (
                f", {dead[layer.name]:g} of {layer.shape[0]} units dead"
                if layer.name in dead
                else ""
            )
            for layer in self.network.layers
        ]
        return "\n".join([head, *lines])

    def _constant(self, draw: int, layer: Layer, after: Layer) -> np.ndarray | None:
        """What each unit returns when no weight enters it; `None` where that cannot be moved on.

        It can where the module is an `eqx.nn.MLP`, whose activation is known, and the constant is
        0 or the next layer has a bias.
        """
        module = self.network.likelihood.skeleton
        if not isinstance(module, eqx.nn.MLP) or not callable(module.activation):
            return None
        network = self.theta["network"]
        bias = _trees.part("module", network, (*layer.path[:-1], "bias"))
        bias = np.zeros(layer.shape[0]) if bias is None else np.asarray(bias)
        constants = np.asarray(module.activation(jnp.asarray(bias)))
        has_bias = _trees.part("module", network, (*after.path[:-1], "bias")) is not None
        return constants if has_bias or not np.any(constants) else None


def pruned(
    network: NetworkModel,
    theta: PyTree,
    particles: dict[str, np.ndarray],
    *,
    num_particles: int,
    fraction: float | None,
    threshold: float | dict[str, float] | None,
    units: float | None,
    average: Average,
    criterion: Criterion,
    chain: Sequence[Any] | None,
) -> PrunedNetwork:
    """See `TrainedNetwork.prune`."""
    _checks.choice("average", average, get_args(Average))
    _checks.choice("criterion", criterion, get_args(Criterion))
    if sum(one is not None for one in (fraction, threshold, units)) != 1:
        raise ValueError("prune needs exactly one of fraction, threshold and units.")
    found = chain_of(network, chain)
    if average == "before":
        particles = {name: w.mean(axis=0, keepdims=True) for name, w in particles.items()}
    elif average == "particle":
        particles = _of_one_particle(network, theta, particles, num_particles)
    if units is not None:
        masks = _without_units(particles, found, share("units", units))
    elif fraction is not None:
        masks = _largest(_scores(particles, found, criterion), share("fraction", fraction))
    else:
        scores = _scores(particles, found, criterion)
        limits = threshold if isinstance(threshold, dict) else dict.fromkeys(scores, threshold)
        if set(limits) != set(scores):
            raise ValueError(
                f"threshold must be a number or have one for each layer, {list(scores)}; got "
                f"{list(limits)}."
            )
        numbers = {name: _checks.real("threshold", limit) for name, limit in limits.items()}
        masks = {name: score >= numbers[name] for name, score in scores.items()}
    kept = {name: np.where(masks[name], weights, 0) for name, weights in particles.items()}
    return PrunedNetwork(network, theta, kept, masks, found)


def share(name: str, value: Any) -> float:
    """A number from 0 to 1, 1 excluded."""
    found = _checks.real(name, value)
    if not 0 <= found < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {found:g}.")
    return found


def chain_of(network: NetworkModel, chain: Sequence[Any] | None) -> tuple[Layer, ...]:
    """The layers that follow one another with an elementwise function in between."""
    if chain is None:
        if not isinstance(network.likelihood.skeleton, eqx.nn.MLP):
            return ()
        found = network.layers
        # All of its layers, or a unit might leave through one that is not latent.
        if [one.path for one in found] != [("layers", i, "weight") for i in range(len(found))]:
            return ()
        return found if len(found) == len(network.likelihood.skeleton.layers) else ()
    found = tuple(layer_named(network.layers, address) for address in chain)
    for layer, after in itertools.pairwise(found):
        if len(layer.shape) != 2 or len(after.shape) != 2 or layer.shape[0] != after.shape[1]:
            raise ValueError(
                f"chain: {after.name!r} has weights of shape {after.shape}, which cannot follow "
                f"{layer.name!r} of shape {layer.shape}."
            )
    return found


def _scores(
    particles: dict[str, np.ndarray], chain: tuple[Layer, ...], criterion: Criterion
) -> dict[str, np.ndarray]:
    r"""The magnitude of each weight; or, for a path, times the norm of what leaves its unit.

    $|w_{ij}|$ matters as much as unit $i$ does further on: in a chain of layers $W_1, W_2, \ldots$
    the score of $(W_l)_{ij}$ is $|(W_l)_{ij}| \cdot |(W_{l+1})_{\cdot i}|$.
    """
    scores = {name: np.abs(weights) for name, weights in particles.items()}
    if criterion == "path":
        if not chain:
            raise ValueError(
                "criterion='path' needs layers that follow one another: an eqx.nn.MLP with all of "
                'its layers latent, or `chain=["first", "second"]`.'
            )
        for layer, after in itertools.pairwise(chain):
            leaving = np.linalg.norm(particles[after.name], axis=1)
            scores[layer.name] = scores[layer.name] * leaving[:, :, None]
    return scores


def _largest(scores: dict[str, np.ndarray], fraction: float) -> dict[str, np.ndarray]:
    """In each draw, all but this fraction of the weights of all layers."""
    draws = len(next(iter(scores.values())))
    together = np.concatenate([one.reshape(draws, -1) for one in scores.values()], axis=1)
    count = round(fraction * together.shape[1])
    if not count:
        return {name: np.ones(one.shape, bool) for name, one in scores.items()}
    limits = np.partition(together, count - 1, axis=1)[:, count - 1]
    return {
        name: one > limits.reshape(draws, *(1,) * (one.ndim - 1)) for name, one in scores.items()
    }


def _without_units(
    particles: dict[str, np.ndarray], chain: tuple[Layer, ...], fraction: float
) -> dict[str, np.ndarray]:
    """All weights but those of the units of the smallest product of entering and leaving norms."""
    if len(chain) < 2:
        raise ValueError(
            "units needs layers that follow one another: an eqx.nn.MLP with all of its layers "
            'latent, or `chain=["first", "second"]`.'
        )
    masks = {name: np.ones(weights.shape, bool) for name, weights in particles.items()}
    for layer, after in itertools.pairwise(chain):
        entering = np.linalg.norm(particles[layer.name], axis=2)
        leaving = np.linalg.norm(particles[after.name], axis=1)
        order = np.argsort(entering * leaving, axis=1)
        gone = order[:, : round(fraction * layer.shape[0])]
        for draw, dead in enumerate(gone):
            masks[layer.name][draw, dead] = False
            masks[after.name][draw, :, dead] = False
    return masks


def _of_one_particle(
    network: NetworkModel, theta: PyTree, particles: dict[str, np.ndarray], num_particles: int
) -> dict[str, np.ndarray]:
    """The mean over time of that particle whose mean explains the training data best.

    Particles may differ by the order and the signs of their units: a mean over them is
    meaningless, a mean over the time of one of them hardly ever.
    """
    means = {
        name: w.reshape(-1, num_particles, *w.shape[1:]).mean(axis=0)
        for name, w in particles.items()
    }
    likelihood = network.likelihood
    losses = [
        float(likelihood(theta, {name: jnp.asarray(w[i]) for name, w in means.items()}))
        for i in range(num_particles)
    ]
    best = int(np.argmin(losses))
    return {name: w[best : best + 1] for name, w in means.items()}


def _weight(module: PyTree, layer: Layer) -> Array:
    return _trees.part("module", module, layer.path)


def _sliced(module: PyTree, layer: Layer, axis: int, kept: np.ndarray) -> PyTree:
    """The module with some of the outputs (axis 0) or inputs (axis 1) of a layer left out."""
    above, weight = layer.path[:-1], _weight(module, layer)
    module = _trees.put_part(module, layer.path, jnp.compress(kept, weight, axis=axis))
    node = _trees.part("module", module, above)
    if not isinstance(node, eqx.nn.Linear):
        return module
    if axis == 0 and node.bias is not None:
        node = _trees.put_part(node, "bias", node.bias[kept])
    name = "out_features" if axis == 0 else "in_features"
    return _trees.put_part(module, above, _trees.put_part(node, name, int(np.sum(kept))))
