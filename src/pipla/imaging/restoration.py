r"""Images from blurred, noisy or incomplete ones, with a learned total variation prior.

The recommended method for Gaussian inverse problems is `pipla.RPL`: two antithetic particles, the
exact flow of the likelihood, a reflected prox of total variation, and the regularisation strength
in closed form. It leaves no parameter to tune.
"""

from __future__ import annotations

import importlib
import time
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pipla import _checks
from pipla._extras import extra
from pipla.algorithms import RPL
from pipla.engine.map_estimate import map_estimate
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.models.images import tv_model
from pipla.models.model import Model
from pipla.operators import Operator


class Restoration(NamedTuple):
    """A restored image, its uncertainty, and the regularisation strength behind it.

    Attributes:
        mean: the posterior mean, which has the smallest expected squared error.
        std: the posterior standard deviation of every pixel.
        map: the most probable image at the learned strength; `None` if not asked for.
        strength, strength_stderr: the regularisation strength and its Monte-Carlo error.
        noise: the standard deviation of the noise, given or learned.
        evaluations: the number of flows of the likelihood, summed over particles.
        seconds: the time of sampling and maximising, without compilation of the sampler.
        result: the run. Its theta is a dict: `"strength"` is the logarithm of the strength, and
            `"noise"`, where the noise is learned, the logarithm of its standard deviation.
    """

    mean: Float[np.ndarray, "..."]
    std: Float[np.ndarray, "..."]
    map: Float[np.ndarray, "..."] | None
    strength: float
    strength_stderr: float
    noise: float
    evaluations: int
    seconds: float
    result: Result


def restore(
    operator: Operator,
    observed: Any,
    noise: float | None,
    *,
    isotropic: bool = False,
    axes: tuple[int, ...] | None = None,
    strength: float | None = None,
    num_steps: int = 300,
    num_particles: int = 2,
    seed: int = 0,
    maximise: bool = True,
    progress: bool | None = None,
) -> Restoration:
    r"""Restore the image behind `observed`, and learn the regularisation strength.

    The model is $y = Hx + \sigma n$ with the prior $e^{-t\,\mathrm{TV}(x)}$. The strength $t$
    maximises the marginal likelihood of $y$; the posterior of $x$ is sampled at that strength.

    Arguments:
        operator: $H$, the map from an image to noise-free observations; see `pipla.operators`.
        observed: $y$.
        noise: $\sigma$, the standard deviation of the noise; `None` learns it.
        isotropic: isotropic instead of anisotropic total variation.
        axes: the axes along which differences are taken; `(0, 1)` for colour images.
        strength: keep the strength at this value instead of learning it.
        num_steps: the number of steps of the sampler; the first third is burn-in.
        num_particles: an even number.
        seed: the seed of the random numbers.
        maximise: also compute the MAP estimate.
        progress: show a progress bar; by default only on a terminal.

    Raises:
        KeyboardInterrupt: interrupted before the end of the burn-in. Later interruptions return the
            averages so far.

    Example:
        >>> import numpy as np, pipla
        >>> truth = np.kron([[0.0, 100.0], [50.0, 0.0]], np.ones((16, 16)))
        >>> noisy = truth + 10 * np.random.default_rng(0).standard_normal(truth.shape)
        >>> found = pipla.restore(pipla.operators.Identity(), noisy, 10.0)
        >>> bool(np.std(found.mean - truth) < 5)
        True
    """
    _checks.positive("strength", strength)
    _checks.positive("noise", noise)
    if strength is not None and noise is None:
        raise ValueError("noise must be given where strength is: each determines the other.")
    observed = _as_floats(observed)
    model = _model(operator, observed, noise, isotropic, axes)
    x = _start(operator, observed)
    theta = _start_theta(model, x, observed, noise, strength)
    began = time.perf_counter()
    result = run(
        model,
        RPL() if strength is None else RPL(theta_update="frozen"),
        theta=theta,
        particles=jnp.broadcast_to(x, (num_particles, *x.shape)),
        num_steps=num_steps,
        burn_in=num_steps // 3,
        key=jax.random.key(seed),
        save=Save(moments_every=3),  # consecutive steps are strongly correlated
        progress=progress,
    )
    if result.x_mean is None:
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        raise FloatingPointError(f"the image could not be restored: {result.message}")
    best = map_estimate(model, result.theta, jnp.asarray(result.x_mean)) if maximise else None
    learned = {name: float(np.exp(log)) for name, log in result.theta.items()}
    relative_error = float(result.theta_stderr["strength"]) if strength is None else 0.0
    return Restoration(
        mean=np.asarray(result.x_mean),
        std=np.sqrt(np.asarray(result.x_variance)),
        map=None if best is None else np.asarray(best.x),
        strength=learned["strength"],
        strength_stderr=learned["strength"] * relative_error,
        noise=learned["noise"] if noise is None else float(noise),
        evaluations=num_particles * result.num_steps,
        seconds=time.perf_counter() - began - result.compile_seconds,
        result=result,
    )


def estimate_noise(observed: Any, channel_axis: int | None = None) -> float:
    """Estimate the standard deviation of the noise from the finest details of an image.

    This is Donoho's median of wavelet coefficients (scikit-image). It is accurate where the image
    itself has little at the finest scale, as a blurred one; on a sharp image the texture makes it
    too large.

    Arguments:
        observed: the image.
        channel_axis: the axis of colours; `None` for grey images.
    """
    with extra("imaging", "estimating the noise"):
        importlib.import_module("pywt")  # which scikit-image imports only when called
        from skimage.restoration import estimate_sigma

    image = np.asarray(_as_floats(observed), np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an empty median is NaN, caught below
        found = float(estimate_sigma(image, average_sigmas=True, channel_axis=channel_axis))
    if not found > 0:
        raise ValueError(
            "noise cannot be estimated: the finest details of the image are exactly 0; give the "
            "standard deviation of the noise as a number."
        )
    return found


def _as_floats(observed: Any) -> Array:
    array = np.asarray(observed)
    if array.dtype.kind not in "fiub" or array.size == 0:
        raise TypeError(
            f"observed must be an array of real numbers, got dtype {array.dtype} and shape "
            f"{array.shape}."
        )
    observed = jnp.asarray(array, jnp.result_type(float))
    _checks.finite("observed", observed)
    return observed


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


def _start(operator: Operator, observed: Array) -> Array:
    """The observations where they have the shape of x, else their backprojection."""
    back = operator.adjoint(observed)
    return observed if back.shape == observed.shape else back


def _start_theta(
    model: Model, x: Array, observed: Array, noise: float | None, strength: float | None
) -> dict[str, Array]:
    """The logarithms that a run starts from: d / TV(x) and, if learned, a tenth of the contrast."""
    dtype = jnp.result_type(float)
    penalty = float(model.nonsmooth.value({"strength": jnp.zeros((), dtype)}, x))  # TV(x)
    if not penalty > 0:
        raise ValueError(
            "observed is the same everywhere: there is nothing to restore, and no strength fits."
        )
    theta = {"strength": np.log(x.size / penalty if strength is None else strength)}
    if noise is None:
        theta["noise"] = np.log(jnp.std(observed) / 10)
    return {name: jnp.asarray(log, dtype) for name, log in theta.items()}
