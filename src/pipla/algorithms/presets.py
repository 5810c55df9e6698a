"""The paper's names: each is a scheme of the family with its flags set."""

from __future__ import annotations

from typing import Any

from pipla.algorithms.envelope import EnvelopeEuler
from pipla.algorithms.euler import Euler
from pipla.algorithms.forward_backward import ForwardBackward
from pipla.algorithms.full_prox import FullProx


def PGD(step_size: Any = None, **options: Any) -> Euler:
    """Particle gradient descent (Kuntz et al. 2023): Euler on U, theta without noise.

    `options` are those of `pipla.algorithms.Langevin`.
    """
    return Euler(step_size=step_size, name="PGD", theta_noise=False, **options)


def IPLA(step_size: Any = None, **options: Any) -> Euler:
    """Interacting particle Langevin (Akyildiz et al. 2023): PGD with noise on theta."""
    return Euler(step_size=step_size, name="IPLA", **options)


def SOUL(step_size: Any = None, *, num_moves: int = 10, **options: Any) -> Euler:
    """Stochastic optimisation by unadjusted Langevin (De Bortoli et al. 2021).

    `num_moves` Langevin moves of one chain (give one particle), then one step of theta along the
    mean gradient over those moves.
    """
    return Euler(
        step_size=step_size, name="SOUL", theta_noise=False, num_moves=num_moves, **options
    )


def MYPGD(step_size: Any = None, smoothing: Any = None, **options: Any) -> EnvelopeEuler:
    """Moreau-Yosida particle gradient descent: Euler with the envelope, theta without noise."""
    return EnvelopeEuler(
        step_size=step_size, smoothing=smoothing, name="MYPGD", theta_noise=False, **options
    )


def MYIPLA(step_size: Any = None, smoothing: Any = None, **options: Any) -> EnvelopeEuler:
    """Moreau-Yosida interacting particle Langevin: MYPGD with noise on theta."""
    return EnvelopeEuler(step_size=step_size, smoothing=smoothing, name="MYIPLA", **options)


def PIPGLA(step_size: Any = None, smoothing: Any = None, **options: Any) -> ForwardBackward:
    """Proximal interacting particle gradient Langevin: forward-backward splitting.

    `theta_noise=False` is the splitting analogue of PGD. `smoothing` defaults to `step_size`, the
    only consistent value.
    """
    return ForwardBackward(step_size=step_size, smoothing=smoothing, name="PIPGLA", **options)


def PIPULA(step_size: Any = None, **options: Any) -> FullProx:
    """Proximal interacting particle unadjusted Langevin: the prox of U, then noise."""
    return FullProx(step_size=step_size, name="PIPULA", **options)


def PPGD(step_size: Any = None, **options: Any) -> FullProx:
    """Proximal particle gradient descent: PIPULA with theta without noise."""
    return FullProx(step_size=step_size, name="PPGD", theta_noise=False, **options)


def MYULA(step_size: Any = None, smoothing: Any = None, **options: Any) -> EnvelopeEuler:
    """Moreau-Yosida unadjusted Langevin (Durmus et al. 2018): a sampler, theta frozen."""
    return EnvelopeEuler(
        step_size=step_size, smoothing=smoothing, name="MYULA", theta_update="frozen", **options
    )


def PGLA(step_size: Any = None, smoothing: Any = None, **options: Any) -> ForwardBackward:
    """Proximal gradient Langevin (Salim et al. 2019): a sampler, theta frozen."""
    return ForwardBackward(
        step_size=step_size, smoothing=smoothing, name="PGLA", theta_update="frozen", **options
    )
