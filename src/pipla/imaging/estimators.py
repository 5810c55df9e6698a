"""Denoising and deblurring with total variation whose strength is learned from the picture."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pipla.imaging.restoration import Restoration, estimate_noise, restore
from pipla.operators import Identity, Operator, blur, convolution
from pipla.operators.blur import Boundary


class _TVRestorer(TransformerMixin, BaseEstimator, abc.ABC):
    """What both share: `fit` learns strength and picture, `transform` restores others with it."""

    noise: float | str
    isotropic: bool
    channel_axis: int | None
    num_steps: int
    random_state: int

    @abc.abstractmethod
    def _operator(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> Operator:
        """How a picture of this shape became what was observed."""

    def fit(self, X: Any, y: None = None) -> Any:
        """Learn the strength of the prior from one observed picture, and restore it."""
        picture = np.asarray(X)
        found = self._restore(picture, self._noise(picture), None)
        self.strength_ = found.strength
        self.strength_stderr_ = found.strength_stderr
        self.noise_ = found.noise
        self.restored_ = found.mean
        self.uncertainty_ = found.deviation
        self.map_ = found.best
        self.n_evaluations_ = found.evaluations
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The posterior mean of a picture, at the strength and the noise that were learned."""
        check_is_fitted(self)
        return self._restore(np.asarray(X), self.noise_, self.strength_).mean

    def fit_transform(self, X: Any, y: None = None, **fit_params: Any) -> np.ndarray:
        """Learn, and return the posterior mean."""
        return self.fit(X).restored_

    def _noise(self, picture: np.ndarray) -> float | None:
        if not isinstance(self.noise, str):
            return self.noise
        if self.noise not in ("auto", "learn"):
            raise ValueError(f"noise must be a number, 'auto' or 'learn', got {self.noise!r}.")
        return estimate_noise(picture, self.channel_axis) if self.noise == "auto" else None

    def _restore(
        self, picture: np.ndarray, noise: float | None, strength: float | None
    ) -> Restoration:
        axes = tuple(range(picture.ndim))
        if self.channel_axis is not None:
            axes = tuple(axis for axis in axes if axis != self.channel_axis % picture.ndim)
        return restore(
            self._operator(picture.shape, axes),
            picture,
            noise,
            isotropic=self.isotropic,
            axes=axes,
            strength=strength,
            num_steps=self.num_steps,
            seed=self.random_state,
            maximise=strength is None,
            progress=False,
        )


class TVDenoiser(_TVRestorer):
    """Remove Gaussian noise; how much to smooth is learned.

    Arguments:
        noise: the standard deviation of the noise, `"auto"` to estimate it from the finest details,
            or `"learn"` to learn it along with the strength (better left to blurred pictures:
            without a blur little tells noise from texture).
        isotropic: which total variation.
        channel_axis: the axis of colours, which share one strength; `None` for grey pictures,
            signals and volumes.
        num_steps: of the sampler.
        random_state: the seed.

    Attributes:
        strength_, strength_stderr_: of the prior, with its Monte-Carlo error.
        noise_: as given, estimated or learned.
        restored_: the posterior mean.
        uncertainty_: the posterior standard deviation of every pixel.
        map_: the most probable picture at the learned strength.
        n_evaluations_: of the likelihood.

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

    def _operator(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> Operator:
        return Identity()


class TVDeconvolution(_TVRestorer):
    """Undo a known blur; how much to smooth is learned.

    Arguments:
        psf: the blur kernel, an array, or words as `pipla deblur` takes them: `"box:9"`.
        boundary: what the blur saw beyond the edge: `"circular"`, `"reflect"` or `"renormalised"`.
        noise, isotropic, channel_axis, num_steps, random_state: as for `TVDenoiser`, and so are
            the attributes.
    """

    def __init__(
        self,
        psf: Any = "box:9",
        boundary: Boundary = "circular",
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

    def _operator(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> Operator:
        psf = blur.parse(self.psf) if isinstance(self.psf, str) else blur.checked(self.psf)
        return convolution(psf, shape, self.boundary, axes)
