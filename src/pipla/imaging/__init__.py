"""Images: restoration with a learned prior, scikit-learn estimators, files, quality measures.

| names | what they do |
|---|---|
| `restore`, `Restoration`, `estimate_noise` | restore an image, with its uncertainty |
| `deconvolve` | undo a known blur of a photograph |
| `BoundaryWarning`, `IdentifiabilityWarning`, `MisfitWarning` | assumptions that do not fit |
| `TVDenoiser`, `TVDeconvolution` | the same as scikit-learn estimators (`pipla[sklearn]`) |
| `read_image`, `write_image` | image files |
| `mse`, `psnr`, `ssim` | compare a restored image with the ground truth |
"""

from typing import TYPE_CHECKING

from pipla._extras import lazy
from pipla.imaging._observations import (
    BoundaryWarning,
    IdentifiabilityWarning,
    estimate_noise,
)
from pipla.imaging._residuals import MisfitWarning
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
    "MisfitWarning",
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


# Estimators need scikit-learn.
__getattr__ = lazy(__name__, "estimators", estimators=("TVDeconvolution", "TVDenoiser"))
