"""scikit-learn estimators: denoising and deconvolution with a learned total variation prior."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from pipla._extras import extra
from pipla.imaging._observations import as_observed, checked_channel_axis, estimate_noise
from pipla.imaging.boundaries import Boundary, deconvolve
from pipla.imaging.restoration import Restoration, restore
from pipla.operators import Identity

with extra("sklearn", "a scikit-learn estimator"):
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_is_fitted


class _TVRestorer(TransformerMixin, BaseEstimator, abc.ABC):
    """Shared by both: `fit` learns the strength from an image, `transform` applies it to others."""

    noise: float | str
    isotropic: bool
    channel_axis: int | None
    num_steps: int
    random_state: int

    @abc.abstractmethod
    def _restored(self, image: Any, noise: float | None, **options: Any) -> Restoration:
        """`restore` or `deconvolve`."""

    def fit(self, X: Any, y: None = None) -> Any:
        """Learn the regularisation strength from one observed image, and restore the image."""
        found = self._restore(X, self._noise(X), None)
        self.strength_ = found.strength
        self.strength_mcse_ = found.strength_mcse
        self.noise_ = found.noise
        self.restored_ = found.mean
        self.uncertainty_ = found.std
        self.map_ = found.map
        self.n_evaluations_ = found.evaluations
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The posterior mean of an image at the learned strength and noise."""
        check_is_fitted(self)
        return self._restore(X, self.noise_, self.strength_).mean

    def fit_transform(self, X: Any, y: None = None, **fit_params: Any) -> np.ndarray:
        """Fit, and return the posterior mean."""
        return self.fit(X).restored_

    def _noise(self, image: Any) -> float | None:
        if not isinstance(self.noise, str):
            return self.noise
        if self.noise not in ("auto", "learn"):
            raise ValueError(f"noise must be a number, 'auto' or 'learn', got {self.noise!r}.")
        return estimate_noise(image, self.channel_axis) if self.noise == "auto" else None

    def _restore(self, image: Any, noise: float | None, strength: float | None) -> Restoration:
        ndim = as_observed(image)[0].ndim
        channel_axis = checked_channel_axis(self.channel_axis, ndim)
        return self._restored(
            image,
            noise,
            axes=tuple(axis for axis in range(ndim) if axis != channel_axis),
            isotropic=self.isotropic,
            strength=strength,
            num_steps=self.num_steps,
            seed=self.random_state,
            maximise=strength is None,
            progress=False,
        )


class TVDenoiser(_TVRestorer):
    """Remove Gaussian noise; the regularisation strength is learned.

    Missing pixels (NaN, or masked in a `numpy.ma.MaskedArray`) are filled in.

    Arguments:
        noise: the standard deviation of the noise, `"auto"` to estimate it from the finest details,
            or `"learn"` to learn it together with the strength. Without a blur the noise of an
            image cannot be learned: it is estimated then, with a warning.
        isotropic: isotropic instead of anisotropic total variation.
        channel_axis: the axis of colours, which share one strength; `None` for grey images,
            signals and volumes.
        num_steps: the number of steps of the sampler.
        random_state: the seed of the random numbers.

    Attributes:
        strength_, strength_mcse_: the regularisation strength and its Monte-Carlo error.
        noise_: the standard deviation of the noise: given, estimated or learned.
        restored_: the posterior mean.
        uncertainty_: the posterior standard deviation of every pixel.
        map_: the most probable image at the learned strength.
        n_evaluations_: the number of evaluations of the likelihood.

    Example:
        >>> import numpy as np
        >>> truth = np.kron([[0.0, 100.0], [50.0, 0.0]], np.ones((16, 16)))
        >>> noisy = truth + 10 * np.random.default_rng(0).standard_normal(truth.shape)
        >>> restored = TVDenoiser(noise=10.0).fit_transform(noisy)
        >>> bool(np.std(restored - truth) < 5)
        True
    """

    def __init__(
        self,
        noise: float | str = "auto",
        *,
        isotropic: bool = False,
        channel_axis: int | None = None,
        num_steps: int = 300,
        random_state: int = 0,
    ) -> None:
        self.noise = noise
        self.isotropic = isotropic
        self.channel_axis = channel_axis
        self.num_steps = num_steps
        self.random_state = random_state

    def _restored(self, image: Any, noise: float | None, **options: Any) -> Restoration:
        return restore(image, Identity(), noise=noise, **options)


class TVDeconvolution(_TVRestorer):
    """Undo a known blur; the regularisation strength is learned.

    Arguments:
        psf: the blur kernel, as an array or as text: `"box:9"`, `"gaussian:2"`, `"psf.npy"`. It has
            a default only because scikit-learn wants one: `fit` needs a blur.
        boundary: what lies beyond the edge of the image: `"unknown"`, `"reflect"`,
            `"renormalised"` or `"circular"`; see `pipla.imaging.deconvolve`.
        noise, isotropic, channel_axis, num_steps, random_state: as for `TVDenoiser`.

    The attributes are those of `TVDenoiser`.
    """

    def __init__(
        self,
        psf: Any = None,
        boundary: Boundary = "unknown",
        noise: float | str = "auto",
        *,
        isotropic: bool = False,
        channel_axis: int | None = None,
        num_steps: int = 300,
        random_state: int = 0,
    ) -> None:
        self.psf = psf
        self.boundary = boundary
        self.noise = noise
        self.isotropic = isotropic
        self.channel_axis = channel_axis
        self.num_steps = num_steps
        self.random_state = random_state

    def _restored(self, image: Any, noise: float | None, **options: Any) -> Restoration:
        if self.psf is None:
            raise ValueError(
                "psf must be given: the blur kernel, as an array or as text such as 'gaussian:2'."
            )
        return deconvolve(image, self.psf, noise=noise, boundary=self.boundary, **options)
