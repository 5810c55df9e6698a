"""Threads: pipla leaves XLA's pool to the user, and limits it only by an explicit call."""

import os
import subprocess
import sys

import pytest

CALL = "from pipla._threads import one_thread_per_device; print(one_thread_per_device()); "
SHOW = "import os; print(os.environ.get('PJRT_NPROC'))"


def run_python(code, **environment):
    inherited = {k: v for k, v in os.environ.items() if k not in ("PJRT_NPROC", "PIPLA_THREADS")}
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return output.stdout.split(), output.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["True", "1"]),
        ({"PIPLA_THREADS": "all"}, ["False", "None"]),
        ({"PJRT_NPROC": "3"}, ["False", "3"]),
        ({"PJRT_NPROC": "1"}, ["True", "1"]),
    ],
    ids=["default", "all threads", "chosen", "chosen one"],
)
def test_one_thread_per_device_unless_the_user_says_otherwise(environment, expected):
    assert run_python(CALL + SHOW, **environment) == (expected, "")


def test_a_second_call_is_silent():
    code = "import jax; " + CALL + "jax.devices(); print(one_thread_per_device())"
    assert run_python(code) == (["True", "True"], "")


def test_after_jax_has_started_it_warns_and_changes_nothing():
    # Importing pipla may have set the variable: delete it, to see what the call does.
    code = (
        "import os, jax, pipla; os.environ.pop('PJRT_NPROC', None); jax.devices(); " + CALL + SHOW
    )
    printed, warned = run_python(code)
    assert printed == ["False", "None"]
    assert "has no effect: JAX has already started" in warned


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has one thread")
def test_a_large_product_has_the_same_threads_with_pipla_as_without():
    # The names of the threads, not their time: other work on the machine must not matter.
    product = (
        "import glob, jax, jax.numpy as jnp; a = jnp.ones((2500, 2500)); "
        "jax.jit(lambda a: a @ a)(a).block_until_ready(); "
        "names = [open(f).read() for f in glob.glob('/proc/self/task/*/comm')]; "
        "print(sum('Eigen' in name for name in names))"
    )
    (without,), _ = run_python(product)
    (with_pipla,), _ = run_python("import pipla; " + product)
    (limited,), _ = run_python(CALL.replace("print", "") + product)
    assert int(without) > int(limited)
    assert with_pipla == without
