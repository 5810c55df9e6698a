r"""Total variation of signals, images and volumes, fixed or with a learned strength."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla._checks import boolean, integer
from pipla._ffi.ffi import on_cpu
from pipla.prox._arguments import (
    Hyperparameter,
    Number,
    as_float,
    check_axes,
    check_positive,
    hyperparameter,
    normal_axes,
    require_floating,
    require_smoothing,
    require_warm_start,
)
from pipla.prox._kernels.tv import native_solver, native_value
from pipla.prox._roots.newton import add_up
from pipla.prox.base import Iterative, Scalar, Solution
from pipla.prox.norms import euclidean
from pipla.prox.regularity import Regularity
from pipla.prox.strength import Strength

#: Iterations between two evaluations of the duality gap, which costs about one iteration.
_CHUNK = 5


class _Step(NamedTuple):
    """One iteration: the dual p, the extrapolated q, the point u, and the age of the momentum."""

    dual: tuple[Array, ...]
    ahead: tuple[Array, ...]
    u: Array
    age: Array


class _Chunk(NamedTuple):
    """A number of iterations and the gap after them."""

    step: _Step
    gap: Array
    iterations: Array


class TotalVariation(Iterative):
    r"""$w\, \mathrm{TV}(x)$: the finite differences of x along `axes` (all of them by default).

    Anisotropic (default): the sum of their absolute values. Isotropic: the sum over elements of the
    Euclidean norm of the forward differences there. Value and prox are always of the same kind
    (E5: the published code mixes them).

    The prox is $x - t D^\top p$ with $t = \lambda_x w$ and a dual $p$ in the unit ball (of each
    difference, or of each element's differences), found by accelerated projected gradient steps
    (Beck and Teboulle 2009) whose momentum restarts when the gap rises. With the extrapolated dual
    $q$, the point returned is $u = x - t D^\top q$, and the gap between it and $p$ is

    $$ \mathrm{gap} = w \sum_e \big( |(Du)_e| - \langle p_e, (Du)_e \rangle \big)
       + \frac{t w}{2} |D^\top (q - p)|^2, $$

    all terms non-negative: nothing cancels. It bounds the excess of
    $w\,\mathrm{TV}(u) + |u - x|^2/(2\lambda_x)$ over its minimum. The iteration stops when

    $$ \lambda_x\, \mathrm{gap} \le \mathrm{tolerance} \times
       \min\big(d\, t^2,\; \tfrac12 |x - \bar x|^2\big), $$

    evaluated after every five iterations, or after `max_iterations`. Since
    $\tfrac12|u - u^*|^2 \le \lambda_x\,\mathrm{gap}$, the root mean square error of $u$ is at most
    $\sqrt{2\,\mathrm{tolerance}}$ times the weight $t$ (no element moves by more than $2t$ per
    axis), or times the standard deviation of x if that is smaller. It also stops at rounding. The
    warm start is $p$, which does not depend on the weight.

    On CPUs a kernel compiled by numba does the work (`pipla.prox._kernels`), elsewhere and
    without numba XLA; `native=False` asks for XLA everywhere. The two differ by rounding.

    >>> steps = jnp.array([0.0, 0.0, 4.0, 4.0])
    >>> print([f"{u:.2f}" for u in TotalVariation().prox(None, steps, None, 1.0)[1]])
    ['0.50', '0.50', '3.50', '3.50']
    """

    uses_theta: ClassVar[bool] = False
    finite: ClassVar[bool] = True

    weight: Hyperparameter = hyperparameter(default=1.0)
    isotropic: bool = eqx.field(static=True, default=False)
    tolerance: Hyperparameter = hyperparameter(default=1e-4)
    max_iterations: int = eqx.field(static=True, default=200)
    axes: tuple[int, ...] | None = eqx.field(static=True, default=None)
    native: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_positive("weight", self.weight)
        _check_options(self.isotropic, self.tolerance, self.max_iterations, self.axes, self.native)

    def value(self, theta: PyTree, x: Array) -> Scalar:
        x = require_floating("x", x, self)
        axes = self._axes(x)
        kernel = native_value(x.shape, x.dtype, axes, self.isotropic) if self.native else None

        def portable(x: Array) -> Array:
            lengths = self._lengths(tuple(_difference(x, axis) for axis in axes))
            return add_up(functools.reduce(jnp.add, lengths))

        return self.weight.astype(x.dtype) * on_cpu(kernel, portable, x)

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        r"""The squared length scale $w^{-2}$."""
        x = require_floating("x", x, self)
        return 1 / self.weight.astype(x.dtype) ** 2

    def regularity(self, theta: PyTree, x: Array) -> Regularity:
        r"""Anisotropic: the gradient at a checkerboard, where each difference counts fully.

        Isotropic: the bound $w |D| \sqrt d \le w \sqrt{4 a d}$ for $a$ axes.
        """
        x = require_floating("x", x, self)
        axes = self._axes(x)
        if self.isotropic:
            return Regularity(True, float(self.weight) * math.sqrt(4 * len(axes) * x.size))
        degrees = np.zeros(x.shape)
        for axis in axes:
            place = np.arange(x.shape[axis])
            each = 2.0 - (place == 0) - (place == x.shape[axis] - 1)
            degrees += np.expand_dims(each, tuple(i for i in range(x.ndim) if i != axis))
        return Regularity(True, float(self.weight) * float(np.linalg.norm(degrees)))

    def warm_start(self, theta: PyTree, x: Array) -> tuple[Array, ...]:
        x = require_floating("x", x, self)
        return tuple(jnp.zeros_like(x) for _ in self._axes(x))

    def solve(
        self,
        theta: PyTree,
        x: Array,
        lam_theta: PyTree,
        lam_x: Scalar,
        warm: tuple[Array, ...],
    ) -> Solution:
        x = require_floating("x", x, self)
        require_warm_start(warm, self, theta, x)
        weight = self.weight.astype(x.dtype)
        shift = require_smoothing("lam_x", lam_x, x) * weight
        at = (x, shift, self.tolerance.astype(x.dtype), warm)
        options = (self._axes(x), self.isotropic, self.max_iterations)
        kernel = native_solver(x.shape, x.dtype, *options) if self.native else None

        def portable(*at: Any) -> Any:
            return self._iterate(*at)

        u, dual, gap = on_cpu(kernel, portable, *at)
        return Solution(theta, u, dual, weight * gap)

    def _iterate(
        self, x: Array, shift: Array, tolerance: Array, warm: tuple[Array, ...]
    ) -> tuple[Array, tuple[Array, ...], Array]:
        """The JAX form: the point, its dual and the gap divided by the weight."""
        axes = self._axes(x)
        # |D|² ≤ 4 per axis; in units of the weight the gradient step is D u / (4 n t). The floor
        # keeps its square finite where the weight vanishes.
        rate = 1 / (4 * len(axes) * jnp.maximum(shift, jnp.finfo(x.dtype).tiny ** 0.25))

        def primal(dual: tuple[Array, ...]) -> Array:
            return x - shift * sum(_adjoint(p, axis) for p, axis in zip(dual, axes, strict=True))

        def gap_of(u: Array, dual: tuple[Array, ...], ahead: tuple[Array, ...]) -> Array:
            differences = tuple(_difference(u, axis) for axis in axes)
            excess = functools.reduce(jnp.add, self._lengths(differences))
            for p, difference in zip(dual, differences, strict=True):
                excess = excess - p * difference
            apart = (_adjoint(q - p, axis) for p, q, axis in zip(dual, ahead, axes, strict=True))
            return add_up(excess + 0.5 * shift * sum(apart) ** 2)

        def advance(index: Array, state: _Step) -> _Step:
            # Each array becomes a function of itself at the same place, so XLA works in place;
            # recovering the new p from the new q saves a copy of it and a second stencil.
            dual, ahead, u, age = state
            momentum = (age + index.astype(x.dtype)) / (age + index.astype(x.dtype) + 3)
            trial = tuple(
                q + rate * _difference(u, axis) for q, axis in zip(ahead, axes, strict=True)
            )
            ahead = tuple(
                (1 + momentum) * new - momentum * old
                for new, old in zip(self._project(trial), dual, strict=True)
            )
            dual = tuple(
                (q + momentum * old) * (1 / (1 + momentum))
                for q, old in zip(ahead, dual, strict=True)
            )
            return _Step(dual, ahead, primal(ahead), age)

        def unfinished(state: _Chunk) -> Array:
            return (state.gap > enough) & (state.iterations < self.max_iterations)

        def chunk(state: _Chunk) -> _Chunk:
            dual, ahead, u, age = jax.lax.fori_loop(0, _CHUNK, advance, state.step)
            dual = self._project(dual)  # p was recovered up to rounding
            gap = gap_of(u, dual, ahead)
            # A rising gap means that the momentum has overshot: start it again from 0.
            age = jnp.where(gap > state.gap, 0, age + _CHUNK)
            return _Chunk(_Step(dual, ahead, u, age), gap, state.iterations + _CHUNK)

        centred = x - jnp.mean(x, axis=axes, keepdims=True)
        scale = jnp.minimum(x.size * shift, 0.5 * add_up(centred**2) * (4 * len(axes) * rate))
        rounding = len(axes) * jnp.finfo(x.dtype).eps * add_up(jnp.abs(x))
        enough = tolerance * scale + rounding
        zero, unknown = jnp.zeros_like(shift), jnp.full_like(shift, jnp.inf)
        start = _Step(warm, warm, primal(warm), zero)
        state = _Chunk(start, unknown, jnp.zeros((), jnp.int32))
        state = jax.lax.while_loop(unfinished, chunk, state)
        return state.step.u, state.step.dual, state.gap

    def _axes(self, x: Array) -> tuple[int, ...]:
        return normal_axes("axes", tuple(range(x.ndim)) if self.axes is None else self.axes, x)

    def _lengths(self, differences: tuple[Array, ...]) -> tuple[Array, ...]:
        if self.isotropic:
            return (euclidean(jnp.stack(differences), 0),)
        return tuple(map(jnp.abs, differences))

    def _project(self, dual: tuple[Array, ...]) -> tuple[Array, ...]:
        if not self.isotropic:
            return tuple(jnp.clip(p, -1, 1) for p in dual)
        length = jnp.maximum(jnp.sqrt(sum(p**2 for p in dual)), 1)
        return tuple(p / length for p in dual)


class TVStrength(Strength):
    r"""$g_2(\theta, x) = e^\theta\, \mathrm{TV}(x) - d\,\theta$: how smooth is the image?

    Total variation does not see constants, so the exact exponent is $d - 1$ (E7); `degrees` sets
    it. The joint prox is that of `Strength`; the options are those of `TotalVariation`.
    """

    def __init__(
        self,
        *,
        isotropic: bool = False,
        tolerance: Number = 1e-4,
        max_iterations: int = 200,
        axes: tuple[int, ...] | None = None,
        degrees: Number | None = None,
        native: bool = True,
    ) -> None:
        # First: equinox flattens what a module is made of, and names no argument.
        tolerance = as_float(tolerance)
        _check_options(isotropic, tolerance, max_iterations, axes, native)
        regulariser = TotalVariation(
            isotropic=isotropic,
            tolerance=tolerance,
            max_iterations=max_iterations,
            axes=axes,
            native=native,
        )
        super().__init__(regulariser, degrees=degrees, tolerance=tolerance)


def _check_options(
    isotropic: Any, tolerance: Any, max_iterations: Any, axes: Any, native: Any
) -> None:
    check_positive("tolerance", tolerance)
    integer("max_iterations", max_iterations, least=1)
    check_axes("axes", () if axes is None else axes)
    boolean("isotropic", isotropic)
    boolean("native", native)


def _difference(u: Array, axis: int) -> Array:
    """Forward differences along `axis`, in the shape of `u`: the last one is 0."""
    last = jax.lax.slice_in_dim(u, u.shape[axis] - 1, None, axis=axis)
    return jnp.concatenate([jax.lax.slice_in_dim(u, 1, None, axis=axis), last], axis=axis) - u


def _adjoint(p: Array, axis: int) -> Array:
    """The transpose of `_difference`, for a `p` whose last entry along `axis` is 0."""
    first = jnp.zeros_like(jax.lax.slice_in_dim(p, 0, 1, axis=axis))
    before = jax.lax.slice_in_dim(p, 0, p.shape[axis] - 1, axis=axis)
    return jnp.concatenate([first, before], axis=axis) - p
