"""The contracts of an algorithm: numbers as leaves, dtypes, one compilation, resuming bit for bit.

An algorithm comes with an `AlgorithmCase`; `check_algorithm` holds it to every contract.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from pipla.algorithms.base import Algorithm, Info
from pipla.engine.chunk import Program, Window, advance, start
from pipla.engine.result import Result
from pipla.engine.run import as_dtype, resume, run
from pipla.engine.save import Save
from pipla.models.model import Model
from pipla.prox import LaplaceLocation
from pipla.testing.cases import require_float64

SEED = 11


class Start(NamedTuple):
    """A model and where to start, all in one dtype."""

    model: Model
    theta: PyTree
    particles: PyTree


def plain_start(dtype: Any) -> Start:
    """A scalar theta, a vector x, a Laplace prior: the plainest case."""
    model = Model(_misfit, LaplaceLocation(scale=2.0), {"y": jnp.asarray([0.1, -1.2, 0.7], dtype)})
    particles = np.random.default_rng(1).normal(size=(4, 3))
    return Start(model, jnp.asarray(0.5, dtype), jnp.asarray(particles, dtype))


def _misfit(theta: Any, x: Any, data: Any) -> Any:
    return jnp.sum((x - data["y"]) ** 2) / 2 + (theta - 1.0) ** 2 / 2


@dataclasses.dataclass(frozen=True, eq=False)
class AlgorithmCase:
    """An algorithm, with other numbers on demand, and a start that it can run from.

    Arguments:
        name: appears in messages.
        make: a factor to the algorithm with all its numbers multiplied by it.
        start: a dtype to a model and a start.
        holds_code: whether it holds code (an optimiser), and must be given again to resume.
    """

    name: str
    make: Callable[[float], Algorithm]
    start: Callable[[Any], Start] = plain_start
    holds_code: bool = False

    def __repr__(self) -> str:
        return self.name

    def run(
        self,
        num_steps: int,
        algorithm: Algorithm | None = None,
        *,
        dtype: Any = None,
        seed: int = SEED,
        **options: Any,
    ) -> Result:
        """A short run."""
        begin = self.start(jnp.result_type(float) if dtype is None else dtype)
        return run(
            begin.model,
            algorithm or self.make(1.0),
            theta=begin.theta,
            particles=begin.particles,
            num_steps=num_steps,
            key=jax.random.key(seed),
            check=False,
            **{"burn_in": 5, "save": Save(moments_every=3)} | options,
        )


def check_algorithm(case: AlgorithmCase) -> None:
    """All contracts; the first that is broken raises an `AssertionError` with a sentence."""
    require_float64()
    for contract in ALGORITHM_CONTRACTS:
        contract(case)


# A step. #


def numbers_are_leaves(case: AlgorithmCase) -> None:
    """Hyperparameters are array leaves, so that changing one compiles nothing."""
    algorithm, other = case.make(1.0), case.make(0.9)
    leaves, structure = jax.tree.flatten(algorithm)
    again = jax.tree.unflatten(structure, leaves)
    assert eqx.tree_equal(again, algorithm), f"{case}: flattening loses something."
    structures: list[Any] = [structure, jax.tree.structure(other)]
    assert structures[0] == structures[1], (
        f"{case}: another number changes the structure; numbers must be array leaves, not static."
    )
    pairs = zip(leaves, jax.tree.leaves(other), strict=True)
    assert any(eqx.is_inexact_array(a) and not np.array_equal(a, b) for a, b in pairs), (
        f"{case}: make(0.9) has the numbers of make(1.0)."
    )


def keeps_dtypes(case: AlgorithmCase) -> None:
    """What comes out has the dtype of what went in, in float32 and float64."""
    for dtype in (jnp.float32, jnp.float64):
        begin = case.start(dtype)
        program = Program(begin.model, as_dtype(case.make(1.0), begin.particles), jax.random.key(0))
        carry = start(program, begin.theta, begin.particles, True)
        made = eqx.filter_eval_shape(advance, program, carry, Window.of(0, 8, 5, 10), 16)
        kinds = {leaf.dtype for leaf in jax.tree.leaves(made)}
        floats = {kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)}
        assert floats == {np.dtype(dtype)}, f"{case}: a {np.dtype(dtype)} run holds {floats}."


def keeps_the_structure_of_its_state(case: AlgorithmCase) -> None:
    """The state after a step has the structure, shapes and dtypes of the state before."""
    algorithm, begin = case.make(1.0), case.start(jnp.result_type(float))
    state = algorithm.init(begin.model, begin.theta, begin.particles)
    after, info = jax.eval_shape(lambda s: algorithm.step(jax.random.key(0), s, begin.model), state)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (state, after))
    assert shapes[0] == shapes[1], f"{case}: the state changes from {shapes[0]} to {shapes[1]}."
    assert isinstance(info, Info), f"{case}: step must return (state, Info)."
    assert info.prox_gap.shape == (), f"{case}: prox_gap must be a number."
    gradients = jax.tree.map(jnp.shape, (info.theta_gradient, info.particle_gradient))
    expected = jax.tree.map(jnp.shape, (state.theta, state.particles))
    assert gradients == expected, f"{case}: gradients in Info have shapes {gradients}."


def compiles_once(case: AlgorithmCase) -> None:
    """Other numbers, starts, keys, lengths and chunk sizes compile nothing."""
    case.run(20)
    begin = case.start(jnp.result_type(float))
    theta, particles = jax.tree.map(lambda leaf: 0.9 * leaf, (begin.theta, begin.particles))
    other, key = case.make(0.8), jax.random.key(SEED + 1)
    with compilations() as compiled:
        run(
            begin.model,
            other,
            theta=theta,
            particles=particles,
            num_steps=23,
            burn_in=7,
            chunk_size=9,
            key=key,
            save=Save(moments_every=2, particles_every=6),
            check=False,
        )
    assert not compiled, f"{case}: other numbers compile {compiled} again."


def numbers_matter(case: AlgorithmCase) -> None:
    """Other numbers give another run."""
    one, other = case.run(20).particles, case.run(20, case.make(0.8)).particles
    assert _all_differ(one, other), f"{case}: other numbers give the same run."


def is_its_own_step(case: AlgorithmCase) -> None:
    """A step by hand, vmapped over keys and numbers, is the compiled one."""
    settings = [case.make(1.0), case.make(0.7)]
    lanes = [(0, SEED), (0, SEED + 1), (1, SEED)]
    arrays = [eqx.partition(settings[s], eqx.is_inexact_array)[0] for s, _ in lanes]
    static = eqx.partition(settings[0], eqx.is_inexact_array)[1]
    begin = case.start(jnp.result_type(float))
    state = settings[0].init(begin.model, begin.theta, begin.particles)

    # Compiled as one program: a step that runs operation by operation compiles hundreds.
    @eqx.filter_jit
    def step(numbers: Any, keys: Any, state: Any, model: Model) -> Any:
        def alone(numbers: Any, key: Any) -> Any:
            return eqx.combine(numbers, static).step(jax.random.fold_in(key, 0), state, model)[0]

        return jax.vmap(alone)(numbers, keys)

    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *arrays)
    keys = jax.vmap(jax.random.key)(jnp.asarray([seed for _, seed in lanes]))
    together = jax.tree.map(np.asarray, step(stacked, keys, state, begin.model))
    for lane, (s, seed) in enumerate(lanes):
        alone = case.run(1, settings[s], burn_in=0, seed=seed)
        for one, other in (
            (together.theta, alone.theta_last),
            (together.particles, alone.particles),
        ):
            for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
                np.testing.assert_allclose(a[lane], b, rtol=1e-12, atol=1e-12)


# The engine. #


def depends_on_its_key_alone(case: AlgorithmCase) -> None:
    """Equal keys give equal runs, other keys give others."""
    first = case.run(6)
    _same_run(case, first, case.run(6))
    other = case.run(6, seed=SEED + 1).particles
    assert _all_differ(first.particles, other), f"{case}: another key gives the same run."


def resumes_bit_for_bit(case: AlgorithmCase) -> None:
    """A resumed run is the run that never stopped, from memory and from disk."""
    model = case.start(jnp.result_type(float)).model
    whole, part = case.run(60), case.run(25)
    _same_run(case, whole, resume(part, model, num_steps=35))
    again = case.make(1.0) if case.holds_code else None
    with tempfile.TemporaryDirectory() as folder:
        part.save(Path(folder) / "run")
        resumed = resume(Path(folder) / "run", model, num_steps=35, algorithm=again)
        _same_run(case, whole, resumed)


def chunks_change_nothing(case: AlgorithmCase) -> None:
    """Chunks of any size give the same numbers."""
    whole = case.run(40)
    for chunk_size in (1, 7, 64):
        _same_run(case, whole, case.run(40, chunk_size=chunk_size))


#: What every algorithm promises of its steps.
STEP_CONTRACTS = (
    numbers_are_leaves,
    keeps_dtypes,
    keeps_the_structure_of_its_state,
    compiles_once,
    numbers_matter,
    is_its_own_step,
)
#: What follows for its runs. They exercise the engine, which all algorithms share.
RUN_CONTRACTS = (depends_on_its_key_alone, resumes_bit_for_bit, chunks_change_nothing)
ALGORITHM_CONTRACTS: tuple[Callable[[AlgorithmCase], None], ...] = STEP_CONTRACTS + RUN_CONTRACTS


_compiled: list[str] = []


def _listen(event: str, duration_secs: float, **details: str | int) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled.append(str(details.get("fun_name", "?")))


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """A list that, after the block, names every program that XLA compiled in it."""
    before: int = len(_compiled)
    inside: list[str] = []
    yield inside
    inside.extend(_compiled[before:])


def _same_run(case: AlgorithmCase, one: Result, other: Result) -> None:
    def kept(result: Result) -> PyTree:
        return (
            result.theta_trace,
            list(result.snapshot.leaves),
            result.particles,
            result.x_mean,
            result.x_variance,
            result.num_steps,
            result.burn_in,
            result.prox_gap,
        )

    structures: list[Any] = [jax.tree.structure(kept(result)) for result in (one, other)]
    assert structures[0] == structures[1], f"{case}: two equal runs have other structures."
    pairs = zip(jax.tree.leaves(kept(one)), jax.tree.leaves(kept(other)), strict=True)
    equal = all(_equal(a, b) for a, b in pairs)
    assert equal, f"{case}: two runs that must be equal bit for bit are not."


def _all_differ(one: PyTree, other: PyTree) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(not np.array_equal(a, b) for a, b in pairs)


def _equal(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other)
