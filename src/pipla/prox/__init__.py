"""Non-smooth terms: value, joint proximal map over (theta, x), Moreau-Yosida envelope.

| terms | what |
|---|---|
| `LaplaceLocation`, `LaplaceScale`, `UniformBox`, `UniformLogBox`, `GaussianLocation`, `GaussianScale` | a density of x whose parameter theta is learned |
| `Strength`, `TVStrength`, `NuclearStrength` | a penalty on x whose strength theta is learned |
| `L1`, `SquaredL2`, `ElasticNet`, `GroupLasso`, `NuclearNorm`, `TotalVariation`, `HardTanh` | penalties on x alone |
| `Box`, `NonNegative`, `Simplex` | constraints on x alone |
| `2.0 * term`, `term.translate(shift)`, `term.on(theta=..., x=...)`, `first + second` | the calculus |
| `ClosedForm`, `Iterative`, `Fixed`, `SoftThreshold`; `Term`, `Solution`, `Scalar` | what a new term subclasses; types |
| `hyperparameter`, `Hyperparameter`, `Number`, `check_positive`, `check_nonnegative` | the numbers of a new term, and checks of them |
| `operands`, `require_floating`, `require_smoothing`, `require_smoothings` | checks of what its maps are applied to |

`pipla.testing` has the contracts that a new term must keep.
"""  # noqa: E501

from pipla.prox._arguments import (
    Hyperparameter,
    Number,
    check_nonnegative,
    check_positive,
    hyperparameter,
    operands,
    require_floating,
    require_smoothing,
    require_smoothings,
)
from pipla.prox.activation import HardTanh
from pipla.prox.base import ClosedForm, Fixed, Iterative, Scalar, Solution, Term, Zero
from pipla.prox.combine import On, Scaled, Sum, Translated, separable_sum
from pipla.prox.constraints import Box, NonNegative, Simplex
from pipla.prox.location import GaussianLocation, LaplaceLocation
from pipla.prox.norms import L1, ElasticNet, GroupLasso, NuclearNorm, SoftThreshold, SquaredL2
from pipla.prox.strength import GaussianScale, LaplaceScale, NuclearStrength, Strength
from pipla.prox.total_variation import TotalVariation, TVStrength
from pipla.prox.uniform import UniformBox, UniformLogBox

__all__ = [
    "L1",
    "Box",
    "ClosedForm",
    "ElasticNet",
    "Fixed",
    "GaussianLocation",
    "GaussianScale",
    "GroupLasso",
    "HardTanh",
    "Hyperparameter",
    "Iterative",
    "LaplaceLocation",
    "LaplaceScale",
    "NonNegative",
    "NuclearNorm",
    "NuclearStrength",
    "Number",
    "On",
    "Scalar",
    "Scaled",
    "Simplex",
    "SoftThreshold",
    "Solution",
    "SquaredL2",
    "Strength",
    "Sum",
    "TVStrength",
    "Term",
    "TotalVariation",
    "Translated",
    "UniformBox",
    "UniformLogBox",
    "Zero",
    "check_nonnegative",
    "check_positive",
    "hyperparameter",
    "operands",
    "require_floating",
    "require_smoothing",
    "require_smoothings",
    "separable_sum",
]
