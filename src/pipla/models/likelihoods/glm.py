r"""Generalised linear models: the coefficients are x, the linear predictors $z = Ax + o$.

They are written in the forms that are fast for many particles at once, and usable as the `smooth`
of a `Model` or inside a function of your own.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import _checks, _trees
from pipla._trees import Address
from pipla.models.likelihoods.base import Likelihood, Scalar
from pipla.models.likelihoods.design import (
    Design,
    as_design,
    binary_labels,
    class_labels,
    counts_of,
    offsets_of,
    weights_of,
)
from pipla.operators._arguments import operand
from pipla.prox._arguments import check_address

#: How the rate of a Poisson variable depends on the linear predictor: $e^z$, or $z$ itself.
Link = Literal["log", "identity"]


def even_softplus(z: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\log(2 \cosh(z/2))$, the even part of $\log(1 + e^z)$; the odd part is $z/2$.

    Its derivative is $\tanh(z/2)/2$. JAX's own would go through the value, with an exponential and
    a logarithm per element, and make a run of logistic regression twice as slow.
    """
    return _even_softplus(operand("z", z))


@jax.custom_jvp
def _even_softplus(z: Array) -> Array:
    return jnp.logaddexp(0.5 * z, -0.5 * z)


@_even_softplus.defjvp
def _even_softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), (dz,) = primals, tangents
    return _even_softplus(z), dz * (0.5 * jnp.tanh(0.5 * z))


class _LinearModel(Likelihood):
    """What these likelihoods share: the data, the linear predictors and the sum over them."""

    bounded: ClassVar[bool] = True

    design: Design
    responses: Array  # labels or counts
    weights: Array | None
    offsets: Array | None  # the observations are its last axis
    x: Address | None = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_address("x", self.x)

    def uses_theta(self, theta: PyTree, x: PyTree, data: PyTree = None) -> bool:
        return False

    def num_rows(self) -> int | None:
        return self.design.shape[0]

    def rows(self, indices: Array) -> Self:
        """The likelihood of these observations."""
        design = self.design.rows(indices)
        weights = None if self.weights is None else self.weights[indices]
        offsets = None if self.offsets is None else self.offsets[..., indices]
        return eqx.tree_at(
            lambda m: (m.design, m.responses, m.weights, m.offsets),
            self,
            (design, self.responses[indices], weights, offsets),
            is_leaf=lambda leaf: leaf is None,
        )

    def predictors(self, x: PyTree) -> Array:
        """The linear predictors $z = Ax + o$; the observations are the last axis."""
        coefficients = _trees.part("x", x, self.x)
        shape = self._shape()
        if not hasattr(coefficients, "shape"):
            raise TypeError(
                f"{type(self).__name__} acts on one array, but x is a "
                f"{type(coefficients).__name__}; say which part of it holds the coefficients: "
                f"{type(self).__name__}(..., x='name')."
            )
        if coefficients.shape != shape:
            raise ValueError(
                f"x must have shape {shape} for these features, got {coefficients.shape}."
            )
        z = self._products(jnp.asarray(coefficients))
        return z if self.offsets is None else z + self.offsets.astype(z.dtype)

    def _shape(self) -> tuple[int, ...]:
        """The shape of the coefficients."""
        return (self.design.shape[1],)

    def _products(self, coefficients: Array) -> Array:
        """The products of features and coefficients."""
        return self.design.times(coefficients)

    def _total(self, potentials: Array) -> Scalar:
        """The weighted sum over the observations."""
        if self.weights is not None:
            potentials = potentials * self.weights.astype(potentials.dtype)
        return jnp.sum(potentials)

    def _gram_eigenvalue(self) -> Array:
        r"""The largest eigenvalue of $A^\top W A$, by power iteration."""
        weights = self.weights

        def times(v: Array) -> Array:
            z = self.design.times(v)
            return self.design.transpose_times(z if weights is None else weights * z)

        start = jnp.sin(jnp.arange(1.0, 1.0 + self.design.shape[1]))  # no special direction
        return _trees.dominant_eigenvalue(times, start)


class Logistic(_LinearModel):
    r"""Two classes: $g_1(x) = \sum_j w_j \left[\log(1 + e^{z_j}) - y_j z_j\right]$, $z = Ax + o$.

    The probability that $y_j = 1$ is $1/(1 + e^{-z_j})$. The sum is computed in the symmetric form
    $\log(2 \cosh(z_j/2)) + (1/2 - y_j) z_j$, whose derivative takes one hyperbolic tangent.

    Arguments:
        features: $A$, of shape (observations, features): an array, or a sparse matrix of SciPy
            or of `jax.experimental.sparse`. Add a column of ones for an intercept.
        labels: $y$, of shape (observations,): 0 and 1, -1 and 1, or booleans.
        weights: $w$, of shape (observations,): a weight of 2 counts an observation twice.
        offsets: $o$, of shape (observations,): a known part of the linear predictor.
        x: which part of x holds the coefficients, of shape (features,); all of x by default.

    Example:
        >>> import jax.numpy as jnp, pipla
        >>> likelihood = pipla.likelihoods.Logistic([[1.0], [2.0]], [True, False])
        >>> model = pipla.Model(likelihood, pipla.prox.LaplaceLocation())
        >>> round(likelihood(None, jnp.zeros(1)).item(), 4)  # 2 log 2
        1.3863
    """

    def __init__(
        self,
        features: Any,
        labels: Any,
        *,
        weights: Any = None,
        offsets: Any = None,
        x: Address | None = None,
    ) -> None:
        self.design = as_design(features)
        count = self.design.shape[0]
        self.responses = binary_labels(labels, count)
        self.weights = weights_of(weights, count)
        self.offsets = offsets_of(offsets, (count,))
        self.x = x

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        z = self.predictors(x)
        return self._total(even_softplus(z) + (0.5 - self.responses.astype(z.dtype)) * z)

    def stiffness(self, theta: PyTree) -> Array:
        r"""The bound $\lambda_{\max}(A^\top W A)/4$: the second derivative is at most 1/4."""
        return self._gram_eigenvalue() / 4


