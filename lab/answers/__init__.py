"""Exact answers to the problems of `pipla_lab.zoo`, in NumPy and SciPy."""
