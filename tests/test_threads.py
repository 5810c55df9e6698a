"""Threads: pipla leaves XLA's pool to the user, and limits it only by an explicit call."""

import os
import subprocess
import sys

import jax.numpy as jnp
import pytest

from pipla import _threads
from pipla.engine import devices

pytestmark = pytest.mark.slow

CALL = "from pipla.config import one_thread_per_device; print(one_thread_per_device()); "
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


# OpenBLAS under JAX's SVD. #


class Pool:
    """Stands for SciPy's OpenBLAS."""

    def __init__(self, monkeypatch):
        self.threads = 4
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "GOTO_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(_threads, "_openblas", lambda: (lambda: self.threads, self.write))

    def write(self, threads):
        self.threads = threads


def test_one_blas_thread_inside_the_block_and_what_there_was_after_it(monkeypatch):
    pool = Pool(monkeypatch)
    seen = []

    def fail():
        seen.append(pool.threads)
        raise RuntimeError

    with pytest.raises(RuntimeError), _threads.one_blas_thread():
        fail()
    assert seen == [1]
    assert pool.threads == 4


def test_blocks_that_overlap_restore_the_first_number(monkeypatch):
    pool = Pool(monkeypatch)
    first, second = _threads.one_blas_thread(), _threads.one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # as in two threads: the first to come is the first to go
    assert pool.threads == 1
    second.__exit__(None, None, None)
    assert pool.threads == 4


def test_the_number_of_blas_threads_that_the_user_chose_stays(monkeypatch):
    pool = Pool(monkeypatch)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    with _threads.one_blas_thread():
        assert pool.threads == 4


@pytest.mark.parametrize(("side", "threads"), [(188, 1), (513, 4)])
def test_large_matrices_keep_the_blas_threads(side, threads, monkeypatch):
    pool = Pool(monkeypatch)
    with devices.blas_threads({"x": jnp.ones((1, side, side)), "bias": jnp.ones((1, side))}):
        assert pool.threads == threads


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="SciPy may have another BLAS")
def test_the_openblas_of_scipy_is_found_once_it_is_loaded():
    code = (
        "from pipla._threads import _openblas, one_blas_thread; import scipy.linalg\n"
        "read, _ = _openblas(); before = read()\n"
        "with one_blas_thread(): print(read())\n"
        "print(read() == before)"
    )
    chosen = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "GOTO_NUM_THREADS")
    clean = {name: value for name, value in os.environ.items() if name not in chosen}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["1", "True"]
