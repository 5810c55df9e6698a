"""The command line `pipla`. Typer is imported when it is called, so that it can be an extra."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

from pipla._extras import MissingExtraError, extra
from pipla.config import enable_cache, one_thread_per_device


def main() -> None:
    """The entry point `pipla`: one CPU device per core, each with one thread; cached programs."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without × and ± shows \\xd7
            stream.reconfigure(errors="backslashreplace")
    try:
        with extra("cli", "the command line"):
            from pipla.cli.app import app
    except MissingExtraError as error:
        print(f"pipla: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    one_thread_per_device()
    _one_device_per_core()
    # Without a folder of one's own (no home, a full or read-only disk) it works, only slower.
    with contextlib.suppress(OSError, RuntimeError):
        enable_cache()
    _end_by_cleaning_up()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # now, so that a full disk or a closed pipe is one line
    except OSError as error:
        # Python would try again when it ends, and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"pipla: the output cannot be written: {error.strerror}.", file=sys.stderr)
        raise SystemExit(2) from None


def _end_by_cleaning_up() -> None:
    """Let SIGTERM end the program as Ctrl-C does: temporary folders are removed."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def _one_device_per_core() -> None:
    """Let JAX split the CPU into one device per core, so that sweeps use all of them."""
    if "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    import jax

    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    # JAX read the environment variable when it was imported; it reads the configuration later.
    jax.config.update("jax_num_cpu_devices", cores)
