"""Bayesian neural networks with learned prior scales: digits, pruning, activations, vehicles."""
