"""SVD and eigh that do not stand still when several programs make them at once on a CPU.

jaxlib 0.10 divides a batch of decompositions over the threads of XLA's pool, and waits for the
others on a thread of the same pool. When as many programs do that as the pool has threads, all of
them wait and none is left to work, for ever. These may be the lanes of a sweep on several devices:
there the matrices of a batch are decomposed one after the other, and the devices still work side
by side. Or they may be runs in several threads of Python: those take turns (`one_at_a_time`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array, Float

_turn = threading.Lock()

#: Primitives of JAX that may divide a batch (Cholesky factors do not, and were seen to work).
_DIVIDED = frozenset({"svd", "eigh", "eig", "schur", "geqrf", "lu", "tridiagonal"})


def one_at_a_time(program: ClosedJaxpr) -> contextlib.AbstractContextManager[object]:
    """What to hold while `program` runs, so that no two programs decompose matrices at once."""
    divides = not _DIVIDED.isdisjoint(_primitives(program.jaxpr))
    return _turn if divides and jax.default_backend() == "cpu" else contextlib.nullcontext()


def _primitives(program: Any) -> Iterator[str]:
    """The names of the primitives of a program, and of those inside its loops and branches."""
    for equation in program.eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda value: hasattr(value, "eqns")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from _primitives(inner)


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
