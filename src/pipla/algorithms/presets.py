"""The paper's names: each is a scheme of the family with its flags set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import jax.numpy as jnp
from jaxtyping import PyTree

from pipla import _checks
from pipla.algorithms.base import Number, number
from pipla.algorithms.envelope import EnvelopeEuler
from pipla.algorithms.euler import Euler
from pipla.algorithms.exponential import ExponentialFlow
from pipla.algorithms.forward_backward import ForwardBackward
from pipla.algorithms.full_prox import FullProx
from pipla.algorithms.langevin import Langevin, ThetaUpdate
from pipla.algorithms.skrock import StabilisedEuler
from pipla.algorithms.wrappers.annealed import Annealed

if TYPE_CHECKING:
    from optax import GradientTransformation

Scheme = TypeVar("Scheme", bound=Langevin)


class Options(TypedDict, total=False):
    """The options that all presets share; see `pipla.algorithms.Langevin`."""

    theta_scale: PyTree
    theta_update: ThetaUpdate
    theta_noise: bool
    theta_optimizer: GradientTransformation | None
    antithetic: bool


class MovesOptions(Options, total=False):
    """The options of presets that may make several moves per step of theta."""

    num_moves: int


class ReflectedOptions(MovesOptions, total=False):
    """The options of presets whose prox can be reflected."""

    reflected: bool


def _preset(
    scheme: type[Scheme],
    name: str,
    step_size: Number | None,
    options: Mapping[str, Any],
    **fixed: Any,
) -> Scheme:
    """The scheme with these options, some of which make it what it is.

    A step size left to `pipla.tuning` is chosen for the pace of x, and suits theta only when theta
    is brought to that pace: then the theta scale is left to it, too.
    """
    known = {field.name for field in dataclasses.fields(scheme)}
    for option, value in {"step_size": step_size, **options, **fixed}.items():
        _checks.leaves(option, value)
    for option, value in options.items():
        wanted = fixed.get(option, value)
        if value is not wanted and not (isinstance(value, type(wanted)) and value == wanted):
            raise TypeError(f"{option} is {wanted!r} in {name}, got {_checks.show(value)}.")
        if option not in known:
            raise TypeError(f"{name} has no option {option!r}; it has {sorted(known - {'name'})}.")
    defaults = {"theta_scale": "auto"} if step_size is None else {}
    return scheme(step_size=number(step_size), name=name, **(defaults | dict(options) | fixed))


def PGD(step_size: Number | None = None, **options: Unpack[MovesOptions]) -> Euler:
    """Particle gradient descent (Kuntz et al. 2023): Euler on U, theta without noise.

    `options` are those of `pipla.algorithms.Langevin`.
    """
    return _preset(Euler, "PGD", step_size, options, theta_noise=False)


def IPLA(step_size: Number | None = None, **options: Unpack[MovesOptions]) -> Euler:
    """Interacting particle Langevin (Akyildiz et al. 2023): PGD with noise on theta."""
    return _preset(Euler, "IPLA", step_size, options)


def SOUL(
    step_size: Number | None = None, *, num_moves: int = 10, **options: Unpack[Options]
) -> Euler:
    """Stochastic optimisation by unadjusted Langevin (De Bortoli et al. 2021).

    `num_moves` Langevin moves of one chain (give one particle), then one step of theta along the
    mean gradient over those moves, each at the point it starts from.
    """
    return _preset(Euler, "SOUL", step_size, options, theta_noise=False, num_moves=num_moves)


def MYPGD(
    step_size: Number | None = None,
    smoothing: Number | None = None,
    **options: Unpack[MovesOptions],
) -> EnvelopeEuler:
    """Moreau-Yosida particle gradient descent: Euler with the envelope, theta without noise."""
    return _preset(
        EnvelopeEuler, "MYPGD", step_size, options, smoothing=smoothing, theta_noise=False
    )


def MYIPLA(
    step_size: Number | None = None,
    smoothing: Number | None = None,
    **options: Unpack[MovesOptions],
) -> EnvelopeEuler:
    """Moreau-Yosida interacting particle Langevin: MYPGD with noise on theta."""
    return _preset(EnvelopeEuler, "MYIPLA", step_size, options, smoothing=smoothing)


def PIPGLA(
    step_size: Number | None = None,
    smoothing: Number | None = None,
    **options: Unpack[ReflectedOptions],
) -> ForwardBackward:
    """Proximal interacting particle gradient Langevin: forward-backward splitting.

    `theta_noise=False` is the splitting analogue of PGD. `smoothing` defaults to `step_size`, the
    only consistent value.
    """
    return _preset(ForwardBackward, "PIPGLA", step_size, options, smoothing=smoothing)


def PIPULA(step_size: Number | None = None, **options: Unpack[MovesOptions]) -> FullProx:
    """Proximal interacting particle unadjusted Langevin: the prox of U, then noise."""
    return _preset(FullProx, "PIPULA", step_size, options)


def PPGD(step_size: Number | None = None, **options: Unpack[MovesOptions]) -> FullProx:
    """Proximal particle gradient descent: PIPULA with theta without noise."""
    return _preset(FullProx, "PPGD", step_size, options, theta_noise=False)


def MYULA(
    step_size: Number | None = None,
    smoothing: Number | None = None,
    **options: Unpack[MovesOptions],
) -> EnvelopeEuler:
    """Moreau-Yosida unadjusted Langevin (Durmus et al. 2018): a sampler, theta frozen."""
    return _preset(
        EnvelopeEuler, "MYULA", step_size, options, smoothing=smoothing, theta_update="frozen"
    )


def PGLA(
    step_size: Number | None = None,
    smoothing: Number | None = None,
    **options: Unpack[ReflectedOptions],
) -> ForwardBackward:
    """Proximal gradient Langevin (Salim et al. 2019): a sampler, theta frozen."""
    return _preset(
        ForwardBackward, "PGLA", step_size, options, smoothing=smoothing, theta_update="frozen"
    )


def RPL(
    step_size: Number = 0.03,
    *,
    first: Number = 10.0,
    change_after: Number = 15.0,
    **options: Unpack[ReflectedOptions],
) -> Annealed:
    """Reflected-prox Langevin: the flow of the likelihood, and a reflected prox.

    The flow is exact for a `GaussianLikelihood` whose operator has an eigenbasis, elsewhere that of
    a Gaussian near the likelihood. `step_size` is a pure number (see
    `pipla.algorithms.ExponentialFlow`); the first steps are `first` times as long. Theta is set in
    closed form, and particles come in antithetic pairs, unless `options` say otherwise.
    """
    chosen: dict[str, Any] = {
        "theta_update": "closed-form",
        "antithetic": True,
        "theta_noise": False,
    } | dict(options)
    scheme = _preset(ExponentialFlow, "RPL", step_size, chosen)
    return _annealed(scheme, first, change_after, "RPL")


def _annealed(scheme: Langevin, first: Number, change_after: Number, name: str) -> Annealed:
    # Before equinox sees them: it cannot flatten every odd value.
    _checks.positive("first", first)
    _checks.positive("change_after", change_after)
    return Annealed(scheme, number(first), number(change_after), name=name)


def IRPL(
    step_size: Number = 0.03,
    *,
    first: Number = 8.0,
    change_after: Number = 25.0,
    **options: Unpack[ReflectedOptions],
) -> Annealed:
    """Interwoven reflected-prox Langevin: what `pipla.fit` runs.

    RPL for any smooth likelihood, with theta learned in centred and in non-centred coordinates by
    turns (`theta_update="interwoven"`). `step_size` is a pure number. The flow is exact for a
    Gaussian likelihood, elsewhere that of a Gaussian near it.
    """
    chosen: dict[str, Any] = {
        "theta_update": "interwoven",
        "antithetic": True,
        "theta_noise": False,
    } | dict(options)
    scheme = _preset(ExponentialFlow, "IRPL", step_size, chosen)
    return _annealed(scheme, first, change_after, "IRPL")


def SKROCK(
    step_size: Number | None = None,
    smoothing: Number | None = None,
    *,
    num_stages: int = 10,
    **options: Unpack[MovesOptions],
) -> StabilisedEuler:
    """Stabilised Langevin (Pereyra, Vargas and Zygalakis 2020), `num_stages` gradients per step."""
    chosen: dict[str, Any] = {"theta_update": "gradient", "theta_noise": False} | dict(options)
    return _preset(
        StabilisedEuler, "SKROCK", step_size, chosen, smoothing=smoothing, num_stages=num_stages
    )


def SAPG(
    step_size: Number | None = None,
    smoothing: Number | None = None,
    *,
    gain: Number = 10.0,
    **options: Unpack[MovesOptions],
) -> EnvelopeEuler:
    r"""Stochastic approximation proximal gradient (Vidal et al. 2020), the imaging peer.

    One MYULA chain (give one particle); theta follows the gradient of the whole potential with
    steps $c\,k^{-0.8}/d$, where `gain` is $c$ (its authors take $0.1/t_0$ from
    the first strength $t_0$).
    """
    from optax import sgd

    def schedule(count: Any) -> Any:
        return gain * (jnp.asarray(count, jnp.result_type(float)) + 1) ** -0.8

    chosen: dict[str, Any] = {"theta_update": "gradient", "theta_scale": "auto"} | dict(options)
    return _preset(
        EnvelopeEuler,
        "SAPG",
        step_size,
        chosen,
        smoothing=smoothing,
        theta_noise=False,
        theta_optimizer=sgd(schedule),
    )
