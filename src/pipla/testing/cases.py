"""What the contracts of a term are applied to: `ProxCase`; and what a contract is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from pipla.prox.base import Term
from pipla.testing.minima import Minimum

#: A largest smoothing: a number, or a function of theta and x.
Limit = float | Callable[[float, np.ndarray], float]
#: theta, x, lam_theta, lam_x, in NumPy.
Point = tuple[float, np.ndarray, float, float]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ProxCase:
    """A term, how to draw a theta and an x for it, and its minimum by other means.

    Arguments:
        name: appears in messages.
        term: the term, with its numbers.
        minimum: `(theta, x, lam_theta, lam_x)` to the value of the prox's objective at the point
            that the term promises, by other means than the term's own, in NumPy. `lam_theta` may
            be 0: theta is then fixed.
        draw_x: `(rng, size)` to an x with about `size` elements.
        convex: whether the term is jointly convex, so that its prox is firmly non-expansive.
        joint: whether the term uses theta.
        draw_theta: `rng` to a theta.
        sizes: the sizes of x to draw from; the second one is used where one size is enough.
        accuracy: the relative error that the objective may have.
        max_lam_theta, max_lam_x: the largest smoothings for which the promised point exists (for
            a weakly convex penalty the inverse of its modulus); numbers or functions of
            `(theta, x)`.
        any_x: whether the term accepts any pytree x, not only one array.
        variant: another case covers the same code; spare this one the contracts about
            transformations and dtypes.
    """

    name: str
    term: Term
    minimum: Minimum
    draw_x: Callable[[np.random.Generator, int], np.ndarray]
    convex: bool
    joint: bool = False
    draw_theta: Callable[[np.random.Generator], float] = lambda rng: 0.0
    sizes: tuple[int, ...] = (1, 30, 300)
    accuracy: float = 1e-9
    max_lam_theta: Limit = np.inf
    max_lam_x: Limit = np.inf
    any_x: bool = False
    variant: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        """The size of x where one is enough."""
        return self.sizes[min(1, len(self.sizes) - 1)]

    def limit_theta(self, theta: float, x: np.ndarray) -> float:
        """The largest smoothing of theta there."""
        return self.max_lam_theta(theta, x) if callable(self.max_lam_theta) else self.max_lam_theta

    def limit_x(self, theta: float, x: np.ndarray) -> float:
        """The largest smoothing of x there."""
        return self.max_lam_x(theta, x) if callable(self.max_lam_x) else self.max_lam_x

    def draw(self, seed: int, size: int | None = None) -> Point:
        """A random (theta, x, lam_theta, lam_x), the smoothings over four orders of magnitude."""
        rng = np.random.default_rng(seed)
        size = int(rng.choice(self.sizes)) if size is None else size
        x = self.draw_x(rng, size)
        theta, lam_theta = self.draw_theta(rng), 10 ** rng.uniform(-4, 0)
        lam_theta = lam_theta / (x.size if rng.random() < 0.5 else 1)
        lam_x = 10 ** rng.uniform(-3, 1)
        return (
            theta,
            x,
            min(lam_theta, self.limit_theta(theta, x)),
            min(lam_x, self.limit_x(theta, x)),
        )


def require_float64() -> None:
    """Raise an error that says what to do, instead of contracts that rounding breaks."""
    if jnp.result_type(float) != jnp.float64:
        raise RuntimeError(
            "the contracts compare with float64; call "
            '`jax.config.update("jax_enable_x64", True)` first.'
        )


@dataclasses.dataclass(frozen=True)
class ProxContract:
    """One contract: call it with a case; `applies` says whether it is meant for a case."""

    check: Callable[[ProxCase], None]
    joint: bool = False
    convex: bool = False
    thorough: bool = False

    @property
    def name(self) -> str:
        """The contract's name."""
        return self.check.__name__

    def applies(self, case: ProxCase) -> bool:
        """Whether the contract is meant for a case."""
        return (
            (case.joint or not self.joint)
            and (case.convex or not self.convex)
            and not (case.variant and self.thorough)
        )

    def __call__(self, case: ProxCase) -> None:
        require_float64()
        self.check(case)

    def __repr__(self) -> str:
        return self.name


def near(
    sentence: str, actual: Any, expected: Any, *, relative: float = 0.0, absolute: float = 0.0
) -> None:
    """Two numbers agree; `sentence` says what they are."""
    actual, expected = float(actual), float(expected)
    error = abs(actual - expected)
    assert actual == expected or error <= max(relative * abs(expected), absolute), (
        f"{sentence}: got {actual!r}, expected {expected!r} (error {error:.3g})"
    )


def refused(kind: type[Exception], words: tuple[str, ...], call: Callable[[], Any]) -> None:
    """The call raises an exception of a kind, whose message has some of the words."""
    try:
        call()
    except kind as error:
        if not any(part in str(error) for part in words):
            raise AssertionError(
                f"the {kind.__name__} must say {' or '.join(map(repr, words))}, not {error}"
            ) from error
    else:
        raise AssertionError(f"a {kind.__name__} that says {words[0]!r} must be raised")
