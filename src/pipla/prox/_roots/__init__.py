"""Scalar equations to which the joint proximal maps reduce, solved to float precision."""
