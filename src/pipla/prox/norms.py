r"""Penalties on x alone: $\ell_1$, $\ell_2^2$, elastic net, group lasso, nuclear norm.

Soft-thresholding is one idea with several coordinates. A `SoftThreshold` says which non-negative
amplitudes of x it adds up (absolute values, group norms, singular values) and how to rebuild x
from new ones; its prox, and the learned strength of `pipla.prox.strength`, then follow.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla._decompositions import singular_values, svd
from pipla.prox._arguments import (
    Hyperparameter,
    check_axes,
    check_nonnegative,
    check_positive,
    hyperparameter,
    normal_axes,
    require_floating,
    require_smoothing,
)
from pipla.prox.base import Fixed, Scalar, Solution, soft
from pipla.prox.regularity import Regularity


class SoftThreshold(Fixed):
    r"""$w \sum_j s_j(x)$ over amplitudes $s_j \ge 0$; its prox makes them $(s_j - \lambda w)_+$."""

    finite: ClassVar[bool] = True

    weight: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def amplitudes(self, x: Array) -> Array:
        """The amplitudes that the penalty adds up."""

    @abc.abstractmethod
    def decompose(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        """The amplitudes, and a function from new (not larger) amplitudes to the new x."""

    def penalty(self, x: Array) -> Scalar:
        return self.weight.astype(x.dtype) * jnp.sum(self.amplitudes(x))

    def shrink(self, x: Array, lam: Scalar) -> Array:
        return self.threshold(x, lam)[0]

    def threshold(self, x: Array, lam: Scalar) -> tuple[Array, Scalar]:
        """The proximal point and the penalty there, from one decomposition."""
        weight = self.weight.astype(x.dtype)
        amplitudes, rebuild = self.decompose(x)
        shrunk = jnp.maximum(amplitudes - lam * weight, 0)
        return rebuild(shrunk), weight * jnp.sum(shrunk)

    def solve(
        self, theta: PyTree, x: Array, lam_theta: PyTree, lam_x: Scalar, warm: PyTree
    ) -> Solution:
        x = require_floating("x", x, self)
        point, penalty = self.threshold(x, require_smoothing("lam_x", lam_x, x))
        return Solution(theta, point, warm, jnp.zeros((), x.dtype), penalty)

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        r"""The squared length scale $w^{-2}$."""
        x = require_floating("x", x, self)
        return 1 / self.weight.astype(x.dtype) ** 2

    def regularity(self, theta: PyTree, x: Array) -> Regularity:
        r"""$w \sqrt k$ for $k$ amplitudes: their gradients are orthogonal unit vectors."""
        amplitudes = jax.eval_shape(self.amplitudes, require_floating("x", x, self))
        return Regularity(True, float(self.weight) * math.sqrt(amplitudes.size))


class L1(SoftThreshold):
    r"""$w \sum_i |x_i|$.

    >>> print(L1(2.0).prox(None, jnp.array([-3.0, 0.5]), None, 1.0)[1])
    [-1.  0.]
    """

    weight: Hyperparameter = hyperparameter(default=1.0)

    def __check_init__(self) -> None:
        check_positive("weight", self.weight)

    def amplitudes(self, x: Array) -> Array:
        return jnp.abs(x)

    def decompose(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        return jnp.abs(x), lambda amplitudes: jnp.sign(x) * amplitudes


class GroupLasso(SoftThreshold):
    r"""$w \sum_g |x_g|_2$: the Euclidean norms along `axis` (one axis or several), added up.

    >>> x = jnp.array([[3.0, 4.0], [1.0, 1.0]])
    >>> print(GroupLasso(2.5, axis=1).prox(None, x, None, 1.0)[1])
    [[1.5 2. ]
     [0.  0. ]]
    """

    weight: Hyperparameter = hyperparameter(default=1.0)
    axis: int | tuple[int, ...] = eqx.field(static=True, default=-1)

    def __check_init__(self) -> None:
        check_positive("weight", self.weight)
        check_axes("axis", self.axis if isinstance(self.axis, tuple) else (self.axis,))

    def amplitudes(self, x: Array) -> Array:
        return euclidean(x, self._axes(x))

    def decompose(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        axes = self._axes(x)
        norms = euclidean(x, axes)

        def rebuild(amplitudes: Array) -> Array:
            ratio = amplitudes / jnp.where(norms > 0, norms, 1)
            return x * jnp.expand_dims(ratio, axes)

        return norms, rebuild

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        r"""$w^{-2}(k + 1)/2$ for groups of k: half the variance of an element under the prior."""
        x = require_floating("x", x, self)
        unit = super().time_unit(theta, x)
        size = math.prod(x.shape[axis] for axis in self._axes(x))
        return unit * (size + 1) / 2

    def _axes(self, x: Array) -> tuple[int, ...]:
        return normal_axes("axis", self.axis if isinstance(self.axis, tuple) else (self.axis,), x)


class NuclearNorm(SoftThreshold):
    r"""$w |x|_*$: the singular values of the last two axes, added up (and over leading axes)."""

    weight: Hyperparameter = hyperparameter(default=1.0)

    def __check_init__(self) -> None:
        check_positive("weight", self.weight)

    def amplitudes(self, x: Array) -> Array:
        return singular_values(_matrix(x))

    def decompose(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        left, amplitudes, right = svd(_matrix(x))
        return amplitudes, lambda shrunk: (left * shrunk[..., None, :]) @ right

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        r"""$w^{-2} \max(n, m)$ for matrices of n × m: they repel singular values from 0."""
        x = require_floating("x", x, self)
        return super().time_unit(theta, x) * max(_matrix(x).shape[-2:])


class SquaredL2(Fixed):
    r"""$\tfrac{w}{2} |x|^2$: the potential of a centred Gaussian of precision $w$."""

    finite: ClassVar[bool] = True
    homogeneity: ClassVar[int] = 2

    weight: Hyperparameter = hyperparameter(default=1.0)

    def __check_init__(self) -> None:
        check_positive("weight", self.weight)

    def penalty(self, x: Array) -> Scalar:
        return 0.5 * self.weight.astype(x.dtype) * jnp.sum(x**2)

    def shrink(self, x: Array, lam: Scalar) -> Array:
        return x / (1 + lam * self.weight.astype(x.dtype))

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        r"""The variance $w^{-1}$."""
        x = require_floating("x", x, self)
        return 1 / self.weight.astype(x.dtype)

    def regularity(self, theta: PyTree, x: Array) -> Regularity:
        return Regularity(True, None)


class ElasticNet(Fixed):
    r"""$w_1 \sum_i |x_i| + \tfrac{w_2}{2} |x|^2$, either weight possibly 0."""

    finite: ClassVar[bool] = True

    l1: Hyperparameter = hyperparameter(default=1.0)
    l2: Hyperparameter = hyperparameter(default=1.0)

    def __check_init__(self) -> None:
        check_nonnegative("l1", self.l1)
        check_nonnegative("l2", self.l2)

    def penalty(self, x: Array) -> Scalar:
        l1, l2 = self.l1.astype(x.dtype), self.l2.astype(x.dtype)
        return l1 * jnp.sum(jnp.abs(x)) + 0.5 * l2 * jnp.sum(x**2)

    def shrink(self, x: Array, lam: Scalar) -> Array:
        l1, l2 = self.l1.astype(x.dtype), self.l2.astype(x.dtype)
        return soft(x, lam * l1) / (1 + lam * l2)

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        r"""The squared length scale $(w_1^2 + w_2)^{-1}$; infinite where both weights are 0."""
        x = require_floating("x", x, self)
        return 1 / (self.l1.astype(x.dtype) ** 2 + self.l2.astype(x.dtype))

    def regularity(self, theta: PyTree, x: Array) -> Regularity:
        """As `L1` where the quadratic part has weight 0; else not Lipschitz."""
        size = require_floating("x", x, self).size
        return Regularity(True, None if self.l2 > 0 else float(self.l1) * math.sqrt(size))


def euclidean(x: Array, axis: int | tuple[int, ...]) -> Array:
    """The Euclidean norm along `axis`, with gradient 0 (a subgradient) where it vanishes."""
    squares = jnp.sum(x**2, axis=axis)
    # Autodiff of sqrt at 0 is infinite, and `where` alone would still multiply it by 0.
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


def _matrix(x: Array) -> Array:
    if x.ndim < 2:
        raise ValueError(
            f"the nuclear norm needs an x with at least two axes, but its shape is {x.shape}."
        )
    return x
