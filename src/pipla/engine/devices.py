"""Lanes of a sweep over devices, each with a loop of its own; and the threads of a chunk."""

from __future__ import annotations

import contextlib
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from pipla import _trees
from pipla._threads import one_blas_thread
from pipla.engine.chunk import Carry, Chunk, Program, Window, advance

LANES, ALIKE = PartitionSpec("lanes"), PartitionSpec()
#: Up to this many rows or columns of x, its SVD takes one thread: dividing it costs more than it
#: gives. A guess between 188 (measured) and some thousands, where the pool pays.
ONE_THREAD_UP_TO = 512


def blas_threads(particles: PyTree) -> contextlib.AbstractContextManager[None]:
    """The threads of LAPACK while a chunk runs: one, unless a particle is a large matrix."""
    sides = (min(leaf.shape[-2:]) for leaf in jax.tree.leaves(particles) if leaf.ndim > 2)
    if max(sides, default=0) > ONE_THREAD_UP_TO:
        return contextlib.nullcontext()
    return one_blas_thread()


def mesh_for(lanes: tuple[int, ...]) -> Mesh | None:
    """All devices, if they divide the lanes evenly; `None` where there is nothing to divide."""
    devices = jax.devices()
    if not lanes or len(devices) == 1 or lanes[0] % len(devices):
        return None
    return Mesh(np.asarray(devices), ("lanes",))


def place(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Every array distributed over the devices by its lanes."""
    if mesh is None:
        return tree
    arrays, static = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(mesh, LANES)), static)


@_trees.bounded_jit("mesh", "capacity")
def advance_over(
    fixed: Program, arrays: Program, mesh: Mesh, carry: Carry, window: Window, capacity: int
) -> Chunk:
    """`advance` for many lanes, as one program per device.

    Left to XLA, a loop inside of a step (the root of a prox, say) would ask all devices in every
    turn whether some lane anywhere needs another: half of the time went there.
    """

    def own(arguments: Any) -> Chunk:
        arrays, carry, window = arguments
        return advance(eqx.combine(fixed, arrays), carry, window, capacity)

    specs: Any = (Program(ALIKE, LANES, LANES, ALIKE), LANES, ALIKE)  # type: ignore[arg-type]
    of_chunk: Any = Chunk
    everywhere = jax.shard_map(
        own,
        mesh=mesh,
        in_specs=(specs,),
        out_specs=of_chunk(LANES, PartitionSpec(None, "lanes"), LANES, LANES),
        check_vma=False,
    )
    return everywhere((arrays, carry, window))
