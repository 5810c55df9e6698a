"""The version of pipla."""

__version__ = "0.1.0"
