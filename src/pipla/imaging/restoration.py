r"""Pictures from blurred, noisy or incomplete ones, with a total variation prior that is learned.

The recommended rule for Gaussian inverse problems: two antithetic particles, the exact flow of the
likelihood, a reflected prox of total variation, its strength in closed form (`pipla.RPL`). No
number is left to choose.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pipla import _checks
from pipla.algorithms import RPL
from pipla.engine.map_estimate import map_estimate
from pipla.engine.result import Result, Status
from pipla.engine.run import run
from pipla.engine.save import Save
from pipla.models.images import tv_model
from pipla.operators import Operator


class Restoration(NamedTuple):
    """What was learned.

    Attributes:
        mean: the posterior mean, the estimate of least squared error.
        deviation: the posterior standard deviation of every pixel.
        best: the most probable picture at the learned strength (MAP); `None` if not asked for.
        strength, strength_stderr: of the prior, with its Monte-Carlo error.
        noise: the standard deviation of the noise, as given or learned.
        evaluations: flows of the likelihood, over all particles.
        seconds: of sampling and maximising, without compilation of the sampler.
        result: of the run.
    """

    mean: Float[np.ndarray, "..."]
    deviation: Float[np.ndarray, "..."]
    best: Float[np.ndarray, "..."] | None
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
    """The picture behind `observed`, with its uncertainty and the strength of the prior.

    Arguments:
        operator: how a picture becomes what was observed; see `pipla.operators`.
        observed: what was observed.
        noise: its standard deviation; `None` learns it.
        isotropic: which total variation.
        axes: the axes that differences are taken along; `(0, 1)` for colour pictures.
        strength: keep this one instead of learning it.
        num_steps: of the sampler; a third of them is burn-in.
        num_particles: an even number.
        maximise: find the most probable picture, too.

    Raises:
        KeyboardInterrupt: before anything could be averaged; later, what there is is returned.

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
        raise ValueError("noise must be given where the strength is: one of them sets the other.")
    observed = _numbers(observed)
    model = tv_model(operator, observed, noise, isotropic=isotropic, axes=axes)
    first = _start(operator, observed)
    penalty = float(model.nonsmooth.value(_theta(0.0, noise, 0.0), first))  # at strength 1
    if not penalty > 0:
        raise ValueError(
            "observed is the same everywhere: there is nothing to restore, and no strength fits."
        )
    began = time.perf_counter()
    log_strength = np.log(first.size / penalty if strength is None else strength)
    theta = _theta(log_strength, noise, float(np.log(jnp.std(observed) / 10)))
    result = run(
        model,
        RPL() if strength is None else RPL(theta_update="frozen"),
        theta=theta,
        particles=jnp.broadcast_to(first, (num_particles, *first.shape)),
        num_steps=num_steps,
        burn_in=num_steps // 3,
        key=jax.random.key(seed),
        save=Save(moments_every=3),  # steps next to each other are alike
        progress=progress,
    )
    if result.x_mean is None:
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        raise FloatingPointError(f"the picture could not be restored: {result.message}")
    best = None
    if maximise:
        best = np.asarray(map_estimate(model, result.theta, jnp.asarray(result.x_mean)).x)
    known = noise is not None
    log_strength, log_stderr = (
        tree if known else tree["strength"] for tree in (result.theta, result.theta_stderr)
    )
    found = float(np.exp(log_strength))
    return Restoration(
        mean=np.asarray(result.x_mean),
        deviation=np.sqrt(np.asarray(result.x_variance)),
        best=best,
        strength=found,
        strength_stderr=found * float(log_stderr) if strength is None else 0.0,
        noise=float(noise if noise is not None else np.exp(result.theta["noise"])),
        evaluations=num_particles * result.num_steps,
        seconds=time.perf_counter() - began - result.compile_seconds,
        result=result,
    )


def estimate_noise(observed: Any, channel_axis: int | None = None) -> float:
    """The standard deviation of the noise, from the finest details of what was observed.

    Donoho's median of wavelet coefficients (scikit-image). Right where the picture itself has
    little at the finest scale, as a blurred one; on a sharp picture it is too large by its texture.
    """
    from skimage.restoration import estimate_sigma

    picture = np.asarray(_numbers(observed), np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of medians of nothing: NaN, seen below
        found = float(estimate_sigma(picture, average_sigmas=True, channel_axis=channel_axis))
    if not found > 0:
        raise ValueError(
            "noise cannot be estimated: the finest details of the picture are exactly 0; give the "
            "standard deviation of the noise as a number."
        )
    return found


def _numbers(observed: Any) -> Array:
    array = np.asarray(observed)
    if array.dtype.kind not in "fiub" or array.size == 0:
        raise TypeError(
            f"observed must be an array of real numbers, got dtype {array.dtype} and shape "
            f"{array.shape}."
        )
    observed = jnp.asarray(array, jnp.result_type(float))
    _checks.finite("observed", observed)
    return observed


def _theta(log_strength: float, noise: float | None, log_noise: float) -> Any:
    if noise is not None:
        return jnp.asarray(log_strength, jnp.result_type(float))
    return {
        "strength": jnp.asarray(log_strength, jnp.result_type(float)),
        "noise": jnp.asarray(log_noise, jnp.result_type(float)),
    }


def _start(operator: Operator, observed: Array) -> Array:
    """The observations where they have the shape of x, else their backprojection."""
    back = operator.adjoint(observed)
    return observed if back.shape == observed.shape else back
