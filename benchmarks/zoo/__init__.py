"""Exact answers to the problems of `pipla.problems.zoo`, in NumPy and SciPy."""
