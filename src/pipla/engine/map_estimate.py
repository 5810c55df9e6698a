r"""The most probable x at a given theta: $\arg\min_x U(\theta, x)$."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from pipla import _checks, _trees
from pipla.models.model import Model, require_model, without_fixed_leaves
from pipla.tuning.curvature import stiffness


class MapEstimate(NamedTuple):
    """The estimate, its potential, and whether the iteration settled in the steps it had."""

    x: PyTree
    potential: Float[Array, ""]
    num_steps: Int[Array, ""]
    converged: bool


def map_estimate(
    model: Model,
    theta: PyTree,
    x: PyTree,
    *,
    num_steps: int = 300,
    tolerance: float = 1e-4,
    step_size: float | None = None,
) -> MapEstimate:
    r"""Minimise $g_1 + g_2$ over x, theta fixed, from `x`.

    Where the proximal map of the smooth part is known (a `GaussianLikelihood` with an
    eigenbasis), by Douglas-Rachford splitting,

    $$ a = \operatorname{prox}^{\gamma}_{g_1}(z), \qquad
       b = \operatorname{prox}^{\gamma}_{g_2}(2a - z), \qquad z \leftarrow z + b - a, $$

    and otherwise by accelerated forward-backward steps (Beck and Teboulle 2009) whose momentum
    restarts when it points uphill (O'Donoghue and Candès 2015). Where g1 is flat at `x` ($L = 0$),
    the step is the prior's own unit of time, as for the splitting.

    Arguments:
        num_steps: the largest number of steps.
        tolerance: stop when a step moves x by less than this part of its distance from its mean.
        step_size: $\gamma$; by default .3 of the prior's own unit of time for the splitting,
            and 1/L for the forward-backward steps.
    """
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    tolerance = _checks.real("tolerance", tolerance)
    step_size = None if step_size is None else _checks.real("step_size", step_size)
    _checks.positive("tolerance", tolerance)
    _checks.positive("step_size", step_size)
    model, theta, x = without_fixed_leaves(model, theta, x)
    theta, x = _checked_point(model, theta, x)
    dtype = _trees.dtype(x)
    exact = jax.eval_shape(model.smooth.resolvent, theta, x, jnp.ones((), dtype)) is not None
    if step_size is None:
        units = model.nonsmooth.time_unit(theta, x)
        steps = jax.tree.map(lambda u: 0.3 * jnp.where(jnp.isfinite(u), u, 1.0), units)
        if not exact:
            steepest = stiffness(model, theta, x)
            if not bool(jnp.isfinite(steepest)):
                raise ValueError(
                    f"x: the curvature of smooth at this x is {float(steepest)}; start where "
                    "smooth is finite and has finite derivatives, or give step_size."
                )
            if steepest > 0:
                steps = jax.tree.map(lambda _: (1 / steepest).astype(dtype), x)
    else:
        steps = jax.tree.map(lambda _: jnp.asarray(step_size, dtype), x)
    solve = _splitting if exact else _forward_backward
    found, count, change = solve(
        model, theta, x, steps, jnp.asarray(num_steps), jnp.asarray(tolerance, dtype)
    )
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(found)):
        raise ValueError(
            f"x became non-finite within {int(count)} steps; give a smaller step_size"
            + ("." if step_size is None else f" than {step_size:.4g}.")
        )
    value = model.potential(theta, found)
    return MapEstimate(model.fixed.complete_x(found), value, count, bool(change <= tolerance))


def _checked_point(model: Model, theta: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
    """Theta and x as finite float arrays of one dtype, where this model can be evaluated."""
    require_model(model)
    theta, x = _checks.floating("theta", theta), _checks.floating("x", x)
    for name, tree in (("theta", theta), ("x", x)):
        if not all(map(_checks.is_concrete, jax.tree.leaves(tree))):
            raise TypeError(f"{name} is being traced; call map_estimate outside `jit` and `vmap`.")
        _checks.finite(name, tree)
    if not _trees.size(x):
        raise ValueError("x is empty; give an array or a pytree of arrays.")
    theta, x = _trees.one_dtype((theta, x))
    model.check(theta, jax.tree.map(lambda leaf: leaf[None], x))
    return theta, x


@_trees.bounded_jit()
def _splitting(
    fixed: Model,
    arrays: Model,
    theta: PyTree,
    x: PyTree,
    steps: PyTree,
    most: Array,
    tolerance: Array,
) -> tuple[PyTree, Array, Array]:
    model = eqx.combine(fixed, arrays)

    def body(state: tuple[Any, ...]) -> tuple[Any, ...]:
        z, last, warm, count, _ = state
        centre: Any = model.smooth.resolvent(theta, z, steps)
        mirror = 2 * centre - z
        point = model.nonsmooth.solve(theta, mirror, None, steps, warm)
        return z + point.x - centre, point.x, point.warm, count + 1, _change(point.x, last)

    start = (x, x, model.nonsmooth.warm_start(theta, x), jnp.zeros((), jnp.int32), jnp.inf)
    _, found, _, count, change = _until_settled(body, start, most, tolerance)
    return found, count, change


@_trees.bounded_jit()
def _forward_backward(
    fixed: Model,
    arrays: Model,
    theta: PyTree,
    x: PyTree,
    steps: PyTree,
    most: Array,
    tolerance: Array,
) -> tuple[PyTree, Array, Array]:
    model = eqx.combine(fixed, arrays)

    def body(state: tuple[Any, ...]) -> tuple[Any, ...]:
        ahead, last, warm, age, count, _ = state
        gradient = jax.grad(model.smooth_value, argnums=1)(theta, ahead)
        down = jax.tree.map(lambda v, h, g: v - h * g, ahead, steps, gradient)
        point = model.nonsmooth.solve(theta, down, None, steps, warm)
        uphill = sum(
            jnp.sum((v - new) * (new - old))
            for v, new, old in zip(*map(jax.tree.leaves, (ahead, point.x, last)), strict=True)
        )
        age = jnp.where(uphill > 0, 0.0, age)
        momentum = age / (age + 3)
        following = jax.tree.map(lambda new, old: new + momentum * (new - old), point.x, last)
        return following, point.x, point.warm, age + 1, count + 1, _change(point.x, last)

    warm = model.nonsmooth.warm_start(theta, x)
    zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))
    start = (x, x, warm, zero, jnp.zeros((), jnp.int32), jnp.inf)
    _, found, _, _, count, change = _until_settled(body, start, most, tolerance)
    return found, count, change


def _until_settled(body: Any, start: tuple[Any, ...], most: Array, tolerance: Array) -> Any:
    """Repeat `body`, whose last two numbers are the count and the change."""

    def unfinished(state: tuple[Any, ...]) -> Array:
        *_, count, change = state
        return (count < most) & (change > tolerance)

    start = (*start[:-1], jnp.asarray(start[-1], tolerance.dtype))
    return jax.lax.while_loop(unfinished, body, start)


def _change(new: PyTree, old: PyTree) -> Array:
    """The length of a step relative to the distance of x from its mean."""

    def squares(tree: PyTree) -> Any:
        return sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree))

    moved = _trees.subtract(new, old)
    centred = jax.tree.map(lambda leaf: leaf - jnp.mean(leaf), new)
    size = squares(centred)
    return jnp.sqrt(squares(moved) / jnp.where(size > 0, size, 1.0))
