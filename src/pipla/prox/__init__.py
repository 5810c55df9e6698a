"""Non-smooth terms: value, joint proximal map over (theta, x), Moreau-Yosida envelope.

| terms | what |
|---|---|
| `LaplaceLocation`, `LaplaceScale`, `UniformBox`, `UniformLogBox`, `GaussianLocation` | a density of x whose parameter theta is learned |
| `Strength`, `TVStrength`, `NuclearStrength` | a penalty on x whose strength theta is learned |
| `L1`, `SquaredL2`, `ElasticNet`, `GroupLasso`, `NuclearNorm`, `TotalVariation`, `HardTanh` | penalties on x alone |
| `Box`, `NonNegative`, `Simplex` | constraints on x alone |
| `2.0 * term`, `term.translate(shift)`, `term.on(theta=..., x=...)`, `first + second` | the calculus |
| `ClosedForm`, `Iterative`, `Fixed`, `SoftThreshold` | what a new term subclasses |
"""  # noqa: E501

from pipla.prox.activation import HardTanh
from pipla.prox.base import ClosedForm, Fixed, Iterative, Solution, Term, Zero
from pipla.prox.combine import On, Scaled, Sum, Translated, separable_sum
from pipla.prox.constraints import Box, NonNegative, Simplex
from pipla.prox.location import GaussianLocation, LaplaceLocation
from pipla.prox.norms import L1, ElasticNet, GroupLasso, NuclearNorm, SoftThreshold, SquaredL2
from pipla.prox.strength import LaplaceScale, NuclearStrength, Strength
from pipla.prox.total_variation import TotalVariation, TVStrength
from pipla.prox.uniform import UniformBox, UniformLogBox

__all__ = [
    "L1",
    "Box",
    "ClosedForm",
    "ElasticNet",
    "Fixed",
    "GaussianLocation",
    "GroupLasso",
    "HardTanh",
    "Iterative",
    "LaplaceLocation",
    "LaplaceScale",
    "NonNegative",
    "NuclearNorm",
    "NuclearStrength",
    "On",
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
    "separable_sum",
]
