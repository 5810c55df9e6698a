"""What every kernel by numba owes: it is used where it can be, and on any number of devices."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from pipla import prox
from pipla.prox._kernels import native

pytest.importorskip("numba")
x = jnp.linspace(-1, 1, 20, dtype=jnp.float32).reshape(4, 5)

terms = pytest.mark.parametrize(
    ("term", "module"),
    [(prox.TotalVariation(), "tv_entry"), (prox.LaplaceLocation(), "laplace_kernel")],
    ids=["total variation", "laplace"],
)


def point(term):
    return jax.jit(lambda x: term.prox(0.0, x, 0.1, 1.0)[1])


@terms
def test_cpus_get_the_kernel_and_other_platforms_the_jax_form(term, module):
    assert f"pipla_{module}_float32" in point(term).lower(x).as_text()
    elsewhere = point(term).trace(x).lower(lowering_platforms=("tpu",)).as_text()
    assert f"pipla_{module}" not in elsewhere


@terms
def test_without_numba_jax_does_it(term, module, monkeypatch):
    monkeypatch.setattr(native, "_registered", lambda *_: None)
    assert "ffi_call" not in str(jax.make_jaxpr(point(term))(x))


DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from pipla import prox
mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("i",))
spec = jax.sharding.PartitionSpec("i")
x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 40, 30)), jnp.float32)
there = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
for term in (prox.TotalVariation(max_iterations=50, tolerance=1e-9), prox.LaplaceLocation()):
    point = jax.vmap(lambda x: term.prox(0.0, x, 0.1, 1.0)[1])
    alone = jax.jit(point)(x)
    mapped = jax.shard_map(point, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    for program in (jax.jit(mapped), jax.jit(point)):  # in the second one XLA gathers the operands
        for _ in range(20):
            spread = program(there)
        assert len(spread.sharding.device_set) == 2
        np.testing.assert_array_equal(alone, spread)
"""


def test_two_devices_with_one_thread_each():
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2", "PJRT_NPROC": "1"}
    subprocess.run([sys.executable, "-c", DEVICES], env=environment, check=True, timeout=120)
