"""SVD and eigh that do not stand still when several CPU devices make them at once.

jaxlib 0.10 divides a batch of decompositions over the threads of XLA's pool, and waits for the
others on a thread of the same pool. When the lanes of a sweep do that on as many devices as the
pool has threads, all of them wait and none is left to work, for ever. On several devices the
matrices of a batch are therefore decomposed one after the other; the devices still work side by
side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def eigh(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Eigenvalues and eigenvectors of a symmetric matrix."""
    return _eigh_in_turn(matrix) if _on_several_cpus() else _eigh(matrix)


def svd(
    matrix: Float[Array, "*batch m n"],
) -> tuple[Float[Array, "*batch m k"], Float[Array, "*batch k"], Float[Array, "*batch k n"]]:
    """The thin decomposition, $U$, $s$ and $V^\\top$."""
    return _svd_in_turn(matrix) if _on_several_cpus() else _svd(matrix)


def singular_values(matrix: Float[Array, "*batch m n"]) -> Float[Array, "*batch k"]:
    """The singular values alone, largest first."""
    return _values_in_turn(matrix) if _on_several_cpus() else _values(matrix)


def _on_several_cpus() -> bool:
    """Whether this is traced for a part of the lanes of a sweep, on CPUs."""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return bool(manual) and jax.default_backend() == "cpu"


def _eigh(matrix: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


def _svd(matrix: Array) -> tuple[Array, Array, Array]:
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    return left, values, right


def _values(matrix: Array) -> Array:
    return jnp.linalg.svd(matrix, compute_uv=False)


def _in_turn(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """`function` with a loop over a batch. Derivatives are those of the function itself."""
    single = jax.custom_jvp(jax.custom_batching.sequential_vmap(function))
    # A loop over a batch has no derivative in reverse mode.
    single.defjvp(lambda primals, tangents: jax.jvp(function, primals, tangents))

    def looped(matrix: Array) -> Any:
        one = single
        for _ in range(matrix.ndim - 2):
            one = jax.vmap(one)
        return one(matrix)

    return looped


_eigh_in_turn, _svd_in_turn, _values_in_turn = map(_in_turn, (_eigh, _svd, _values))
