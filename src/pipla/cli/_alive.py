"""A sign of life from long computations: the stage they are in, every few seconds."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator

#: Seconds before the first line about a stage, and between later ones.
FIRST, LATER = 4.0, 10.0


class _Stage(logging.Handler):
    """Remembers the last message of `pipla.imaging`, and since when it holds."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.name_of_stage, self.since = "", time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        self.name_of_stage, self.since = record.getMessage(), time.monotonic()


@contextlib.contextmanager
def sign_of_life(first: float = FIRST, later: float = LATER) -> Iterator[None]:
    """Print the stage on standard error while the block runs; a progress bar speaks for itself."""
    logger, stage, done = logging.getLogger("pipla.imaging"), _Stage(), threading.Event()
    bar = sys.stderr.isatty()

    def watch() -> None:
        wait = first
        while not done.wait(wait):
            wait = later
            if stage.name_of_stage and not (bar and stage.name_of_stage == "sampling"):
                spent = time.monotonic() - stage.since
                print(f"… {stage.name_of_stage}, {spent:.0f} s", file=sys.stderr, flush=True)

    level = logger.level
    logger.addHandler(stage)
    logger.setLevel(logging.INFO)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        logger.removeHandler(stage)
        logger.setLevel(level)
