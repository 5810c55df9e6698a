"""Decompositions and solves of many small matrices that do not stand still on a CPU.

jaxlib before 0.12 divides a batch of decompositions or triangular solves over the threads of XLA's
pool, and waits for them on a thread of the same pool. When as many batches wait as the pool has
threads, none is left to work, and all wait for ever. There are three ways to get there, and one
remedy for each:

- two batches of one program that do not need each other: `in_turn` makes the second wait for the
  first;
- the lanes of a sweep on several devices: their matrices are decomposed one after the other, and
  the devices still work side by side (`eigh`, `svd`, `singular_values`);
- programs in several threads of Python: they take turns (`one_at_a_time`).

jaxlib 0.12 waits without a thread: there nothing of this happens, and with Python 3.11, the last
that gets jaxlib 0.10, this file can go.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxlib
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, Float

_turn = threading.Lock()

#: Whether this jaxlib waits on a thread of the pool.
WAITS = tuple(map(int, jaxlib.__version__.split(".")[:2])) < (0, 12)

#: Primitives of JAX that may divide a batch (Cholesky factors do not, and were seen to work).
_DIVIDED = frozenset(
    {"svd", "eigh", "eig", "schur", "geqrf", "lu", "tridiagonal", "triangular_solve"}
)
#: Primitives that only call another program, which is then a part of this one.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}
_CALLS |= {"closed_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}


def in_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` to compile, without two divided operations that may run side by side."""
    if not WAITS:
        return function

    @functools.wraps(function)
    def ordered(*arguments: Any) -> Any:
        if not _waits():
            return function(*arguments)
        arrays, fixed = eqx.partition(arguments, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)

        def flat(*leaves: Array) -> Any:
            return function(*eqx.combine(jax.tree.unflatten(structure, leaves), fixed))

        program, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        if sum(name in _DIVIDED for name in _primitives(program.jaxpr)) > 1:
            found, _ = _ordered(program, leaves, None)
        else:
            found = jaxpr_as_fun(program)(*leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    # The name of the program, which a `functools.partial` does not hand on.
    ordered.__name__ = getattr(getattr(function, "func", function), "__name__", "ordered")
    return ordered


def _ordered(program: ClosedJaxpr, arguments: Any, last: Array | None) -> tuple[list[Any], Any]:
    """What a program returns if each divided operation waits for the one before.

    Arguments:
        program: what is evaluated.
        arguments: its arguments.
        last: a number that is known when the last divided operation has ended, if there was one.
    """
    inner = program.jaxpr
    variables = (*inner.constvars, *inner.invars)
    values = dict(zip(variables, (*program.consts, *arguments), strict=True))

    def value_of(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for equation in inner.eqns:
        given = [value_of(variable) for variable in equation.invars]
        primitive, parameters = equation.primitive, equation.params
        divided = _divides(equation)
        if divided and primitive.name in _CALLS:
            found, last = _ordered(parameters[_CALLS[primitive.name]], given, last)
        else:
            if divided:
                given = _after(last, given)
                parameters = {name: _ordered_inside(parameters[name]) for name in parameters}
            with equation.ctx.manager:
                found = primitive.bind(*given, **primitive.get_bind_params(parameters))
            found = found if primitive.multiple_results else [found]
            if divided:
                last = next((value.ravel()[0] for value in found if _is_inexact(value)), last)
        values.update(zip(equation.outvars, found, strict=True))
    return [value_of(variable) for variable in inner.outvars], last


def _ordered_inside(parameter: Any) -> Any:
    """The body of a loop, or the branches of a choice, with its divided operations in turn."""
    if isinstance(parameter, tuple):
        return jax.tree.map(
            _ordered_inside, parameter, is_leaf=lambda value: value is not parameter
        )
    if not isinstance(parameter, ClosedJaxpr):
        return parameter
    return jax.make_jaxpr(lambda *given: _ordered(parameter, given, None)[0])(*parameter.in_avals)


def _after(last: Array | None, given: list[Any]) -> list[Any]:
    """The same values, of which one is not known before `last` is."""
    at = next((i for i, value in enumerate(given) if _is_inexact(value)), None)
    if last is None or at is None:
        return given
    # Always 0, but XLA does not see it; it removes an `optimization_barrier` before it schedules.
    zero = jnp.where(last > jnp.inf, last, jnp.zeros_like(last)).astype(given[at].dtype)
    return [*given[:at], given[at] + jnp.broadcast_to(zero, given[at].shape), *given[at + 1 :]]


def _is_inexact(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.floating) and value.size > 0


def _divides(equation: Any) -> bool:
    """Whether an equation is a divided operation, or has one inside."""
    return equation.primitive.name in _DIVIDED or any(
        not _DIVIDED.isdisjoint(_primitives(inner)) for inner in _inner(equation)
    )


def _waits() -> bool:
    return WAITS and jax.default_backend() == "cpu"


def one_at_a_time(program: ClosedJaxpr) -> contextlib.AbstractContextManager[object]:
    """What to hold while `program` runs, so that no two programs decompose matrices at once."""
    divides = not _DIVIDED.isdisjoint(_primitives(program.jaxpr))
    return _turn if divides and _waits() else contextlib.nullcontext()


def _primitives(program: Any) -> Iterator[str]:
    """The names of the primitives of a program, and of those inside its loops and branches."""
    for equation in program.eqns:
        yield equation.primitive.name
        for inner in _inner(equation):
            yield from _primitives(inner)


def _inner(equation: Any) -> Iterator[Any]:
    """The programs that an equation calls, repeats or chooses from."""
    for inner in jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda value: hasattr(value, "eqns")
    ):
        inner = getattr(inner, "jaxpr", inner)
        if hasattr(inner, "eqns"):
            yield inner


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
    return _waits() and bool(jax.sharding.get_abstract_mesh().manual_axes)


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
