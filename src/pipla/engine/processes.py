"""A process that was forked after JAX started: JAX hangs there, so pipla refuses to run.

JAX works with threads, and `os.fork` copies the memory of a process but not its threads. In the
child the first computation waits forever for a thread that does not exist. `multiprocessing` forks
by default on Linux before Python 3.14.
"""

from __future__ import annotations

import os
import sys
import threading

#: The process that imported this file, and the one in which the first run began.
_imported = os.getpid()
_first_run: int | None = None


def note_first_run() -> None:
    """Remember the process in which the first run began. Called when a run begins."""
    global _first_run
    if _first_run is None:
        _first_run = os.getpid()


def refuse_after_fork() -> None:
    """Raise an error in a process that was forked from one that had used JAX."""
    here = os.getpid()
    if _first_run == here or (_first_run is None and _imported == here):
        return
    if _first_run is not None or _jax_was_inherited():
        raise RuntimeError(
            "this process was forked from one that had already used JAX, and JAX would hang in "
            "it. Start processes with multiprocessing.get_context('spawn'), or fork before the "
            "first use of JAX. Threads work, and pipla.sweep runs many settings in one process."
        )


def _jax_was_inherited() -> bool:
    """Whether JAX has started, but none of its threads are in this (forked) process."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: False)()
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:  # not Linux: better a run that may hang than a refusal without reason
        return False
    return started and threads <= threading.active_count()
