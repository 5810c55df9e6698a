"""scikit-learn style classes."""

from pipla.estimators.total_variation import TVDeconvolution, TVDenoiser

__all__ = ["TVDeconvolution", "TVDenoiser"]
