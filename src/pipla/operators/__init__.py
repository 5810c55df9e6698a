r"""Linear operators $H$, which map x to noise-free observations.

| operators | what they are for |
|---|---|
| `Identity`, `Mask` | denoising; missing or weighted elements |
| `Select` | some elements of x, as a vector |
| `Dense`, `Sparse`, `Separable` | a matrix; a sparse one; one matrix per axis |
| `CircularConvolution`, `WindowMean`, `convolution` | blurs; `convolution` picks one by boundary |
| `last @ first` | composition |
| `Operator` | base class of your own operators: `apply`, `adjoint`, in JAX |
| `FromNumPy` | your own operator from two NumPy functions |
"""

from pipla.operators.convolutions import CircularConvolution, WindowMean, convolution
from pipla.operators.eigenbasis import Diagonal, Eigenbasis, Flattened, Fourier, Rotations
from pipla.operators.host import FromNumPy
from pipla.operators.linear import Composed, Dense, Identity, Mask, Operator, Select, Separable
from pipla.operators.sparse import Sparse

__all__ = [
    "CircularConvolution",
    "Composed",
    "Dense",
    "Diagonal",
    "Eigenbasis",
    "Flattened",
    "Fourier",
    "FromNumPy",
    "Identity",
    "Mask",
    "Operator",
    "Rotations",
    "Select",
    "Separable",
    "Sparse",
    "WindowMean",
    "convolution",
]
