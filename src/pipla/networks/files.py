"""Trained networks on disk: numbers, names and no code.

A file cannot hold a module. What is saved is everything that was learned, and the priors and the
family of the network; `load` puts it into a network that the caller makes as before.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from pipla import _trees
from pipla.engine import storage
from pipla.engine.archive import DamagedResultError
from pipla.engine.result import Result
from pipla.networks.modelling import NetworkModel


@dataclasses.dataclass(frozen=True)
class SavedNetwork:
    """What a file holds of a trained network.

    Attributes:
        result: the run, in non-centred coordinates.
        priors: the prior of each latent layer.
        family: the name of the class of what the network predicts.
        warnings: those of the trained network.
    """

    result: Result
    priors: dict[str, str]
    family: str
    warnings: tuple[str, ...]


def save(
    network: NetworkModel, result: Result, warnings: tuple[str, ...], path: str | Path
) -> Path:
    """Write a trained network to a folder of its own, in one step."""
    priors: dict[str, str] = {layer.name: layer.prior for layer in network.layers}
    saved = SavedNetwork(result, priors, type(network.family).__name__, warnings)
    return storage.save(saved, path)


def load(network: NetworkModel, path: str | Path) -> SavedNetwork:
    """What is in this folder, or an error that says why it is not of this network."""
    if not isinstance(network, NetworkModel):
        raise TypeError(
            "network must be made by `pipla.networks.model`, as the one that was trained; got "
            f"{type(network).__name__}."
        )
    found = storage.load(path)
    if not isinstance(found, SavedNetwork):
        raise TypeError(
            f"path {str(path)!r} holds a {type(found).__name__}, not a trained network; use "
            "`pipla.load`."
        )
    here, there = _described(network), _described_result(found)
    for name, expected in there.items():
        if here[name] != expected:
            raise ValueError(
                f"network does not fit the trained one in {str(path)!r}: {name} {here[name]} is "
                f"not the {expected} of the file."
            )
    return found


def _described(network: NetworkModel) -> dict[str, Any]:
    """What a network and a file must have in common, by name."""
    return {
        "layers": {layer.name: layer.prior for layer in network.layers},
        "family": type(network.family).__name__,
        "weights of shape": {layer.name: layer.shape for layer in network.layers},
        "theta of shape": _shapes(network.theta),
    }


def _described_result(saved: SavedNetwork) -> dict[str, Any]:
    weights = {name: np.shape(leaf)[1:] for name, leaf in saved.result.particles.items()}
    return {
        "layers": saved.priors,
        "family": saved.family,
        "weights of shape": weights,
        "theta of shape": _shapes(saved.result.theta_last),
    }


def _shapes(theta: PyTree) -> dict[str, tuple[int, ...]]:
    """By path: the modules of a file are dicts."""
    found = jax.tree_util.tree_leaves_with_path(theta)
    return {"/".join(map(str, _trees.path_keys(path))): np.shape(leaf) for path, leaf in found}


def check_consistent(saved: SavedNetwork) -> None:
    """Raise `DamagedResultError` where what a file says contradicts itself."""
    storage.check_result(saved.result)
    particles, kept = saved.result.particles, saved.result.saved_particles
    trees = {"particles": particles} | ({} if kept is None else {"saved_particles": kept})
    for name, tree in trees.items():
        named = type(tree) is dict and set(tree) == set(saved.priors)
        if not named or any(not isinstance(leaf, np.ndarray | jax.Array) for leaf in tree.values()):
            raise DamagedResultError(f"{name} are not those of the latent layers.")
    for part in ("scales", "network"):
        if type(saved.result.theta_trace) is not dict or part not in saved.result.theta_trace:
            raise DamagedResultError(f"theta has no part {part!r}.")
    if set(saved.result.theta_trace["scales"]) != set(saved.priors):
        raise DamagedResultError("the scales are not those of the latent layers.")


storage.register("network", SavedNetwork, check_consistent)
