"""Experiments about restored images."""
