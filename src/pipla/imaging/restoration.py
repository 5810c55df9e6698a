r"""Images from blurred, noisy or incomplete ones, with a learned total variation prior.

The recommended method for Gaussian inverse problems is `pipla.RPL`: two antithetic particles, the
exact flow of the likelihood, a reflected prox of total variation, and the regularisation strength
in closed form. It leaves no parameter to tune.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pipla import _checks
from pipla.algorithms import RPL
from pipla.diagnostics import ConvergenceWarning
from pipla.engine.driver import check_surroundings
from pipla.engine.map_estimate import map_estimate
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.imaging._observations import (
    IdentifiabilityWarning,
    as_observed,
    check_seam,
    estimate_noise,
    rounding,
    seen_through,
)
from pipla.imaging._residuals import examine
from pipla.imaging._verdict import Looks, judged
from pipla.models.images import tv_model
from pipla.models.likelihoods.gaussian import check_shapes
from pipla.models.model import Model
from pipla.operators import Operator
from pipla.operators._arguments import MOST_AXES, integers
from pipla.operators.linear import require_operator

#: Says which stage a restoration is in, for those who wait for it.
_log = logging.getLogger("pipla.imaging")
#: Steps of conjugate gradients to the start: more fit noise, fewer leave the strength far off.
START_STEPS = 10


class Restoration(NamedTuple):
    """A restored image, its uncertainty, and the regularisation strength behind it.

    Attributes:
        mean: the posterior mean, which has the smallest expected squared error.
        std: the posterior standard deviation of every pixel.
        map: the most probable image at the learned strength; `None` if not asked for.
        strength, strength_mcse: the regularisation strength and its Monte-Carlo error.
        noise: the standard deviation of the noise.
        evaluations: the number of flows of the likelihood, summed over particles.
        seconds: the time of sampling and maximising, without compilation of the sampler.
        result: the run. Its theta is a dict: `"strength"` is the logarithm of the strength, and
            `"noise"`, where the noise is learned, the logarithm of its standard deviation.
        noise_source: where the noise is from: `"given"`, `"learned"`, or `"estimated"` if it was to
            be learned and cannot be.
        residual_sd: the standard deviation of what posterior draws leave unexplained, in units of
            the noise; 1 if blur and noise are right.
    """

    mean: Float[np.ndarray, "..."]
    std: Float[np.ndarray, "..."]
    map: Float[np.ndarray, "..."] | None
    strength: float
    strength_mcse: float
    noise: float
    evaluations: int
    seconds: float
    result: Result
    noise_source: str = "given"
    residual_sd: float = 1.0

    @property
    def sound(self) -> bool:
        """Whether the run was completed and nothing speaks against its answer."""
        return self.result.status is Status.COMPLETED

    def __repr__(self) -> str:
        rows = {
            "strength": f"{self.strength:.4g} ± {self.strength_mcse:.2g}",
            "noise": f"{self.noise:.4g} ({self.noise_source})",
            "residual sd": f"{self.residual_sd:.3g} of the noise",
            "posterior sd": f"{float(np.mean(self.std)):.4g} per pixel on average",
            "MAP estimate": "no" if self.map is None else "yes",
            "work": f"{self.evaluations} evaluations, {self.seconds:.2f} s",
            "status": self.result.status.value,
        }
        shape = " × ".join(map(str, self.mean.shape))
        lines = [f"  {name:<13} {value}" for name, value in rows.items()]
        return "\n".join(
            [f"Restoration of {shape} pixels", *lines, *map(str, self.result.findings)]
        )


def restore(
    observed: Any,
    operator: Operator,
    *,
    noise: float | None,
    isotropic: bool = False,
    axes: tuple[int, ...] | None = None,
    strength: float | None = None,
    num_steps: int = 300,
    num_particles: int = 2,
    seed: int = 0,
    maximise: bool = True,
    progress: bool | None = None,
    start: Any = None,
) -> Restoration:
    r"""Restore the image behind `observed`, and learn the regularisation strength.

    The model is $y = Hx + \sigma n$ with the prior $e^{-t\,\mathrm{TV}(x)}$. The strength $t$
    maximises the marginal likelihood of $y$; the posterior of $x$ is sampled at that strength.

    Arguments:
        observed: $y$. Values that are NaN, or masked in a `numpy.ma.MaskedArray`, are missing;
            every operator takes them.
        operator: $H$, the map from an image to noise-free observations; see `pipla.operators`. For
            one of your own, `apply` and `adjoint` are enough.
        noise: $\sigma$, the standard deviation of the noise; `None` learns it. Without a blur
            (`Identity`, `Mask`) it cannot be learned from an image: the marginal likelihood rises
            as $\sigma \to 0$ (E17). There, `estimate_noise` is used, with a warning.
        isotropic: isotropic instead of anisotropic total variation.
        axes: the axes along which differences are taken; `(0, 1)` for colour images.
        strength: keep the strength at this value instead of learning it.
        num_steps: the number of steps of the sampler; the first third is burn-in.
        num_particles: an even number.
        seed: the seed of the random numbers.
        maximise: also compute the MAP estimate.
        progress: show a progress bar; by default only on a terminal.
        start: the image that the sampler starts from; by default the observations, or a rough
            inverse of them.

    Warns:
        BoundaryWarning: the blur is circular, but opposite edges of the image do not meet.
        IdentifiabilityWarning: the noise was to be learned, but was estimated.
        MisfitWarning: what the image leaves unexplained is not the noise that was stated.
        ConvergenceWarning: the sampler had not settled, or not mixed.

    Raises:
        KeyboardInterrupt: interrupted before the end of the burn-in. Later interruptions return the
            averages so far.

    Example:
        >>> import numpy as np, pipla
        >>> truth = np.kron([[0.0, 100.0], [50.0, 0.0]], np.ones((16, 16)))
        >>> noisy = truth + 10 * np.random.default_rng(0).standard_normal(truth.shape)
        >>> found = pipla.imaging.restore(noisy, pipla.operators.Identity(), noise=10.0)
        >>> bool(np.std(found.mean - truth) < 5)
        True
    """
    check_surroundings()
    noise, strength = _checked_numbers(noise, strength)
    require_operator("operator", operator)
    for name, value in (("isotropic", isotropic), ("maximise", maximise)):
        _checks.boolean(name, value)
    num_steps = _checks.integer("num_steps", num_steps, least=1)
    num_particles = _checks.integer("num_particles", num_particles, least=1)
    _checks.seed(seed)
    values, seen = as_observed(observed)
    check_shapes(operator, values)
    axes = None if axes is None else integers("axes", axes, least=-MOST_AXES)
    operator, values = seen_through(operator, values, seen)
    check_seam(operator, values)
    noise_source = "given" if noise is not None else "learned"
    if noise is None and operator.multiplier() is not None and _image_axes(values, axes) > 1:
        noise, noise_source = _estimated(operator, values, axes), "estimated"
    if noise is not None and noise < rounding(values):
        raise ValueError(
            f"noise {noise:.3g} is smaller than the rounding error of the observations, "
            f"{rounding(values):.3g}; give a larger one, or scale the image down."
        )
    _log.info("preparing the operator")
    model = _model(operator, jnp.asarray(values), noise, isotropic, axes)
    rough = _rough_inverse(model.smooth)
    x = rough if start is None else _given_start(start, rough)
    theta = _start_theta(model, (x, rough), jnp.asarray(values), noise, strength)
    began = time.perf_counter()
    looks = Looks(x.size)
    _log.info("sampling")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said below, in words for images
        result = run(
            model,
            RPL() if strength is None else RPL(theta_update="frozen"),
            theta=theta,
            particles=jnp.broadcast_to(x, (num_particles, *x.shape)),
            num_steps=num_steps,
            burn_in=num_steps // 3,
            key=jax.random.key(seed),
            save=Save(moments_every=3),  # consecutive steps are strongly correlated
            callbacks=[looks],
            progress=progress,
        )
    if result.x_mean is None:
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        raise FloatingPointError(f"the image could not be restored: {result.message}")
    learned = {name: float(np.exp(log)) for name, log in result.theta.items()}
    noise_sd = learned["noise"] if noise is None else noise
    _log.info("testing the residuals")
    residuals = examine(model.smooth, noise_sd, result.particles)
    result = judged(model, result, looks, residuals)
    _log.info("computing the most probable image")
    best = map_estimate(model, result.theta, jnp.asarray(result.x_mean)) if maximise else None
    relative_error = float(result.theta_mcse["strength"]) if strength is None else 0.0
    return Restoration(
        mean=np.asarray(result.x_mean),
        std=np.sqrt(np.asarray(result.x_variance)),
        map=None if best is None else np.asarray(best.x),
        strength=learned["strength"],
        strength_mcse=learned["strength"] * relative_error,
        noise=noise_sd,
        evaluations=num_particles * result.num_steps,
        seconds=time.perf_counter() - began - result.compile_seconds,
        result=result,
        noise_source=noise_source,
        residual_sd=residuals.sd,
    )


def _checked_numbers(noise: Any, strength: Any) -> tuple[float | None, float | None]:
    """The noise and the strength, each a positive number or left out."""
    if isinstance(noise, str):
        raise TypeError(f"noise must be a positive number, or None to learn it; got {noise!r}.")
    _checks.positive("noise", noise)
    if np.shape(noise) != ():
        raise ValueError(
            f"noise must be a single number, got an array of shape {np.shape(noise)}; noise that "
            "differs from pixel to pixel is not supported."
        )
    _checks.positive("strength", strength)
    _checks.single("strength", strength)
    if strength is not None and noise is None:
        raise ValueError("noise must be given where strength is: each determines the other.")
    return (
        None if noise is None else _checks.real("noise", noise),
        None if strength is None else _checks.real("strength", strength),
    )


def _image_axes(values: np.ndarray, axes: tuple[int, ...] | None) -> int:
    """The number of axes along which there are differences."""
    along = range(values.ndim) if axes is None else axes
    return sum(values.shape[axis] > 1 for axis in along if -values.ndim <= axis < values.ndim)


def _estimated(operator: Operator, values: np.ndarray, axes: tuple[int, ...] | None) -> float:
    """The noise from the finest details of the image, with a warning that it was not learned."""
    weights = np.broadcast_to(np.asarray(operator.multiplier()), values.shape)
    if not np.isin(weights, (0, 1)).all():
        raise ValueError(
            "noise cannot be learned without a blur, nor estimated where the mask has weights "
            "other than 0 and 1; give the standard deviation of the noise."
        )
    image = np.ma.masked_array(values, mask=weights == 0)
    others = set(range(values.ndim)) - {
        axis % values.ndim for axis in (range(values.ndim) if axes is None else axes)
    }
    noise = estimate_noise(image, others.pop() if len(others) == 1 else None)
    warnings.warn(
        "the noise of an image that is not blurred cannot be learned together with the strength: "
        f"the marginal likelihood has no maximum. Its standard deviation was estimated, {noise:.4g}"
        ", and kept; give a number if you know a better one.",
        IdentifiabilityWarning,
        stacklevel=3,
    )
    return noise


def _model(
    operator: Operator,
    observed: Array,
    noise: float | None,
    isotropic: bool,
    axes: tuple[int, ...] | None,
) -> Model:
    """`tv_model` whose theta is a dict with `"strength"` also where the noise is known."""
    model = tv_model(operator, observed, noise, isotropic=isotropic, axes=axes)
    if noise is None:
        return model
    return Model(model.smooth, model.nonsmooth.on(theta="strength"))


def _rough_inverse(likelihood: Any) -> Array:
    """An image to start from: the observations where they are one, or a rough inverse of them.

    They are an image where H keeps the shape and its basis is known: a blur, a mask. The rough
    inverse is that of a few conjugate gradient steps from 0, which fit what is well determined
    first.
    """
    operator, observed = likelihood.operator, likelihood.observations
    back = operator.adjoint(observed)
    if back.shape == observed.shape and likelihood.basis is not None:
        return observed

    def normal(x: Array) -> Array:
        return operator.adjoint(operator.apply(x))

    return jax.scipy.sparse.linalg.cg(normal, back, maxiter=START_STEPS)[0]


def _given_start(start: Any, like: Array) -> Array:
    given = _checks.real_array("start", start).astype(like.dtype)
    _checks.finite("start", given)
    if given.shape != like.shape:
        raise ValueError(f"start must have the shape of x, {like.shape}, got {given.shape}.")
    return given


def _start_theta(
    model: Model,
    images: Sequence[Array],
    observed: Array,
    noise: float | None,
    strength: float | None,
) -> dict[str, Array]:
    """The logarithms that a run starts from: d / TV(x) and, if learned, a tenth of the contrast.

    x is the first of the images that is not flat.
    """
    dtype = jnp.result_type(float)
    zero = {"strength": jnp.zeros((), dtype)}
    variations = [float(model.nonsmooth.value(zero, x)) for x in images]
    penalty = next((value for value in variations if value > 0), 0.0)
    if not penalty > 0:
        raise ValueError(
            "observed is the same everywhere: there is nothing to restore, and no strength fits."
        )
    theta = {"strength": np.log(images[0].size / penalty if strength is None else strength)}
    if noise is None:
        theta["noise"] = np.log(jnp.std(observed) / 10)
    return {name: jnp.asarray(log, dtype) for name, log in theta.items()}
