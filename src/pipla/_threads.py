"""One thread per CPU device, which is what small steps want.

A Langevin step is many small operations one after the other. XLA splits each of them over its
thread pool and waits; waking a thread costs as much as the work it takes over, and a program of
small steps runs up to twice (on busy machines four times) slower with the pool than without.
Cores are better used by whole runs (`pipla.sweep` spreads replicates over devices) or by parts of
the cloud. So, as long as nobody has said otherwise and JAX has not started yet, importing pipla
gives XLA's CPU client a pool of one thread per device. `make bench` measures the difference.

To keep XLA's own default, set `PIPLA_THREADS=all` (or set `PJRT_NPROC` yourself) before the
import. GPUs and TPUs are not affected.
"""

from __future__ import annotations

import os


def one_thread_per_device() -> None:
    """Ask XLA for one thread per CPU device, unless the user chose already.

    XLA reads the variable when JAX first touches a device; later it has no effect.
    """
    if os.environ.get("PIPLA_THREADS") != "all":
        os.environ.setdefault("PJRT_NPROC", "1")
