r"""The errors of the paper and of its authors' code, to reproduce the published numbers.

Each error is a change of the model or of a term, so that the algorithms of the library run
unchanged. The numbers are those of `docs/errata.md`.

- E1: `ScaledPoint` multiplies theta's proximal *point* by the block scaling, not its displacement.
- E3: `doubled` counts the likelihood twice, as the published PIPULA and PPGD do.
- E1, E13: `CodeScale` is the Laplace scale of the networks' code, `DividedGradient` a model whose
  theta gradient is divided by the dimension while theta's noise is not.
- E5, E13: `published_problem` is the deblurring model of the authors' code.
- E11: `published_hard_tanh` and `AddedGradient` are the "prox" of the activation experiment.

The published approximations of single proximal maps are options of the terms
(`approximation="published"`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from pipla.models.likelihoods import Gaussian, Likelihood
from pipla.models.model import Gradients, Model
from pipla.prox import L1, Strength, TotalVariation, TVStrength, check_positive
from pipla.prox.base import ClosedForm, Scalar, Solution, soft
from pipla.prox.wrapped import Wrapped
from pipla_lab.data import Deblurring

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
        check_positive("scale", self.scale)

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


class CodeScale(ScaledPoint):
    r"""The Laplace scale of the code of the neural networks: `ScaledPoint` of

    $$ u_0 = \theta + \tfrac12 W\big(4 \lambda e^{-2\theta} \sum_i |x_i|\big), \qquad
       u_i = \operatorname{soft}(x_i, \lambda e^{-2\theta}). $$

    That is the paper's map without its $-\lambda d$, and with x in the place of u in the sum. With
    $P = 1/d$ theta's fixed point is $P W/2$, about $10^{-4}$ for 31 360 weights.
    """

    def __init__(self, scale: float) -> None:
        term = Strength(L1(), rate=-2.0, substitute=_code_scale)
        super().__init__(term, jnp.asarray(scale, jnp.result_type(float)))


def _code_scale(theta: Array, x: Array, lam_theta: Array, lam_x: Array) -> tuple[Array, Array]:
    log_argument = jnp.log(4 * lam_theta) - 2 * theta + jnp.log(jnp.sum(jnp.abs(x)))
    return theta + 0.5 * lambert(log_argument), soft(x, lam_x * jnp.exp(-2 * theta))


def lambert(log_argument: Array) -> Array:
    r"""Lambert's $w = W(z)$, which solves $w e^w = z$, from $\log z$; 0 where $z = 0$.

    Newton's method for $\log w + w = \log z$, whose left side increases and is concave: from the
    largest of the lower bounds $z/(1+z)$ and, for $\log z \ge 1$, $\log z - \log\log z$, three or
    four steps bring the error below rounding.
    """
    empty = jnp.isneginf(log_argument)
    log_argument = jnp.where(empty, 0, log_argument)  # any finite number: no NaN in this branch
    tiny = jnp.finfo(log_argument.dtype).tiny
    large = jnp.maximum(log_argument, 1)
    # z/(1+z) in the rounding that the published rows were computed with.
    small = jnp.exp(-jnp.abs(log_argument))
    root = jnp.where(log_argument > 0, 1 / (1 + small), small / (1 + small))
    root = jnp.maximum(root, jax.nn.sigmoid(log_argument))
    root = jnp.where(log_argument >= 1, jnp.maximum(root, large - jnp.log(large)), root)
    for _ in range(4 if jnp.finfo(log_argument.dtype).bits > 32 else 3):
        positive = jnp.maximum(root, tiny)
        excess = jnp.log(positive) + root - log_argument
        root = root - excess * positive / (1 + positive)
    return jnp.where(empty, 0, root)


# E13: noise that is not scaled with the drift. #


class DividedGradient(Model):
    """A model whose theta gradient is divided by `sizes`, a pytree like theta.

    Run with `theta_scale=1`, theta's noise is then not scaled with its drift, as in the authors'
    code. `theta_scale` = 1/`sizes` scales both.
    """

    sizes: PyTree = None

    def __init__(self, model: Model, sizes: PyTree) -> None:
        super().__init__(model.smooth, model.nonsmooth, model.data, metric=model.metric)
        self.sizes = sizes

    def gradients(
        self,
        theta: PyTree,
        particles: PyTree,
        *,
        nonsmooth_theta: bool = False,
        nonsmooth_x: bool = False,
    ) -> Gradients:
        gradient = super().gradients(
            theta, particles, nonsmooth_theta=nonsmooth_theta, nonsmooth_x=nonsmooth_x
        )
        return gradient._replace(theta=jax.tree.map(jnp.divide, gradient.theta, self.sizes))


# E11. #

#: The smoothing in the code of the activation experiment, whatever the algorithm's is.
ACTIVATION_SMOOTHING = 0.001


@jax.custom_jvp
def published_hard_tanh(x: Array) -> Array:
    r"""The hard tanh with what the code calls its prox in the place of its derivative (E11).

    That is 1 on $[-1 + \lambda, 1 - \lambda]$ and 0 elsewhere, with $\lambda = .001$: the
    derivative, but for a strip beside the kinks. So the published MYIPLA is IPLA, MYPGD is PGD.
    """
    return jnp.clip(x, -1, 1)


@published_hard_tanh.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (tangent,) = primals, tangents
    edge = 1 - ACTIVATION_SMOOTHING
    inside = (x >= -edge) & (x <= edge)
    return jnp.clip(x, -1, 1), jnp.where(inside, tangent, 0)


class AddedGradient(ClosedForm):
    r"""A "prox" that subtracts the whole gradient, $x - \nabla f(x)$, from one leaf of x.

    The published PIPGLA of the activation experiment adds its "prox" to the weights without a step
    size (E11). It is not the prox of anything: the smoothing does not enter.

    Arguments:
        misfit: the function $f$ of x.
        leaf: the name of the leaf of x.
    """

    uses_theta: ClassVar[bool] = False
    finite: ClassVar[bool] = True

    misfit: Callable[[PyTree], Scalar]
    leaf: str = eqx.field(static=True)

    def value(self, theta: PyTree, x: PyTree) -> Scalar:
        return jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))

    def prox(
        self, theta: PyTree, x: PyTree, lam_theta: PyTree, lam_x: PyTree
    ) -> tuple[PyTree, PyTree]:
        gradient = jax.grad(self.misfit)(x)
        return theta, x | {self.leaf: x[self.leaf] - gradient[self.leaf]}


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
