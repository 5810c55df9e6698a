"""Lanes of a sweep over devices: each device runs its own loop and waits for no other."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Key, PyTree

from pipla.algorithms.base import Algorithm
from pipla.engine.chunk import Carry, Chunk, Place, advance
from pipla.engine.save import Save
from pipla.models.model import Model

LANES, ALIKE = PartitionSpec("lanes"), PartitionSpec()


def mesh_for(lanes: int) -> Mesh | None:
    """All devices, if they divide the lanes evenly; `None` where there is nothing to divide."""
    devices = jax.devices()
    if len(devices) == 1 or lanes % len(devices):
        return None
    return Mesh(np.asarray(devices), ("lanes",))


def spread(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """The lanes of every array where they belong."""
    if mesh is None:
        return tree
    arrays, static = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(mesh, LANES)), static)


@eqx.filter_jit
def advance_lanes(
    algorithm: Algorithm,
    model: Model,
    save: Save,
    key: Key[Array, " lanes"],
    carry: Carry,
    place: Place,
    capacity: int,
    mesh: Mesh | None,
) -> Chunk:
    """`advance` for many lanes, as one program a device.

    Left to XLA, a loop inside of a step (the root of a prox, say) would ask all devices in every
    turn whether some lane anywhere wants another: half of the time went there.
    """
    arguments = (algorithm, model, save, key, carry, place)
    if mesh is None:
        return advance(algorithm, model, save, key, carry, place, capacity)
    arrays, static = eqx.partition(arguments, eqx.is_array)

    def own(arrays: Any) -> Chunk:
        algorithm, model, save, key, carry, place = eqx.combine(arrays, static)
        return advance(algorithm, model, save, key, carry, place, capacity)

    of_chunk: Any = Chunk
    everywhere = jax.shard_map(
        own,
        mesh=mesh,
        in_specs=((LANES, ALIKE, ALIKE, LANES, LANES, ALIKE),),
        out_specs=of_chunk(LANES, PartitionSpec(None, "lanes"), LANES, LANES),
        check_vma=False,
    )
    return everywhere(arrays)
