"""Scalar equations behind the joint proximal maps."""
