"""What is promised bit for bit, on the code that XLA generates by default.

The other tests choose a code generator that compiles faster (`conftest.py`). Whether two programs
round alike depends on the generator: runs in chunks, resumed runs and resumed sweeps are compared
on that of the users, too.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: A scheme with an envelope and one with an exact flow, by contract; and a sweep.
CHOSEN = "((MYIPLA- or IRPL-) and (resumes_bit_for_bit or chunks_change_nothing)) or test_a_resumed_sweep"


@pytest.mark.slow
def test_runs_and_sweeps_are_equal_bit_for_bit_on_the_code_of_users():
    files = ["tests/algorithms/test_contracts.py", "tests/test_sweep.py"]
    command = [sys.executable, "-m", "pytest", "-n", "0", *files, "-k", CHOSEN]
    found = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": ""}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.splitlines()[-1].startswith("5 passed")