class Multinomial(_LinearModel):
    r"""Several classes: $g_1(x) = \sum_j w_j \left[\log \sum_c e^{z_{jc}} - z_{j y_j}\right]$.

    The linear predictors are $z = A x + o$ with one column of coefficients per class. Adding the
    same vector to every column of x changes nothing, so it is the prior that decides the sum of
    the columns. With `reference=True` the last class has coefficients 0 instead, and x holds those
    of the other classes; with two classes that is `Logistic` for the first one.

    Arguments:
        features: $A$, of shape (observations, features); see `Logistic`.
        labels: $y$, of shape (observations,): integers 0, 1, ..., `num_classes` - 1.
        num_classes: the number of classes; by default the largest label plus 1.
        reference: whether the last class has coefficients 0.
        weights: $w$, of shape (observations,).
        offsets: $o$, of shape (observations, classes).
        x: which part of x holds the coefficients, of shape (features, classes), or
            (features, classes - 1) with a reference class; all of x by default.
    """

    num_classes: int = eqx.field(static=True)
    reference: bool = eqx.field(static=True)

    def __init__(
        self,
        features: Any,
        labels: Any,
        num_classes: int | None = None,
        *,
        reference: bool = False,
        weights: Any = None,
        offsets: Any = None,
        x: Address | None = None,
    ) -> None:
        _checks.boolean("reference", reference)
        self.design = as_design(features)
        count = self.design.shape[0]
        self.responses, self.num_classes = class_labels(labels, num_classes, count)
        self.reference = reference
        self.weights = weights_of(weights, count)
        by_class = offsets_of(offsets, (count, self.num_classes))
        self.offsets = None if by_class is None else by_class.T
        self.x = x

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        z = self.predictors(x)
        classes = jax.lax.broadcasted_iota(jnp.int32, z.shape, 0)
        chosen = jnp.sum(jnp.where(classes == self.responses[None], z, 0.0), axis=0)
        return self._total(jax.nn.logsumexp(z, axis=0) - chosen)

    def stiffness(self, theta: PyTree) -> Array:
        r"""The bound $\lambda_{\max}(A^\top W A)/2$ (Böhning 1992)."""
        return self._gram_eigenvalue() / 2

    def _shape(self) -> tuple[int, ...]:
        return (self.design.shape[1], self.num_classes - self.reference)

    def _products(self, coefficients: Array) -> Array:
        z = self.design.times(coefficients)
        return jnp.pad(z, ((0, 1), (0, 0))) if self.reference else z


class Poisson(_LinearModel):
    r"""Counts: $g_1(x) = \sum_j w_j \left[\mu_j - y_j \log \mu_j\right]$ with rates $\mu$.

    With the log link $\mu = e^z$, with the identity link $\mu = z$, where $z = Ax + o$. The term
    $\log y_j!$, which depends on the data only, is left out.

    With the identity link the rates must not be negative: use non-negative features and a term
    that keeps x non-negative; positive offsets (a known background) keep the gradient bounded.
    Where a rate is negative, value and gradient are NaN, so that a run stops there and says so.

    Arguments:
        features: $A$, of shape (observations, features); see `Logistic`.
        counts: $y$, of shape (observations,): non-negative integers.
        link: `"log"` or `"identity"`.
        weights: $w$, of shape (observations,).
        offsets: $o$, of shape (observations,): the logarithm of an exposure with the log link, a
            background rate with the identity link.
        x: which part of x holds the coefficients, of shape (features,); all of x by default.
    """

    link: Link = eqx.field(static=True)

    def __init__(
        self,
        features: Any,
        counts: Any,
        link: Link = "log",
        *,
        weights: Any = None,
        offsets: Any = None,
        x: Address | None = None,
    ) -> None:
        _checks.choice("link", link, get_args(Link))
        self.design = as_design(features)
        count = self.design.shape[0]
        self.responses = counts_of(counts, count)
        self.link = link
        self.weights = weights_of(weights, count)
        self.offsets = offsets_of(offsets, (count,))
        self.x = x

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Scalar:
        z = self.predictors(x)
        counts = self.responses.astype(z.dtype)
        if self.link == "log":
            return self._total(jnp.exp(z) - counts * z)
        # Times NaN, not replaced by it: so the gradient is NaN, too.
        rate = z * jnp.where(z < 0, jnp.nan, 1.0).astype(z.dtype)
        return self._total(rate - counts * jnp.log(jnp.where(counts > 0, rate, 1.0)))
