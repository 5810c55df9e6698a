"""Machine code for CPUs. Every kernel has a JAX twin."""
