"""Decompositions do not stand still: one after the other on jaxlib before 0.12."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from pipla import _decompositions as decompositions

MATRICES = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 5, 4)))
SYMMETRIC = MATRICES[..., :4, :] + jnp.swapaxes(MATRICES[..., :4, :], -1, -2)


def rebuilt(matrix):
    left, values, right = decompositions.svd(matrix)
    return (left * values[..., None, :]) @ right


def diagonalised(matrix):
    values, vectors = decompositions.eigh(matrix)
    return (vectors * values[None]) @ vectors.T


@pytest.fixture
def waits(monkeypatch):
    """As on jaxlib before 0.12, whatever this one is."""
    monkeypatch.setattr(decompositions, "WAITS", True)


CASES = {
    "svd": (rebuilt, MATRICES),
    "values": (decompositions.singular_values, MATRICES),
    "eigh": (jax.vmap(diagonalised), SYMMETRIC),
}


def over_devices(function):
    """As `pipla.sweep` does it: lanes by device, on a mesh of the one device that there is."""
    lanes = PartitionSpec("lanes")
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("lanes",))
    return jax.shard_map(
        jax.vmap(function), mesh=mesh, in_specs=lanes, out_specs=lanes, check_vma=False
    )


@pytest.mark.parametrize("case", CASES)
def test_the_lanes_of_a_sweep_are_decomposed_in_turn(case, waits):
    """A batch would be divided among threads that may all be waiting (see the module)."""
    function, matrices = CASES[case]
    alone, divided = jax.vmap(function), over_devices(function)
    np.testing.assert_allclose(divided(matrices), alone(matrices), atol=1e-12)
    assert " scan[" not in str(jax.make_jaxpr(alone)(matrices))
    assert " scan[" in str(jax.make_jaxpr(divided)(matrices))


def test_they_are_what_they_are_called():
    np.testing.assert_allclose(rebuilt(MATRICES), MATRICES, atol=1e-12)
    np.testing.assert_allclose(jax.vmap(jax.vmap(diagonalised))(SYMMETRIC), SYMMETRIC, atol=1e-12)
    values = decompositions.singular_values(MATRICES)
    np.testing.assert_allclose(values, np.linalg.svd(MATRICES, compute_uv=False), rtol=1e-12)


def test_derivatives_are_those_of_the_decomposition(waits):
    def nuclear_norm(matrices):
        return jnp.sum(decompositions.singular_values(matrices))

    divided = over_devices(jax.grad(nuclear_norm))(MATRICES)
    np.testing.assert_allclose(divided, jax.grad(nuclear_norm)(MATRICES), atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_programs_that_decompose_a_batch_take_turns(case, waits):
    """Also where the decomposition is inside a loop and a branch."""
    function, matrices = jax.vmap(CASES[case][0]), CASES[case][1]

    def program(matrices):
        once = jax.lax.cond(matrices[0, 0, 0, 0] > 0, function, function, matrices)
        return jax.lax.fori_loop(0, 2, lambda i, found: function(matrices), once)

    first, second = (
        decompositions.one_at_a_time(jax.make_jaxpr(program)(matrices)) for _ in range(2)
    )
    with first:
        assert not second.acquire(blocking=False)
    free = decompositions.one_at_a_time(jax.make_jaxpr(jnp.linalg.cholesky)(jnp.eye(3)[None]))
    with free, free:
        pass


def two_solves(matrices, right):
    """Two solves that do not need each other, inside of a function, a loop and a branch."""

    def solve(matrices, right):
        return jax.scipy.linalg.solve_triangular(matrices, right, lower=True)

    def both(i, right):
        first, second = jax.jit(solve)(matrices, right), solve(matrices, 2.0 * right)
        third = jax.lax.cond(i > 0, lambda: jnp.linalg.solve(matrices, right), lambda: right)
        return first + second + third

    return jax.lax.fori_loop(0, 3, both, right)


def dependences(program):
    """For each divided operation of a program, how many others it cannot begin before."""
    behind, found = {}, []
    for equation in program.eqns:
        before = frozenset().union(*(behind.get(v, frozenset()) for v in map(id, equation.invars)))
        if equation.primitive.name in decompositions._DIVIDED:
            found.append(len(before))
            before |= {len(found)}
        behind |= {id(v): before for v in equation.outvars}
    return found


needs_order = pytest.mark.skipif(not decompositions.WAITS, reason="jaxlib 0.12 does not wait")


@needs_order
def test_batches_of_one_program_are_divided_one_after_the_other():
    def plain(matrices, right):
        solved = [
            jax.lax.linalg.triangular_solve(matrices, k * right, left_side=True)
            for k in (1.0, 2.0, 3.0)
        ]
        return sum(solved)

    given = jnp.eye(4)[None] + jnp.zeros((3, 4, 4)), jnp.ones((3, 4, 1))
    assert dependences(jax.make_jaxpr(plain)(*given).jaxpr) == [0, 0, 0]
    ordered = decompositions.in_turn(plain)
    assert dependences(jax.make_jaxpr(ordered)(*given).jaxpr) == [0, 1, 2]


@needs_order
def test_an_order_changes_no_number():
    matrices = SYMMETRIC[0] + 9 * jnp.eye(4)[None]
    right = jnp.ones((2, 4, 1)).at[0, 0, 0].set(jnp.nan)  # one lane is lost, the other is not
    plain = jax.jit(two_solves)(matrices, right)
    ordered = jax.jit(decompositions.in_turn(two_solves))(matrices, right)
    np.testing.assert_array_equal(ordered, plain)
    assert np.isfinite(ordered[1]).all()


SOLVES = """
import jax, jax.numpy as jnp
from pipla._decompositions import in_turn

@jax.jit
@in_turn
def solves(matrices, right):
    def step(i, right):
        found = [jnp.linalg.solve((1.0 + k) * matrices, right) for k in range(6)]
        return right + sum(found) / 100

    return jax.lax.fori_loop(0, 30, step, right)

print(jnp.isfinite(solves(jnp.eye(11) + jnp.zeros((3000, 11, 11)), jnp.ones((3000, 11, 1)))).all())
"""


@pytest.mark.slow
def test_many_solves_of_one_program_end_on_two_threads():
    """On jaxlib 0.10 each of them waited for a thread that another one held."""
    process = subprocess.run(
        [sys.executable, "-c", SOLVES],
        env={**os.environ, "PJRT_NPROC": "2", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,  # they need seconds
    )
    assert process.stdout.split() == ["True"], process.stderr


PROGRAM = """
import os, threading
import jax, numpy as np, pipla

rng = np.random.default_rng(0)
seen = 3 * rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20)) + rng.normal(size=(30, 20))
likelihood = pipla.likelihoods.Gaussian(pipla.operators.Identity(), seen, 1.0)
model = pipla.Model(likelihood, pipla.prox.NuclearStrength(normalised=True))
start = np.broadcast_to(seen, (10, *seen.shape))

def run(seed):
    key = jax.random.key(seed)
    result = pipla.run(model, pipla.RPL(0.5), theta=0.0, particles=start, num_steps=400, key=key)
    os.write(1, f"{result.num_steps} ".encode())  # at once: threads print at the same time

threads = [threading.Thread(target=run, args=(seed,), daemon=True) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(timeout=100)  # they need seconds
"""


@pytest.mark.slow
def test_runs_with_singular_values_end_in_several_threads():
    """With as many as the threads of the pool, they waited for one another for ever."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PJRT_NPROC": "2", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout.split() == ["400"] * 4, process.stderr
