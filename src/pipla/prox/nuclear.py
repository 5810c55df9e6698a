r"""The nuclear norm of a matrix, fixed or with a learned strength."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array

from pipla._checks import Number, choice, hyperparameter, positive_number
from pipla.prox._roots.newton import strength_root
from pipla.prox.norms import SoftThreshold
from pipla.prox.strength import Strength


class NuclearNorm(SoftThreshold):
    r"""$w |x|_*$: the singular values of the last two axes, added up (and over leading axes)."""

    weight: Number = hyperparameter(default=1.0)

    def __check_init__(self) -> None:
        positive_number("weight", self.weight)

    def amplitudes(self, x: Array) -> Array:
        return jnp.linalg.svd(_matrix(x), compute_uv=False)

    def decompose(self, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        left, amplitudes, right = jnp.linalg.svd(_matrix(x), full_matrices=False)
        return amplitudes, lambda shrunk: (left * shrunk[..., None, :]) @ right


class NuclearStrength(Strength):
    r"""$g_2(\theta, x) = e^\theta |x|_*$: how strongly should low rank be preferred?

    The normaliser $-d\,\theta$ is left to the smooth part, as in the paper, unless
    `normalised=True`. Given $u_0$ the singular values are soft-thresholded at
    $\lambda_x e^{u_0}$; with one singular value decomposition, $u_0$ is the first root below
    $\theta$ of (see `Strength`)

    $$ u_0 - \theta + \lambda_\theta\, e^{u_0} \sum_j (s_j - \lambda_x e^{u_0})_+ = 0. $$

    `approximation="published"` is the paper's
    $\alpha = \theta + W(\lambda_\theta e^\theta \sum_j (s_j - \lambda_x e^\theta)_+)$ followed by
    thresholding at $\lambda_x e^\alpha$. Its plus sign is an error (E4): a penalty cannot raise its
    own strength. With minus it is one step of the exact iteration.
    """

    def __init__(self, *, normalised: bool = False, approximation: str | None = None) -> None:
        choice("approximation", approximation, (None, "published"))
        if approximation and normalised:
            raise ValueError(
                "approximation='published' exists only for normalised=False: "
                "the paper keeps the normaliser in the smooth part."
            )
        substitute = _published if approximation else None
        super().__init__(NuclearNorm(), normalised=normalised, substitute=substitute)


def _published(theta: Array, x: Array, lam_theta: Array, lam_x: Array) -> tuple[Array, Array]:
    amplitudes, rebuild = NuclearNorm().decompose(x)
    total = jnp.sum(jnp.maximum(amplitudes - lam_x * jnp.exp(theta), 0))
    lambert = strength_root(
        jnp.log(lam_theta) + jnp.log(total) + theta, jnp.zeros_like(theta), jnp.ones_like(theta)
    )
    moved = theta + lambert
    return moved, rebuild(jnp.maximum(amplitudes - lam_x * jnp.exp(moved), 0))


def _matrix(x: Array) -> Array:
    if x.ndim < 2:
        raise ValueError(
            f"the nuclear norm needs an x with at least two axes, but its shape is {x.shape}."
        )
    return x
