"""What `run`, `resume` and `sweep` check and prepare alike, before anything is compiled."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from pipla import _checks
from pipla.algorithms.base import Algorithm
from pipla.engine.save import Save
from pipla.models.model import Model


def checked_start(
    model: Model, algorithm: Algorithm, theta: PyTree, particles: PyTree
) -> tuple[PyTree, PyTree]:
    """Theta and particles as float arrays of one dtype, or an error that names the argument."""
    if not isinstance(algorithm, Algorithm):
        hint = f"; call it: `{algorithm.__name__}()`" if callable(algorithm) else ""
        raise TypeError(
            f"algorithm must be one such as pipla.PIPGLA(), got {type(algorithm).__name__}{hint}."
        )
    theta, particles = checked_point(model, theta, particles)
    algorithm.check(theta, particles)
    return theta, particles


def checked_point(model: Model, theta: PyTree, particles: PyTree) -> tuple[PyTree, PyTree]:
    """Theta and particles as float arrays of one dtype, where this model can be evaluated."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a pipla.Model, got {type(model).__name__}.")
    theta = _checks.floating("theta", theta)
    particles = _checks.floating("particles", particles)
    if not jax.tree.leaves(theta):
        raise ValueError("theta is empty; give a float, an array or a pytree of them.")
    _checks.particle_count(particles)
    _checks.finite("theta", theta)
    _checks.finite("particles", particles)
    theta, particles = one_dtype((theta, particles))
    model.check(theta, particles)
    return theta, particles


def one_dtype(tree: PyTree) -> PyTree:
    """`tree` with all leaves in their common dtype."""
    dtype = jnp.result_type(*jax.tree.leaves(tree))
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)


def checked_burn_in(burn_in: int | None, num_steps: int) -> int:
    """The burn-in, by default half of the steps."""
    if burn_in is None:
        return num_steps // 2
    burn_in = _checks.integer("burn_in", burn_in, least=0)
    if burn_in >= num_steps:
        raise ValueError(
            f"burn_in must be smaller than num_steps = {num_steps}, got {burn_in}: nothing would "
            "be left to average."
        )
    return burn_in


def checked_save(save: Save | None) -> Save:
    """The save policy, by default theta's trace and the moments of x."""
    if save is not None and not isinstance(save, Save):
        raise TypeError(f"save must be a pipla.Save, got {type(save).__name__}.")
    return save or Save()


def checked_progress(progress: bool | None) -> None:
    """`True`, `False`, or left out."""
    if progress is not None:
        _checks.boolean("progress", progress)


def checked_chunk_size(chunk_size: int | None) -> None:
    """At least 1, or left out."""
    if chunk_size is not None:
        _checks.integer("chunk_size", chunk_size, least=1)


def as_dtype(algorithm: Algorithm, particles: PyTree) -> Algorithm:
    """The algorithm with its numbers in the dtype of the particles, so that nothing is promoted."""
    dtype = jax.tree.leaves(particles)[0].dtype
    floats, rest = eqx.partition(algorithm, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: leaf.astype(dtype), floats), rest)
