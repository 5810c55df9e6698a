"""Machine code in JAX programs: used where it can be, checked before, on any number of devices."""

import os
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipla import prox
from pipla._ffi import ffi

pytest.importorskip("numba")
x = jnp.linspace(-1, 1, 20, dtype=jnp.float32).reshape(4, 5)


def point(native=True):
    term = prox.TotalVariation(native=native)
    return jax.jit(lambda x: term.prox(None, x, None, 1.0)[1])


def run(program, **environment):
    subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, **environment},
        check=True,
        timeout=120,
    )


def test_cpus_get_the_kernel_and_other_platforms_the_jax_form():
    assert "pipla_tv_sweep_float32" in point().lower(x).as_text()
    elsewhere = point().trace(x).lower(lowering_platforms=("tpu",)).as_text()
    assert "pipla_tv_sweep" not in elsewhere


def test_without_numba_jax_does_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pipla.prox._kernels.tv_sweep", None)  # an ImportError
    assert "ffi_call" not in str(jax.make_jaxpr(point())(x))


IMPORTS = """
import sys
sys.modules["numba"] = None
import jax.numpy as jnp
from pipla import prox
u = prox.TotalVariation().prox(None, jnp.array([0.0, 4.0]), None, 1.0)[1]
assert jnp.allclose(u, jnp.array([1.0, 3.0]))
"""


def test_numba_need_not_be_installed():
    run(IMPORTS)


@pytest.fixture
def fresh():
    """The probe runs again, before and after the test."""
    ffi.layout_is_known.cache_clear()
    yield
    ffi.layout_is_known.cache_clear()


def assert_falls_back():
    with pytest.warns(RuntimeWarning, match="machine code is off, and XLA's form") as caught:
        found = point()(x)
    assert len(caught) == 1
    point()(2 * x)  # a second warning would be an error
    np.testing.assert_array_equal(found, point(native=False)(x))
    assert "ffi_call" not in str(jax.make_jaxpr(point())(x))


@pytest.mark.parametrize("structure", ffi.STRUCT_SIZES)
def test_another_layout_of_the_call_frame_turns_machine_code_off(structure, monkeypatch, fresh):
    sizes = {**ffi.STRUCT_SIZES, structure: ffi.STRUCT_SIZES[structure] + 8}
    monkeypatch.setattr(ffi, "STRUCT_SIZES", sizes)
    assert_falls_back()


def test_another_version_of_the_interface_turns_machine_code_off(monkeypatch, fresh):
    monkeypatch.setattr(ffi, "API_MAJOR", 1)
    assert_falls_back()


def test_numbers_in_other_places_turn_machine_code_off(monkeypatch, fresh):
    monkeypatch.setattr(ffi.ArrayAttribute, "data", ffi.ArrayAttribute.size, raising=True)
    assert_falls_back()


def test_the_probe_passes_and_is_silent(fresh):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ffi.layout_is_known()


def test_the_probe_may_run_while_the_caller_is_tracing(fresh):
    assert jax.jit(lambda x: x + float(ffi.layout_is_known()))(jnp.zeros(())) == 1


THREADS = """
import threading
import jax, jax.numpy as jnp
from pipla import prox
term, x = prox.TotalVariation(max_iterations=5), jnp.ones((4, 5))
start, failures = threading.Barrier(4), []
def use():
    start.wait()
    try:
        assert "pipla_tv_sweep" in jax.jit(lambda x: term.prox(None, x, None, 1.0)).lower(x).as_text()
        term.prox(None, x, None, 1.0)[1].block_until_ready()
    except Exception as error:
        failures.append(error)
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
"""


def test_threads_may_use_a_kernel_for_the_first_time_together():
    run(THREADS)


DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from pipla import prox
mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("i",))
spec = jax.sharding.PartitionSpec("i")
x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 40, 30)), jnp.float32)
there = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
term = prox.TotalVariation(max_iterations=50, tolerance=1e-9)
point = jax.vmap(lambda x: term.prox(None, x, None, 1.0)[1])
alone = jax.jit(point)(x)
mapped = jax.shard_map(point, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
for program in (jax.jit(mapped), jax.jit(point)):  # in the second one XLA gathers the operands
    for _ in range(20):
        sharded = program(there)
    assert len(sharded.sharding.device_set) == 2
    np.testing.assert_array_equal(alone, sharded)
"""


def test_two_devices_with_one_thread_each():
    run(DEVICES, JAX_NUM_CPU_DEVICES="2", PJRT_NPROC="1")
