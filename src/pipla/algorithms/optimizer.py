"""Theta driven by an optax transformation. Importing pipla does not import optax: its users do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import PyTree

if TYPE_CHECKING:
    from optax import GradientTransformation


def check_optimizer(optimizer: GradientTransformation | None) -> None:
    """`optimizer` is `None` or has what optax asks of a transformation."""
    if optimizer is not None and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(
            "theta_optimizer must be an optax transformation such as `optax.adam(0.01)`, got "
            f"{type(optimizer).__name__}."
        )


def first_state(optimizer: GradientTransformation | None, theta: PyTree) -> PyTree:
    """The optimiser's state before the first step."""
    return None if optimizer is None else optimizer.init(theta)


def optimizer_step(
    optimizer: GradientTransformation, slope: PyTree, state: PyTree, theta: PyTree
) -> tuple[PyTree, PyTree]:
    """Theta and the optimiser's state after a step along `slope`."""
    from optax import apply_updates

    updates, state = optimizer.update(slope, state, theta)
    return apply_updates(theta, updates), state
