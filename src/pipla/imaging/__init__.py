"""Images: restoration with a learned prior, scikit-learn estimators, files, quality measures.

| names | what they do |
|---|---|
| `restore`, `Restoration`, `estimate_noise` | restore an image, with its uncertainty |
| `deconvolve` | undo a known blur of a photograph |
| `BoundaryWarning`, `IdentifiabilityWarning` | an assumption that does not fit the image |
| `TVDenoiser`, `TVDeconvolution` | the same as scikit-learn estimators (`pipla[sklearn]`) |
| `read_image`, `write_image` | image files |
| `mse`, `psnr`, `ssim` | compare a restored image with the ground truth |
"""

from typing import TYPE_CHECKING, Any

from pipla.imaging._observations import (
    BoundaryWarning,
    IdentifiabilityWarning,
    estimate_noise,
)
from pipla.imaging.boundaries import deconvolve
from pipla.imaging.io import Image, as_image, read_image, write_image
from pipla.imaging.metrics import mse, psnr, ssim
from pipla.imaging.restoration import Restoration, restore

if TYPE_CHECKING:
    from pipla.imaging.estimators import TVDeconvolution, TVDenoiser

__all__ = [
    "BoundaryWarning",
    "IdentifiabilityWarning",
    "Image",
    "Restoration",
    "TVDeconvolution",
    "TVDenoiser",
    "as_image",
    "deconvolve",
    "estimate_noise",
    "mse",
    "psnr",
    "read_image",
    "restore",
    "ssim",
    "write_image",
]


def __getattr__(name: str) -> Any:
    """Import the estimators, and scikit-learn with them, when they are first asked for."""
    if name not in ("TVDeconvolution", "TVDenoiser"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipla.imaging import estimators

    return getattr(estimators, name)
