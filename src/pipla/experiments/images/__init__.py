"""Experiments about images."""
