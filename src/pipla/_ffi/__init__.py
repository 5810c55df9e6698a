"""Kernels compiled by numba as parts of JAX programs: registration (`ffi`) and call frame."""
