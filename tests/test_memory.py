"""Memory does not grow with the number of steps, beyond theta's trace."""

import subprocess
import sys

import pytest

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
