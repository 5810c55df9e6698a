"""A target of Hamiltonian Monte Carlo whose derivatives are automatic: one function says it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from answers.base import Found
from answers.hamiltonian import Hamiltonian
from answers.louis import answer

#: The potential of one x: (theta, x) -> number, smooth in theta; x may have kinks.
Potential = Callable[[Any, Any], jax.Array]


class Differentiated(Hamiltonian):
    """Chains in double precision for a potential of two pytrees.

    Arguments:
        potential: minus the log density of x and the data, with theta's normaliser.
        theta, x: pytrees of the right shapes.
        positive: whether x is positive; the chains then move its logarithm.
    """

    def __init__(self, potential: Potential, theta: Any, x: Any, positive: bool = False) -> None:
        flat_theta, theta_of = _flat(theta)
        flat_x, x_of = _flat(x)
        super().__init__(flat_x.size)
        self.rates, self.positive = np.ones(flat_theta.size), positive

        def centred(phi: jax.Array, x: jax.Array) -> jax.Array:
            return potential(theta_of(phi), x_of(x))

        def moving(phi: jax.Array, u: jax.Array) -> jax.Array:
            return centred(phi, jnp.exp(u)) - jnp.sum(u) if positive else centred(phi, u)

        def over_chains(function: Callable[..., jax.Array]) -> Callable[..., np.ndarray]:
            compiled = jax.jit(jax.vmap(function, in_axes=(None, 0)))

            def call(phi: np.ndarray, x: np.ndarray) -> np.ndarray:
                with jax.enable_x64(True):
                    return np.asarray(compiled(phi, x))

            return call

        self._density = over_chains(centred)
        self._potential, self._gradient = over_chains(moving), over_chains(jax.grad(moving, 1))
        self._slope, self._hessian = over_chains(jax.grad(moving)), over_chains(jax.hessian(moving))

    def potential(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self._potential(phi, x)

    def gradient(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self._gradient(phi, x)

    def scores(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return -self._slope(phi, x)

    def information(self, phi: np.ndarray, x: np.ndarray) -> np.ndarray:
        return self._hessian(phi, x).mean(0)

    def moved(self, phi: np.ndarray, old: np.ndarray, draws: np.ndarray) -> np.ndarray:
        return np.exp(draws) if self.positive else draws

    def density(self, theta: np.ndarray, x: np.ndarray) -> float:
        """The potential at one x, as it was given."""
        return float(self._density(theta, x[None])[0])

    def answer(self, theta: Any, x: Any, chains: int, sweeps: int) -> Found:
        """The maximiser and the posterior there, searched from here."""
        phi, start = _flat(theta)[0], _flat(x)[0]
        start = np.log(start) if self.positive else start
        spread = 0.01 * np.random.default_rng(1).standard_normal((chains, start.size))
        return answer(self, phi, start + spread, sweeps=sweeps)


def _flat(tree: Any) -> tuple[np.ndarray, Callable[[jax.Array], Any]]:
    """The numbers of a pytree in double precision, and the way back."""
    with jax.enable_x64(True):
        flat, back = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tree))
        return np.asarray(flat), back
