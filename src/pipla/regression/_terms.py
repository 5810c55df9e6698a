"""Priors of coefficients with a learned scale: elastic net, and groups of any sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from pipla.models.noncentred import noncentred_term
from pipla.models.reparametrisations import Bijector, ExpScale
from pipla.prox import ElasticNet, SoftThreshold
from pipla.prox._arguments import operands, require_smoothings
from pipla.prox.base import ClosedForm, Scalar, Term


class ElasticNetScale(ClosedForm):
    r"""$\sum_i \rho |x_i|/c + (1 - \rho) x_i^2/(2c^2) + d \log c$ with the scale $c = e^{2\theta}$.

    Given $u_0$, $u$ is soft-thresholded and shrunk. The $u_0$ of the joint prox is found by
    bisection between $\theta - 2 \lambda_\theta d$ and
    $\theta + 2 \lambda_\theta (\rho |x|_1/c + (1 - \rho) |x|^2/c^2)$ at $c = e^{2\theta}$, where
    the derivative changes its sign. While the smoothing is small, there is one root.

    Arguments:
        share: the $\rho$ in $[0, 1]$; 1 is a Laplace prior and 0 a normal one.
    """

    finite: ClassVar[bool] = True
    has_closed_form: ClassVar[bool] = True

    share: Array

    def _plain(self, theta: Array) -> ElasticNet:
        width = jnp.exp(2 * theta)
        return ElasticNet(self.share / width, (1 - self.share) / width**2)

    def value(self, theta: Array, x: Array) -> Scalar:
        theta, x = operands(self, theta, x)
        return self._plain(theta).value(None, x) + 2 * x.size * theta

    def prox(self, theta: Array, x: Array, lam_theta: PyTree, lam_x: Scalar) -> tuple[Array, Array]:
        theta, x = operands(self, theta, x)
        if lam_theta is None:
            return theta, self._plain(theta).prox(None, x, None, lam_x)[1]
        lam_theta, lam_x = require_smoothings(lam_theta, lam_x, x)

        def excess(at: Array, point: Array) -> Array:
            net = self._plain(at)
            return 2 * (net.l1 * jnp.sum(jnp.abs(point)) + net.l2 * jnp.sum(point**2))

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = 0.5 * (low + high)
            point = self._plain(middle).prox(None, x, None, lam_x)[1]
            above = middle - theta + lam_theta * (2 * x.size - excess(middle, point)) > 0
            return jnp.where(above, low, middle), jnp.where(above, middle, high)

        ends = (theta - 2 * lam_theta * x.size, theta + lam_theta * excess(theta, x))
        low, high = jax.lax.fori_loop(0, 60, halve, ends)
        found = 0.5 * (low + high)
        return found, self._plain(found).prox(None, x, None, lam_x)[1]

    def closed_form(self, theta: Array, particles: Array) -> Array:
        r"""With $t = 1/c$ the mean potential has its minimum where $A t + B t^2 = d$."""
        count = particles.shape[0]
        a = self.share * jnp.sum(jnp.abs(particles)) / count
        b = (1 - self.share) * jnp.sum(particles**2) / count
        size = particles.size / count
        # The positive root, written so that it is right for b = 0, too.
        return 0.5 * jnp.log((a + jnp.sqrt(a**2 + 4 * b * size)) / (2 * size))

    def time_unit(self, theta: Array, x: Array) -> Array:
        return self._plain(theta).time_unit(None, x)

    def rounded_value(self, theta: Array, x: Array, width: Array) -> Scalar:
        """The value: its kinks stay at 0."""
        return self.value(theta, x)

    def parameters(self, theta: Array) -> dict[str, Array]:
        return {"scale": jnp.exp(2 * jnp.asarray(theta))}


@noncentred_term.register
def _(term: ElasticNetScale) -> tuple[Bijector, Term]:
    return ExpScale(jnp.asarray(-2.0)), ElasticNet(term.share, 1 - term.share)


class Groups(SoftThreshold):
    r"""$w \sum_g |x_g|_2$ over groups of rows of x.

    Arguments:
        weight: the w.
        labels: the group of each row, numbered from 0.
    """

    weight: Array = eqx.field(converter=jnp.asarray)
    labels: tuple[int, ...] = eqx.field(static=True)

    def amplitudes(self, x: Array) -> Array:
        return self.decompose(x)[0]

    def decompose(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        labels = jnp.asarray(self.labels)
        squares = jnp.sum(x.reshape(len(labels), -1) ** 2, axis=1)
        total = jax.ops.segment_sum(squares, labels, max(self.labels) + 1)
        positive = total > 0
        norms = jnp.where(positive, jnp.sqrt(jnp.where(positive, total, 1)), 0)

        def rebuild(amplitudes: Array) -> Array:
            ratio = amplitudes / jnp.where(positive, norms, 1)
            return x * ratio[labels].reshape(-1, *[1] * (x.ndim - 1))

        return norms, rebuild

    def time_unit(self, theta: PyTree, x: Array) -> Array:
        """As that of `GroupLasso`, for the smallest group."""
        sizes = [self.labels.count(label) for label in set(self.labels)]
        return super().time_unit(theta, x) * (min(sizes) * x.size / len(self.labels) + 1) / 2
