r"""The errors of the paper and of its authors' code, to reproduce the published numbers.

Each error is a change of the model or of a term, so that the algorithms of the library run
unchanged. The numbers are those of `docs/errata.md`.

- E1: `ScaledPoint` multiplies theta's proximal *point* by the block scaling, not its displacement.
- E3: `doubled` counts the likelihood twice, as the published PIPULA and PPGD do.
- E5, E13: `published_problem` is the deblurring model of the authors' code.

The published approximations of single proximal maps are options of the terms
(`approximation="published"`).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla import _checks, _trees
from pipla.models.likelihoods import Gaussian, Likelihood
from pipla.models.model import Gradients, Model
from pipla.problems import Deblurring
from pipla.prox import TotalVariation, TVStrength
from pipla.prox.base import Scalar, Solution
from pipla.prox.combine import Wrapped

# E3. #


class Doubled(Likelihood):
    r"""The potential $2 g_1(\theta, x)$."""

    likelihood: Likelihood

    def __call__(self, theta: PyTree, x: PyTree, data: PyTree = None) -> Float[Array, ""]:
        return 2 * self.likelihood(theta, x, data)


def doubled(model: Model) -> Model:
    r"""The same model with its likelihood counted twice (E3).

    The published PIPULA and PPGD take the step
    $\operatorname{prox}_{g_2}^{\gamma}(v - 2 \gamma \nabla g_1(v))$, twice the gradient that the
    prox of $g_1 + g_2$ allows for. That is the corrected step on the potential $2 g_1 + g_2$:
    `run(doubled(model), PIPULA(step))` is the published algorithm.
    """
    return Model(Doubled(model.smooth), model.nonsmooth, model.data, metric=model.metric)


# E1. #


class ScaledPoint(Wrapped):
    r"""A term whose proximal point in theta is multiplied by `scale` (E1).

    For large models the paper divides theta's gradient by the dimension $D$. Its code divides the
    proximal point instead of the displacement. With $P = 1/D$ = `scale`, the published MYPGD is

    $$ \theta_{n+1} = \theta_n (1 - \tfrac{\gamma}{\lambda})
       + \tfrac{\gamma}{\lambda} P\, \tfrac1N \sum_i \operatorname{prox}^{\lambda}_{g_2}
       (\theta_n, X^i_n)_\theta, $$

    where $g_1$ does not depend on theta, and $\theta_{n+1}$ of PIPGLA is $P$ times the mean of the
    proximal points. Theta decays to about 0, whatever the data are. Run the algorithm with
    `theta_scale=1`. The parts of theta that the term does not use are left alone.

    Arguments:
        term: the term $g_2$.
        scale: $P$.
    """

    scale: Array = eqx.field(converter=lambda value: jnp.asarray(value, jnp.result_type(float)))

    def __check_init__(self) -> None:
        _checks.positive("scale", self.scale)

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        return self.term.value(theta, x)

    def warm_start(self, theta: PyTree, x: PyTree) -> PyTree:
        return self.term.warm_start(theta, x)

    def solve(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        """The joint proximal point of the term, with theta multiplied by `scale`."""
        point = self.term.solve(theta, x, lam_theta, lam_x, warm)
        scaled = jax.tree.map(
            lambda t, size: t if size is None else self.scale.astype(t.dtype) * t,
            point.theta,
            self.term.coupled_sizes(theta, x),
        )
        return point._replace(theta=scaled)


# E5 and E13. #


def published_problem(problem: Deblurring, theta: float = -10.5) -> Deblurring:
    r"""The same blurred image with the deblurring model of the authors' code (E5, E13).

    The likelihood is correct, the rest is not. The code keeps its particles in one array of shape
    (rows, columns, N) and passes it to a function for the prox of total variation of *one* image.
    That function processes the first image and returns zeros for the others. So particle 0 gets
    its prox, and for every other particle "the prox" is a black image: its prior is the quadratic
    $|x|^2/(2\lambda)$ instead of total variation.

    Two more errors concern theta. Its gradient uses isotropic total variation beside an anisotropic
    prox. And its gradient is divided by d, but not its noise.

    Arguments:
        problem: the blurred image.
        theta: where theta starts; -10.5 in the paper's figure of the guitar.
    """
    likelihood = Gaussian(problem.operator, problem.observed, problem.noise)
    model = FirstParticleOnly(
        likelihood, MixedStrength(), data=None, metric=None, longest_step=None
    )
    return problem._replace(model=model, theta=theta)


def published_particles(problem: Deblurring, key: Key[Array, ""], num_particles: int) -> Array:
    """The start of the particles in the authors' code: N(50, 10²) in every pixel."""
    shape = (num_particles, *problem.truth.shape)
    return 50 + 10 * jax.random.normal(key, shape, jnp.result_type(float))


class FirstParticleOnly(Model):
    """A model whose prox reaches particle 0 only, and whose theta gradient is divided by d."""

    def solve(
        self, theta: PyTree, particles: Array, lam_theta: PyTree, lam_x: PyTree, warm: PyTree
    ) -> Solution:
        """The prox of particle 0, and zeros for all others, as in the authors' code (E5)."""
        first = _trees.first(warm)
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
        """Theta's gradient is divided by d here; `theta_scale` would scale its noise as well."""
        gradient = super().gradients(
            theta, particles, nonsmooth_theta=nonsmooth_theta, nonsmooth_x=nonsmooth_x
        )
        return gradient._replace(theta=gradient.theta / particles[0].size)


class MixedStrength(TVStrength):
    r"""$e^\theta\, \mathrm{TV}(x) - d\,\theta$, isotropic in its value, anisotropic in its prox."""

    def __init__(self) -> None:
        super().__init__()

    def value(self, theta: Array, x: Array) -> Scalar:
        isotropic = TotalVariation(isotropic=True)
        return jnp.exp(theta) * isotropic.value(None, x) - x.size * theta
