r"""What a non-smooth term is: a value, a joint proximal map, a Moreau-Yosida envelope.

For one particle $x$ and the shared parameter $\theta$,

$$ \operatorname{prox}(\theta, x) = \arg\min_{u_0, u}\; g_2(u_0, u)
   + \frac{|u_0 - \theta|^2}{2 \lambda_\theta} + \frac{|u - x|^2}{2 \lambda_x}, $$

with two smoothings, because $\theta$ may live in a scaled metric (block preconditioning).
`lam_theta=None` means that $\theta$ does not move: the map is then the prox over $x$ alone, and
nothing is computed for $\theta$. The joint map at $\lambda_\theta = 0$, a number that may be known
only at run time, returns the same point, $\theta$ unchanged bit for bit.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from pipla._checks import numbers, structure
from pipla._trees import Address, Path, part, put_part, size
from pipla.prox._arguments import (
    Number,
    as_float,
    check_address,
    require_floating,
    require_smoothing,
    require_smoothing_tree,
)
from pipla.prox._distances import displacement, half_square
from pipla.prox.regularity import Regularity
from pipla.prox.rounding import constant, rounded

Scalar = Float[Array, ""]


class Solution(NamedTuple):
    """A proximal point, the warm start for the next call, and how inexact the point may be.

    `gap` bounds the objective's distance to its minimum (the duality gap); 0 for closed forms.
    `penalty` is the penalty at the point where the solver has it at no cost, else `None`: the
    value of a term in x alone, the $R(x)$ of a strength, one for each term of a sum with theta.
    A nuclear norm needs a second decomposition without it.
    """

    theta: PyTree
    x: PyTree
    warm: PyTree
    gap: Scalar
    penalty: PyTree = None


class Term(eqx.Module):
    r"""A non-smooth term $g_2(\theta, x)$ for one particle; see `ClosedForm` and `Iterative`."""

    @property
    def uses_theta(self) -> bool:
        """Whether the value depends on theta; if not, the prox leaves theta alone.

        A subclass may write `uses_theta = False` in its body.
        """
        return True

    @property
    def finite(self) -> bool:
        """Whether the value is finite everywhere; that of a constraint is not.

        A subclass may write `finite = True` in its body.
        """
        return False

    @property
    def homogeneity(self) -> int:
        r"""The $k$ of a penalty on x alone with $R(c x) = |c|^k R(x)$: 1 for norms.

        A subclass may write `homogeneity = 2` in its body.
        """
        return 1

    def __hash__(self) -> int:
        """A hash of the term's numbers, which `jax.jit(term.prox)` needs; arrays have none."""
        leaves, structure = jax.tree.flatten(self)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            raise TypeError(
                f"{type(self).__name__} has numbers that are being traced, and therefore no hash; "
                "instead of `jax.jit(term.prox)` jit a function that calls it."
            )
        return hash((structure, *(np.asarray(leaf).tobytes() for leaf in leaves)))

    @abc.abstractmethod
    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        """The potential $g_2(\\theta, x)$: minus a log density, up to a constant."""

    @abc.abstractmethod
    def prox(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree
    ) -> tuple[PyTree, PyTree]:
        """The joint proximal point.

        Arguments:
            theta: the shared parameter; `None` for a term in x alone.
            x: one particle.
            lam_theta: the smoothing of theta, a number or a pytree like theta; `None` if theta (or
                that part of it) does not move.
            lam_x: the smoothing of x, a number or a pytree like x.

        Returns:
            theta and x.
        """

    @abc.abstractmethod
    def warm_start(self, theta: PyTree, x: PyTree) -> PyTree:
        """The warm start of the first `solve`: a pytree of arrays, or `None` if it needs none."""

    @abc.abstractmethod
    def solve(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        """The joint proximal point from a warm start, with the next warm start and the gap."""

    def envelope(self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree) -> Scalar:
        r"""The Moreau-Yosida envelope: the minimum that `prox` attains.

        It has first derivatives in every argument, and in those numbers of the term on which its
        value depends smoothly. The point is held fixed under differentiation, which is exact: to
        first order the minimum does not change with the minimiser (Danskin). Numbers that place a
        constraint (bounds, totals) have no derivative, because the value is 0 whatever they are.
        For second derivatives differentiate `envelope_gradient`.
        """
        theta, x, (lam_theta, each_theta), (lam_x, each_x) = _checked(theta, x, lam_theta, lam_x)
        # Gradients stop at the arguments, not at the result: they then never enter the solver,
        # whose loops reverse mode could not differentiate.
        term, *at = constant((self, theta, x, lam_theta, lam_x))
        point = term.prox(*at)
        return (
            self.value(*point)
            + half_square(theta, point[0], each_theta)
            + half_square(x, point[1], each_x)
        )

    def envelope_gradient(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree
    ) -> tuple[PyTree, PyTree]:
        r"""$((\theta - u_0)/\lambda_\theta,\; (x - u)/\lambda_x)$ at the proximal point $(u_0, u)$.

        The theta part is 0 where `lam_theta` is `None` or 0: theta is then a constant of the map.
        """
        theta, x, (lam_theta, each_theta), (lam_x, each_x) = _checked(theta, x, lam_theta, lam_x)
        point = self.prox(theta, x, lam_theta, lam_x)
        return displacement(theta, point[0], each_theta), displacement(x, point[1], each_x)

    @property
    def has_closed_form(self) -> bool:
        """Whether `closed_form` is known: always, if the term does not use theta.

        A subclass may write `has_closed_form = True` in its body.
        """
        return not self.uses_theta

    def closed_form(self, theta: PyTree, particles: PyTree) -> PyTree:
        r"""The theta that minimises the mean of $g_2(\cdot, X^i)$ over the particles.

        Not all terms have one. Terms on parts of theta leave the other parts as they are.
        """
        if not self.uses_theta:
            return theta
        raise TypeError(
            f"{type(self).__name__} has no closed-form theta; use theta_update='prox' or "
            "'gradient'."
        )

    def closed_form_at(self, theta: PyTree, particles: PyTree, penalty: PyTree) -> PyTree:
        """`closed_form` at particles that are proximal points, with what `solve` knew of them.

        Arguments:
            theta: the shared parameter.
            particles: the `x` of the `Solution` of each particle.
            penalty: their `penalty`, or `None`. By default it is not used.
        """
        return self.closed_form(theta, particles)

    def closed_form_curvature(self, theta: PyTree, particles: PyTree) -> PyTree:
        r"""The second derivative of the mean of $g_2(\cdot, X^i)$ at `closed_form`, in each number.

        A tree like theta, 0 in parts that the term does not use.
        """
        best, unravel = ravel_pytree(self.closed_form(theta, particles))

        def mean(flat: Array) -> Scalar:
            return jnp.mean(jax.vmap(lambda x: self.value(unravel(flat), x))(particles))

        return unravel(jnp.diagonal(jax.hessian(mean)(best)))

    def rounded_value(self, theta: PyTree, x: PyTree, width: PyTree) -> Scalar:
        r"""The value, with the kinks that move with theta rounded off over `width`, a tree like x.

        The standard error of theta needs second derivatives, of which a kink shows nothing. By
        default they are found from `value` and derivatives of `prox` (`pipla.prox.rounding`). The
        value of a constraint, which is not finite everywhere, stays as it is.
        """
        if not (self.uses_theta and self.finite):
            return self.value(theta, x)
        return rounded(self, theta, x, width)

    def time_unit(self, theta: PyTree, x: PyTree) -> PyTree:
        """For each leaf of x, the squared length scale of this term: the time of diffusion over it.

        Infinite for terms without a length scale.
        """
        return jax.tree.map(lambda leaf: jnp.full((), jnp.inf, leaf.dtype), numbers("x", x))

    def largest_smoothing(self, theta: PyTree, x: PyTree) -> Scalar:
        """The smoothing beyond which the joint prox leaves theta's own basin.

        Infinite for convex terms. The metric is the one where theta's smoothing is 1/d of that of
        x.
        """
        return jnp.asarray(jnp.inf, _float_type(x))

    def regularity(self, theta: PyTree, x: PyTree) -> Regularity:
        """Whether this term is convex and Lipschitz (`pipla_lab.theory`); only sizes count."""
        return Regularity()

    def objections(self) -> list[str]:
        """Why theta should not be learned with this term as it is; none for most terms."""
        return []

    def parameters(self, theta: PyTree) -> dict[str, Array]:
        """What theta means, by name: a scale, a strength, a location. Each grows or falls with it.

        Names of parts are in front: `"prior: scale"`.
        """
        return {}

    def reach(self) -> list[tuple[Path | None, Path]]:
        """Where the term acts: pairs of a path in theta (`None`: nowhere) and a path in x.

        One pair for each elementary term; the empty path is the whole of theta or x.
        """
        return [(() if self.uses_theta else None, ())]

    def summands(self) -> tuple[Term, ...]:
        """The terms that this one adds up, which act on disjoint parts; by default itself."""
        return (self,)

    def coupled_sizes(self, theta: PyTree, x: PyTree) -> PyTree:
        """For each leaf of theta, the number of elements of x that this term couples it to.

        `None` for a leaf that the term does not use: it is coupled through the smooth part.
        """
        x = numbers("x", x)
        sizes = jax.tree.map(lambda _: 0, numbers("theta", theta))
        for theta_path, x_path in self.reach():
            if theta_path is None:
                continue
            block = size(part("x", x, x_path))
            inner = part("theta", sizes, theta_path)
            added = jax.tree.map(lambda old, block=block: old + block, inner)
            sizes = put_part(sizes, theta_path, added)
        return jax.tree.map(lambda number: number or None, sizes)

    def on(self, *, theta: Address | None = None, x: Address | None = None) -> Term:
        """This term acting on parts of theta and x: `L1().on(x="weights")`."""
        from pipla.prox.combine import On

        check_address("theta", theta)
        check_address("x", x)
        return On(self, theta=theta, x=x)

    def translate(self, shift: PyTree) -> Term:
        r"""The term moved by `shift` in x: $g_2(\theta, x - s)$."""
        from pipla.prox.combine import Translated

        return Translated(self, numbers("shift", shift))

    def __rmul__(self, weight: Number) -> Term:
        from pipla.prox.combine import Scaled

        return Scaled(self, as_float(weight))

    def __add__(self, other: Term) -> Term:
        from pipla.prox.combine import separable_sum

        if not isinstance(other, Term):
            return NotImplemented
        return separable_sum(self, other)


class ClosedForm(Term):
    """A term whose prox is computed directly: write `value` and `prox`."""

    def warm_start(self, theta: PyTree, x: PyTree) -> None:
        return None

    def solve(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        theta, moved = self.prox(theta, x, lam_theta, lam_x)
        return Solution(theta, moved, warm, jnp.zeros((), _float_type(x)))


class Iterative(Term):
    """A term whose prox is iterated from a warm start: write `value`, `warm_start` and `solve`."""

    def prox(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree
    ) -> tuple[PyTree, PyTree]:
        solution = self.solve(theta, x, lam_theta, lam_x, self.warm_start(theta, x))
        return solution.theta, solution.x


class Fixed(ClosedForm):
    """A closed-form term in x alone: write `penalty(x)` and `shrink(x, lam)`."""

    uses_theta: ClassVar[bool] = False

    @abc.abstractmethod
    def penalty(self, x: Array) -> Scalar:
        """The penalty on x."""

    @abc.abstractmethod
    def shrink(self, x: Array, lam: Scalar) -> Array:
        r"""$\arg\min_u\, \mathrm{penalty}(u) + |u - x|^2/(2\lambda)$."""

    def value(self, theta: PyTree, x: Array) -> Scalar:
        return self.penalty(require_floating("x", x, self))

    def prox(
        self, theta: PyTree, x: Array, lam_theta: PyTree, lam_x: Scalar
    ) -> tuple[PyTree, Array]:
        x = require_floating("x", x, self)
        return theta, self.shrink(x, require_smoothing("lam_x", lam_x, x))


class Zero(ClosedForm):
    """No non-smooth term: value 0, prox the identity. What a `Model` without one uses."""

    uses_theta: ClassVar[bool] = False
    finite: ClassVar[bool] = True

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        return jnp.zeros((), _float_type(x))

    def reach(self) -> list[tuple[Path | None, Path]]:
        return []

    def regularity(self, theta: PyTree, x: PyTree) -> Regularity:
        return Regularity(True, 0.0)

    def prox(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree
    ) -> tuple[PyTree, PyTree]:
        return theta, x


def _checked(
    theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree
) -> tuple[PyTree, PyTree, tuple[PyTree, PyTree], tuple[PyTree, PyTree]]:
    """Theta and x as arrays; the smoothings as arrays and, second, one for each of their leaves."""
    theta, x = numbers("theta", theta), numbers("x", x)
    return (
        theta,
        x,
        require_smoothing_tree("lam_theta", lam_theta, theta),
        require_smoothing_tree("lam_x", lam_x, x),
    )


def _float_type(x: PyTree) -> Any:
    """The common dtype of the leaves of x, which must be floating."""
    leaves = jax.tree.leaves(numbers("x", x))
    found = jnp.result_type(*leaves) if leaves else np.dtype(bool)
    if not jnp.issubdtype(found, jnp.floating):
        raise TypeError(f"x must be an array or a pytree of floats, got {structure(x)}.")
    return found


# Arithmetic that several terms share. #


def soft(x: Array, threshold: Array) -> Array:
    r"""Soft-thresholding: $\operatorname{sign}(x)\,(|x| - t)_+$."""
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0)
