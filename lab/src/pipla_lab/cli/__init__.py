"""The commands that pipla-lab adds to `pipla`, by the entry points of `lab/pyproject.toml`."""
