"""Fits in files: what a loaded one must agree on, so that its methods can rely on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from pipla import _trees
from pipla.engine.archive import DamagedResultError

if TYPE_CHECKING:
    from pipla.fitting.result import Fit

#: The largest count of steps that a run can have.
MOST_STEPS = 2**31 - 1


def check_consistent(fit: Fit) -> None:
    """Raise `DamagedResultError` where the fields of a fit contradict each other."""
    rows = max(fit.num_steps, 1)  # a start that is not finite is a trace of one row
    if not 0 <= fit.burn_in < rows <= MOST_STEPS:
        raise DamagedResultError("num_steps or burn_in is not a number of steps.")
    theta, x = _shapes("theta_stderr", fit.theta_stderr), _shapes("x_sd", fit.x_sd)
    size = _trees.size(fit.theta_stderr)
    _expect("theta", _learned(fit, "theta", fit.theta_stderr, fit.theta), theta)
    alike = {
        "theta_mcse": fit.theta_mcse,
        "theta_bias": fit.theta_bias,
        **_both_ends("theta_interval", fit.theta_interval),
    }
    for name, tree in alike.items():
        _expect(name, tree, theta)
    for name, tree in zip(fit.theta_trace._fields, fit.theta_trace, strict=True):
        _expect(f"theta_trace.{name}", tree, theta, (rows,))
    _expect("theta_correlation", fit.theta_correlation, _shapes("", np.empty((size, size))))
    _expect("x_mean", _learned(fit, "x", fit.x_sd, fit.x_mean), x)
    for name, tree in _both_ends("x_interval", fit.x_interval).items():
        _expect(name, tree, x)
    particles = _learned(fit, "particles", fit.x_sd, fit.particles)
    _expect("particles", particles, x, (fit.num_particles,))
    if any(len(ends) != 3 for ends in fit.parameters.values()):
        raise DamagedResultError("parameters does not hold estimates with two ends.")
    for name in ("step_size", "order"):
        if not (math.isfinite(getattr(fit, name)) and getattr(fit, name) > 0):
            raise DamagedResultError(f"{name} is not a positive number.")
    fit.record.check(fit.num_particles, _trees.size(fit.x_sd), size)
    fit.standing.check(size, fit.num_steps)


def _learned(fit: Fit, name: str, errors: PyTree, tree: PyTree) -> PyTree:
    """The leaves that are learned: all, unless there were modules; these have errors."""
    return _trees.like(name, errors, tree) if fit.modules else tree


def _both_ends(name: str, pair: Any) -> dict[str, PyTree]:
    if type(pair) is not tuple or len(pair) != 2:
        raise DamagedResultError(f"{name} is not a pair.")
    return {f"{name}[{i}]": end for i, end in enumerate(pair)}


def _expect(name: str, tree: PyTree, shapes: Any, lead: tuple[int, ...] = ()) -> None:
    """An error if a tree does not have these shapes, after the axes `lead`."""
    if _shapes(name, tree, lead) != shapes:
        raise DamagedResultError(f"{name} does not have the shapes of the others.")


def _shapes(name: str, tree: PyTree, lead: tuple[int, ...] = ()) -> Any:
    """The structure of a tree of floats, and the shapes of its leaves without the axes `lead`."""
    leaves, structure = jax.tree.flatten(tree)
    cut = len(lead)
    if not leaves or any(np.asarray(leaf).dtype.kind != "f" for leaf in leaves):
        raise DamagedResultError(f"{name} does not consist of real numbers.")
    if any(np.shape(leaf)[:cut] != lead for leaf in leaves):
        raise DamagedResultError(f"{name} does not have {lead} as its first axes.")
    return structure, [np.shape(leaf)[cut:] for leaf in leaves]
