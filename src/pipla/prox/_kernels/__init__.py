"""Machine code for CPUs, compiled by numba. Every kernel has a JAX twin."""
