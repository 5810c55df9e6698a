"""A forked process: JAX hangs there, and pipla says so instead."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal, warnings
warnings.simplefilter("ignore")  # JAX warns of the fork itself
import jax, pipla
from pipla.engine.driver import note_first_run, refuse_after_fork

def use_jax():
    (jax.numpy.ones(3) + 1).block_until_ready()

def in_a_fork(*actions):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            for action in actions:
                action()
            print("done", flush=True)
        except RuntimeError as error:
            print("refused:", error, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    refuse_after_fork()  # the parent may

in_a_fork(refuse_after_fork, note_first_run, use_jax, refuse_after_fork)
in_a_fork(use_jax, refuse_after_fork)
use_jax()
in_a_fork(refuse_after_fork)
in_a_fork(lambda: pipla.load("nowhere"))
note_first_run()
in_a_fork(refuse_after_fork)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_is_refused_only_where_jax_would_hang():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=200
    )
    refused = "refused: this process was forked from one that had already used JAX"
    words = [refused if line.startswith(refused) else line for line in done.stdout.splitlines()]
    assert words == ["done", "done", refused, refused, refused]
