r"""The recommended rule: a non-centred model, antithetic reflected particles, self-measured steps.

No number is chosen by hand and none by search. In non-centred form theta sits in the smooth part,
and moves without noise at the pace that its own curvature allows; particles come in antithetic
pairs, whose noise theta does not feel to first order; the prior acts by a reflected prox; the step
follows the stiffness of the likelihood and shrinks once theta has travelled.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
from jaxtyping import PyTree

from pipla import _trees
from pipla.algorithms import PIPGLA
from pipla.algorithms.wrappers.adaptive import Adaptive
from pipla.models.model import Model
from pipla.models.noncentred import BackToX, noncentred


class Recommended(NamedTuple):
    """What to run: the model in z, the map back to x, and the algorithm."""

    model: Model
    back: BackToX
    algorithm: Adaptive

    def start(self, theta: PyTree, particles: PyTree) -> PyTree:
        """Particles for z from particles for x."""
        learned, fixed = _trees.split(particles)

        def one(x: PyTree) -> PyTree:
            return _trees.split(self.back.inverse(theta, _trees.combine(x, fixed)))[0]

        return _trees.combine(jax.vmap(one)(learned), fixed)


def recommended(model: Model) -> Recommended:
    """The recommended way to fit a model; see this module's text.

    Example:
        >>> import jax, jax.numpy as jnp, pipla
        >>> problem = pipla.problems.toy()
        >>> model, back, algorithm = rule = pipla.recommended(problem.model)
        >>> theta = jnp.asarray(0.0)
        >>> start = rule.start(theta, problem.particles(jax.random.key(1), 50, theta))
        >>> result = pipla.run(model, algorithm, theta=theta, particles=start, num_steps=2000,
        ...                    key=jax.random.key(0), save=pipla.Save(quantity=back))
        >>> bool(abs(result.theta - problem.maximiser) < 0.02)
        True
    """
    plain, back = noncentred(model)
    scheme = PIPGLA(1.0, theta_noise=False, antithetic=True, reflected=True)
    return Recommended(plain, back, Adaptive(scheme, name="recommended"))
