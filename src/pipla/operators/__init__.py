r"""Linear operators $H$, which map x to noise-free observations.

| operators | what they are for |
|---|---|
| `Identity`, `Mask` | denoising; missing or weighted elements |
| `Dense`, `Sparse`, `Separable` | a matrix; a sparse one; one matrix per axis |
| `CircularConvolution`, `WindowMean`, `convolution` | blurs; `convolution` picks one by boundary |
| `last @ first` | composition |
| `Operator` | base class of your own operators: `apply`, `adjoint` |
"""

from pipla.operators.convolutions import CircularConvolution, WindowMean, convolution
from pipla.operators.eigenbasis import Diagonal, Eigenbasis, Fourier, Rotations
from pipla.operators.linear import Composed, Dense, Identity, Mask, Operator, Separable
from pipla.operators.sparse import Sparse

__all__ = [
    "CircularConvolution",
    "Composed",
    "Dense",
    "Diagonal",
    "Eigenbasis",
    "Fourier",
    "Identity",
    "Mask",
    "Operator",
    "Rotations",
    "Separable",
    "Sparse",
    "WindowMean",
    "convolution",
]
