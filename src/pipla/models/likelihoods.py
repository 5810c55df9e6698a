r"""Gaussian observations of a linear map, $y = H x + \sigma n$: a smooth term with its flow."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from pipla import _checks
from pipla._trees import Address, part, put_part
from pipla.operators import Operator
from pipla.operators.eigenbasis import Eigenbasis


class GaussianLikelihood(eqx.Module):
    r"""$g_1(\theta, x) = |Hx - y|^2 / (2\sigma^2)$, and with a learned noise $+\, m \log\sigma$.

    It is the `smooth` of a `Model`: `Model(GaussianLikelihood(blur, picture, 1.4), TVStrength())`.
    Where the operator has an eigenbasis, the flow of the likelihood alone is exact (`flow`).

    Arguments:
        operator: $H$; see `pipla.operators`.
        observations: $y$.
        noise: $\sigma$, the standard deviation; `None` learns it: theta then holds $\log\sigma$.
        theta: which part of theta is $\log\sigma$ (all of it by default); only for learned noise.
    """

    operator: Operator
    observations: Array
    noise: Array | None
    basis: Eigenbasis | None
    backprojected: Array | None  # the coordinates of H'y
    theta: Address | None = eqx.field(static=True)

    def __init__(
        self, operator: Operator, observations: Any, noise: Any, *, theta: Address | None = None
    ) -> None:
        if not isinstance(operator, Operator):
            raise TypeError(
                "operator must be one of pipla.operators, such as Identity(), got "
                f"{type(operator).__name__}."
            )
        _checks.positive("noise", noise)
        float_type = jnp.result_type(float)
        self.operator = operator
        self.observations = jnp.asarray(observations, float_type)
        _checks.finite("observations", self.observations)
        self.noise = None if noise is None else jnp.asarray(noise, float_type)
        self.theta = theta
        self.basis = operator.eigenbasis()
        back = jax.eval_shape(operator.adjoint, self.observations)
        seen = jax.eval_shape(operator.apply, back)
        if seen.shape != self.observations.shape:
            raise ValueError(
                f"observations have shape {self.observations.shape}, but the operator makes "
                f"observations of shape {seen.shape} from an x of shape {back.shape}."
            )
        self.backprojected = None
        if self.basis is not None:
            self.backprojected = self.basis.forward(operator.adjoint(self.observations))

    def __call__(self, theta: PyTree, x: Array, data: PyTree = None) -> Float[Array, ""]:
        scaled = self._residual(x) / self.deviation(theta).astype(x.dtype)
        value = 0.5 * jnp.sum(scaled**2)
        if self.noise is None:
            value = value + self.observations.size * part("theta", theta, self.theta)
        return value

    def deviation(self, theta: PyTree) -> Array:
        r"""$\sigma$, known or learned."""
        if self.noise is not None:
            return self.noise
        return jnp.exp(part("theta", theta, self.theta))

    def flow(self, theta: PyTree, x: Array, time: Array, push: Array) -> Array:
        r"""Where $\mathrm{d}X = -\nabla_x g_1\,\mathrm{d}t + \sqrt2\,\mathrm{d}W$ is after `time`.

        With $a$ the eigenvalues of $H^\top H/\sigma^2$ and $F$ its basis, exactly

        $$ F X_h = e^{-ah} F X_0 + \frac{1 - e^{-ah}}{a} \frac{F H^\top y}{\sigma^2}
           + \sqrt{\frac{1 - e^{-2ah}}{2ah}}\; F \sqrt{2h}\,\xi, $$

        where `push` is $\sqrt{2h}\,\xi$, and for $F\xi$ stand numbers of the same distribution
        (`Eigenbasis.white`).
        """
        basis, backprojected = self._exact()
        weight = time / self.deviation(theta).astype(x.dtype) ** 2
        exponent = weight * basis.eigenvalues.astype(x.dtype)
        kept = basis.times(jnp.exp(-exponent), basis.forward(x))
        spread = basis.times(jnp.sqrt(_mean_decay(2 * exponent)), basis.white(push))
        pulled = basis.times(weight * _mean_decay(exponent), backprojected.astype(kept.dtype))
        return basis.inverse(kept + spread + pulled)

    def resolvent(self, theta: PyTree, x: Array, lam: Array) -> Array:
        r"""The proximal map: $F^{-1}(1 + \lambda a)^{-1}(Fx + \lambda FH^\top y/\sigma^2)$."""
        basis, backprojected = self._exact()
        weight = lam / self.deviation(theta).astype(x.dtype) ** 2
        start = basis.forward(x)
        pulled = start + basis.times(weight, backprojected.astype(start.dtype))
        return basis.inverse(
            basis.times(1 / (1 + weight * basis.eigenvalues.astype(x.dtype)), pulled)
        )

    def stiffness(self, theta: PyTree) -> Array | None:
        """The largest eigenvalue of the Hessian in x, where the eigenbasis gives it."""
        if self.basis is None:
            return None
        return jnp.max(self.basis.eigenvalues) / self.deviation(theta) ** 2

    def closed_form(self, theta: PyTree, particles: Array) -> PyTree:
        r"""Theta with the best noise for the cloud: $\sigma^2 = \overline{|HX - y|^2}/m$."""
        if self.noise is not None:
            return theta
        log_noise = 0.5 * jnp.log(jnp.mean(jax.vmap(self._residual)(particles) ** 2))
        return put_part(theta, self.theta, log_noise)

    def _residual(self, x: Array) -> Array:
        return self.operator.apply(x) - self.observations.astype(x.dtype)

    def _exact(self) -> tuple[Eigenbasis, Array]:
        if self.basis is None or self.backprojected is None:
            raise TypeError(
                f"{type(self.operator).__name__} has no eigenbasis, so its flow is not exact; use "
                "an algorithm that needs gradients only, such as pipla.SKROCK."
            )
        return self.basis, self.backprojected


def _mean_decay(exponent: Array) -> Array:
    """$(1 - e^{-z})/z$: the mean of the decay from 1 to $e^{-z}$; 1 at z = 0."""
    small = exponent < 1e-3
    safe = jnp.where(small, 1.0, exponent)
    return jnp.where(small, 1 - exponent / 2, -jnp.expm1(-safe) / safe)
