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
from pipla.diagnostics import Finding, warn_of
from pipla.networks._explained import loss_without, mean_loss, some_of
from pipla.networks._layers import Layer, layer_named
from pipla.networks._likelihood import NetworkLikelihood
from pipla.networks._ranking import Criterion, largest, scores_of
from pipla.networks.modelling import NetworkModel
from pipla.report.numbers import paragraph

#: Of which weights one network, or several, are made: the mean of all draws, the mean of the draws
#: of one particle, or every draw.
Average = Literal["before", "particle", "after"]
#: There is a warning if more than this share of what the network explains is lost: below it, the
#: test errors of `benchmarks/network_pruning.py` rise by a sixth at most.
CLEAR_LOSS = 0.2


@dataclasses.dataclass(frozen=True)
class PrunedNetwork:
    """A network (or one per draw) with some weights set to 0; made by `TrainedNetwork.prune`.

    Attributes:
        network, theta: as in `TrainedNetwork`.
        particles: the weights of each layer that are left; the leading axis counts the draws, and
            has length 1 unless they were averaged `"after"`.
        masks: which of them are left.
        chain: the latent layers that follow each other, whose dead units can be removed.
        loss_before, loss_after: minus the mean log predictive density of the observations (of at
            most 4096 of them) by the trained network and by this one; `None` where the network was
            loaded without its observations.
        loss_without: that of the best prediction that is the same for all observations; for a loss
            of your own, with all latent weights 0.
        findings: what speaks against the pruned network.
    """

    network: NetworkModel
    theta: PyTree
    particles: dict[str, np.ndarray]
    masks: dict[str, np.ndarray]
    chain: tuple[Layer, ...]
    loss_before: float | None = None
    loss_after: float | None = None
    loss_without: float | None = None
    findings: tuple[Finding, ...] = ()

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
    def lost(self) -> float | None:
        """The share of what the network explains of the observations that pruning has lost.

        It is (after - before) / (without - before), of the losses; `None` where they are unknown.
        """
        if self.loss_before is None or self.loss_after is None or self.loss_without is None:
            return None
        explained = self.loss_without - self.loss_before
        return (self.loss_after - self.loss_before) / explained if explained > 0 else None

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

    @property
    def in_short(self) -> str:
        """How much is left, in one line."""
        return (
            f"Pruned: {self.pruned:.1%} of the latent weights are 0, {self.num_draws} draw(s), "
            f"occupancy {self.occupancy:.1%} without dead units"
        )

    def __repr__(self) -> str:
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
        if self.lost is not None:
            lines.append(
                f"  loss on the observations {self.loss_before:.3g} before, {self.loss_after:.3g} "
                f"after: {max(self.lost, 0.0):.1%} of what the network explains is lost"
            )
        said = [line for one in self.findings for line in paragraph(f"WARNING: {one}.")]
        return "\n".join([self.in_short, *lines, *said])

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
    criterion: Criterion | None = None,
    chain: Sequence[Any] | None = None,
    seen: NetworkLikelihood | None = None,
) -> PrunedNetwork:
    """See `TrainedNetwork.prune`; `seen` are the observations, where there are any."""
    _checks.choice("average", average, get_args(Average))
    if criterion is None:
        criterion = "sensitivity" if threshold is None else "magnitude"
    _checks.choice("criterion", criterion, get_args(Criterion))
    if sum(one is not None for one in (fraction, threshold, units)) != 1:
        raise ValueError("prune needs exactly one of fraction, threshold and units.")
    found, whole = chain_of(network, chain), particles
    if average == "before":
        particles = {name: w.mean(axis=0, keepdims=True) for name, w in particles.items()}
    elif average == "particle":
        particles = _of_one_particle(theta, particles, num_particles, seen)
    known = {"theta": theta, "seen": seen, "chain": found}
    if units is not None:
        masks = _without_units(particles, found, share("units", units))
    elif fraction is not None:
        least = share("fraction", fraction)
        masks = largest(scores_of(criterion, particles, **known), least)
    else:
        limits = threshold if isinstance(threshold, dict) else dict.fromkeys(particles, threshold)
        if set(limits) != set(particles):
            raise ValueError(
                f"threshold must be a number or have one for each layer, {list(particles)}; got "
                f"{list(limits)}."
            )
        numbers = {name: _checks.real("threshold", limit) for name, limit in limits.items()}
        scores = scores_of(criterion, particles, **known)
        masks = {name: score >= numbers[name] for name, score in scores.items()}
    # A weight that is 0 already, of a network that is pruned again, is not left either.
    masks = {name: mask & (particles[name] != 0) for name, mask in masks.items()}
    kept = {name: np.where(masks[name], weights, 0) for name, weights in particles.items()}
    made = PrunedNetwork(network, theta, kept, masks, found)
    if seen is not None:
        made = _with_losses(made, whole, seen)
    made = dataclasses.replace(made, findings=_judged(made))
    warn_of(made.findings, PruningWarning)
    return made


class PruningWarning(UserWarning):
    """A network that pruning has damaged."""


def _with_losses(
    found: PrunedNetwork, whole: dict[str, np.ndarray], seen: NetworkLikelihood
) -> PrunedNetwork:
    """With the losses of the trained network, of the pruned one, and without a network."""
    seen = some_of(seen)
    return dataclasses.replace(
        found,
        loss_before=mean_loss(found.network, found.theta, whole, seen),
        loss_after=mean_loss(found.network, found.theta, found.particles, seen),
        loss_without=loss_without(found.network, found.theta, whole, seen),
    )


def _judged(found: PrunedNetwork) -> tuple[Finding, ...]:
    """What speaks against a pruned network."""
    findings = []
    for name, mask in found.masks.items():
        empty = np.sum(~np.any(mask.reshape(len(mask), -1), axis=1))
        if empty:
            where = f" in {empty} of {len(mask)} draws" if len(mask) > 1 else ""
            sentence = f"no weight of {name!r} is left{where}"
            findings.append(Finding(name, sentence, "prune less"))
    if found.lost is not None and found.lost > CLEAR_LOSS:
        share = "all" if found.lost >= 1 else f"{found.lost:.0%} of what"
        findings.append(
            Finding(
                "the loss",
                f"pruning lost {share} the network explains of the observations (the mean loss was "
                f"{found.loss_before:.3g} and is {found.loss_after:.3g})",
                "prune less, or compare the error of the pruned network on new data",
            )
        )
    return tuple(findings)


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
    theta: PyTree,
    particles: dict[str, np.ndarray],
    num_particles: int,
    seen: NetworkLikelihood | None,
) -> dict[str, np.ndarray]:
    """The mean over time of that particle whose mean explains the training data best.

    Particles may differ by the order and the signs of their units: a mean over them is
    meaningless, a mean over the time of one of them hardly ever.
    """
    means = {
        name: w.reshape(-1, num_particles, *w.shape[1:]).mean(axis=0)
        for name, w in particles.items()
    }
    if seen is None:
        raise ValueError(
            "features and labels (X and y of an estimator) must be given: average='particle' takes "
            "the particle that explains the observations best, and this network was loaded "
            "without them."
        )
    losses = [
        float(seen(theta, {name: jnp.asarray(w[i]) for name, w in means.items()}))
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
