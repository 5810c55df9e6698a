"""The version of pipla-lab, which is that of the pipla it belongs to."""

__version__ = "0.1.0"
