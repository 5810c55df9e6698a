r"""The deblurring model of the authors' code, errors and all (E5, E13): to see what they did.

The code keeps its cloud as one array of (rows, columns, N) and hands it to a function for the prox
of total variation of *one* picture. That function reads the first picture only, and returns zeros
for the others. So particle 0 gets its prox, and for every other particle "the prox" is a black
picture: their prior is a spring towards 0, $|x|^2/(2\lambda)$, instead of total variation. Nothing
complains.

Two more errors sit in theta. Its gradient measures isotropic total variation, the prox is
anisotropic. And the gradient is divided by d, but not the noise beside it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from pipla.models.likelihoods import Gaussian
from pipla.models.model import Gradients, Model
from pipla.operators import Operator
from pipla.problems import Deblurring
from pipla.prox import TotalVariation, TVStrength
from pipla.prox.base import Scalar, Solution


def published_problem(problem: Deblurring) -> Deblurring:
    """The same blurred image with the authors' model (E5, E13), and their start."""
    model = published_model(problem.operator, problem.observed, problem.noise)
    return problem._replace(model=model, theta=-10.5, published=True)


def published_model(operator: Operator, observed: np.ndarray, noise: float) -> Model:
    """The likelihood is right; the rest is not."""
    likelihood = Gaussian(operator, observed, noise)
    return FirstParticleOnly(likelihood, MixedStrength(), data=None, metric=None)


class FirstParticleOnly(Model):
    """A model whose prox reaches particle 0, and whose theta gradient is divided by d."""

    def solve(
        self, theta: PyTree, particles: Array, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        """The prox of particle 0; zeros for all others, as the code had it (E5)."""
        first = jax.tree.map(lambda leaf: leaf[0], warm)
        point = self.nonsmooth.solve(theta, particles[0], lam_theta, lam_x, first)
        count = particles.shape[0]
        return Solution(
            theta=jnp.broadcast_to(point.theta, (count,)),
            x=jnp.zeros_like(particles).at[0].set(point.x),
            warm=jax.tree.map(lambda all_, one: all_.at[0].set(one), warm, point.warm),
            gap=jnp.zeros((count,), particles.dtype).at[0].set(point.gap),
        )

    def gradients(
        self,
        theta: PyTree,
        particles: Array,
        *,
        nonsmooth_theta: bool = False,
        nonsmooth_x: bool = False,
    ) -> Gradients:
        """Theta's is divided by d here, not by `theta_scale`, which would scale its noise, too."""
        slope = super().gradients(
            theta, particles, nonsmooth_theta=nonsmooth_theta, nonsmooth_x=nonsmooth_x
        )
        return slope._replace(theta=slope.theta / particles[0].size)


class MixedStrength(TVStrength):
    r"""$e^\theta\, \mathrm{TV}(x) - d\,\theta$: isotropic in its value, anisotropic in its prox."""

    def __init__(self) -> None:
        super().__init__()

    def value(self, theta: Array, x: Array) -> Scalar:
        isotropic = TotalVariation(isotropic=True)
        return jnp.exp(theta) * isotropic.value(None, x) - x.size * theta
