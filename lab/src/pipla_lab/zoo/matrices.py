"""Nuclear norms of learned strength."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from pipla.models.likelihoods import Gaussian
from pipla.models.model import Model
from pipla.operators import Identity, Mask
from pipla.prox import NuclearStrength
from pipla_lab.zoo.base import Case, Kind, number, zeros

_kind = Kind()
PROBLEMS = _kind.problems


@_kind.named("nuclear-denoising")
def nuclear_denoising() -> Case:
    r"""The potential of x is $e^\theta |x|_* - 30\,\theta$, $y \sim N(x, .5^2)$, 6×5."""
    rng = np.random.default_rng(60)
    low_rank = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 5))
    y = low_rank + 0.5 * rng.standard_normal((6, 5))
    return Case(
        about="Denoising of a 6×5 matrix by a nuclear norm of learned strength.",
        model=Model(Gaussian(Identity(), y, 0.5), NuclearStrength(normalised=True)),
        theta=number(0.0),
        x=zeros(6, 5),
        data={"y": y, "noise": np.asarray(0.5)},
    )


@_kind.named("nuclear-completion")
def nuclear_completion() -> Case:
    r"""The potential of x is $e^\theta |x|_* - 120\,\theta$; 84 of 12×10 entries in noise .3."""
    rng = np.random.default_rng(61)
    low_rank = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 10))
    seen = (rng.permutation(120).reshape(12, 10) < 84).astype(float)
    y = seen * (low_rank + 0.3 * rng.standard_normal((12, 10)))
    return Case(
        about="Completion of a 12×10 matrix by a nuclear norm of learned strength.",
        model=Model(Gaussian(Mask(jnp.asarray(seen)), y, 0.3), NuclearStrength(normalised=True)),
        theta=number(0.0),
        x=zeros(12, 10),
        data={"y": y, "seen": seen, "noise": np.asarray(0.3)},
    )
