"""Memory does not grow with the number of steps or of runs, beyond theta's trace."""

import gc
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import pytest

import pipla
from pipla import _trees
from pipla.engine import chunk

pytestmark = pytest.mark.slow

SCRIPT = """
import resource, sys
import jax, jax.numpy as jnp, pipla

# Keeping every cloud would take 125 MB here, more than a fifth of all the rest.
problem = pipla.problems.logistic(dimension=25, observations=20)
cloud = problem.particles(jax.random.key(0), 25)
result = pipla.run(
    problem.model, pipla.PIPGLA(0.01), theta=problem.theta, particles=cloud,
    num_steps=int(sys.argv[1]), key=jax.random.key(1), check=False,
)
assert result.num_steps == int(sys.argv[1])
assert result.theta_trace.shape == (int(sys.argv[1]),)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(num_steps):
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(num_steps)], capture_output=True, text=True, check=True
    ).stdout
    return int(output)


@pytest.mark.skipif(sys.platform == "win32", reason="needs getrusage")
def test_peak_memory_of_ten_times_the_steps_is_the_same():
    few, many = peak(5_000), peak(50_000)
    assert many <= 1.2 * few


def test_a_chunk_does_not_keep_the_buffer_of_its_trace():
    """The buffer has room for 1024 steps of theta, however few the chunk makes."""
    held = []

    def look(view):
        held.append(sum(array.nbytes for array in jax.live_arrays()))

    pipla.run(
        pipla.Model(lambda theta, x, _: jnp.sum((x - theta) ** 2) / 2),
        pipla.PGD(0.1),
        theta=jnp.zeros(100),
        particles=jnp.zeros((2, 100)),
        num_steps=40,
        key=jax.random.key(0),
        check=False,
        chunk_size=4,
        callbacks=[look],
    )
    assert len(held) == 10
    assert held[-1] - held[1] < 1024 * 100 * 4


def run_of_a_new_function():
    """A run as in a notebook cell: the function is defined again every time."""

    def smooth(theta, x, data):
        return jnp.sum((x - theta) ** 2) / 2 + theta**2 / 2

    pipla.run(
        pipla.Model(smooth),
        pipla.PGD(0.1),
        theta=jnp.zeros(()),
        particles=jnp.zeros((2, 3)),
        num_steps=2,
        key=jax.random.key(0),
        check=False,
    )
    return weakref.ref(smooth)


def test_a_function_that_is_defined_again_and_again_does_not_stay(monkeypatch):
    """Its programs took 9 MiB in every run; now those of the last `MOST_KINDS` functions are kept."""
    monkeypatch.setattr(_trees, "MOST_KINDS", 2)
    made = [run_of_a_new_function() for _ in range(6)]
    gc.collect()
    assert len(chunk.advance) == len(chunk.start) == 2
    assert [function() is None for function in made] == [True] * 4 + [False] * 2


def test_first_arguments_that_differ_in_arrays_are_of_one_kind():
    traced = []

    @_trees.bounded_jit()
    def scaled(fixed, arrays, factor):
        traced.append(fixed["kind"])
        return arrays["array"] * factor

    for array, kind in ((jnp.ones(2), "a"), (jnp.zeros(2), "a"), (jnp.ones(2), "b")):
        scaled({"array": array, "kind": kind}, 3.0)
    assert traced == ["a", "b"]
    assert len(scaled) == 2
