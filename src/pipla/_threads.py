"""One thread per CPU device, which suits programs of many small steps.

A Langevin step is a sequence of many small operations. XLA hands them to the threads of its pool,
and handing over costs as much as a small operation itself. On a quiet machine a program of small
steps takes a little longer with the pool than without, and more CPU time; on a busy one, where a
thread may wait for its core, up to several times as long. `make bench` measures the difference.
Cores are better used by whole runs (`pipla.sweep` distributes replicates over devices).

The pool belongs to the process. No compiler option of jaxlib 0.10 keeps a single program off it:
`xla_cpu_multi_thread_eigen`, `xla_cpu_scheduler_type`, `xla_cpu_experimental_ynn_fusion_type` and
`xla_cpu_use_xnnpack` were tried, alone and together, and the steps still moved between threads.
Large products need the pool. Therefore importing pipla sets no environment variable. Call
`one_thread_per_device()` yourself, before JAX touches a device; the command line `pipla` does so.
GPUs and TPUs are not affected.
"""

from __future__ import annotations

import os
import warnings


def one_thread_per_device() -> bool:
    """Ask XLA for one thread per CPU device, unless the user has chosen otherwise.

    This sets `PJRT_NPROC=1` for this process and its children, for all JAX code in them. XLA reads
    the variable when JAX first touches a device; a later call has no effect, and warns. The user's
    choice comes first: with `PIPLA_THREADS=all`, or with `PJRT_NPROC` already set, the environment
    stays as it is.

    Returns:
        Whether XLA uses one thread per CPU device.
    """
    if os.environ.get("PIPLA_THREADS") == "all":
        return False
    if "PJRT_NPROC" in os.environ:
        return os.environ["PJRT_NPROC"] == "1"
    if _jax_has_started():
        warnings.warn(
            "one_thread_per_device() has no effect: JAX has already started its CPU client. Call "
            "it before the first JAX computation, or set PJRT_NPROC=1 before starting Python.",
            stacklevel=2,
        )
        return False
    os.environ["PJRT_NPROC"] = "1"
    return True


def _jax_has_started() -> bool:
    """Whether JAX has created its devices; `False` where this JAX does not tell."""
    try:
        # The public questions (`jax.devices()`) would themselves start JAX.
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return False
    return backends_are_initialized()
