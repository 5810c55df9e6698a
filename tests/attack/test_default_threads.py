"""With XLA's own number of threads, calls with many decompositions end (`make attack` has ten)."""

import default_threads
import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "devices"), [("run", 1), ("sweep", 2), ("complete", 1), ("train", 2)]
)
def test_calls_end_with_default_threads(name, devices):
    assert default_threads.ends(name, devices) is None
