"""Running: one driver for runs and sweeps, what is kept, what is returned."""
