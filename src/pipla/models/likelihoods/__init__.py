r"""Likelihoods, the smooth part $g_1$ of a model.

| likelihood | observations |
|---|---|
| `Gaussian` | numbers with Gaussian noise around $Hx$, for an operator $H$ |
| `Factors` | some entries of a matrix of low rank, with Gaussian noise |
| `Logistic` | one of two classes |
| `Multinomial` | one of several classes |
| `Poisson` | counts, with a log or an identity link |
| `Likelihood` | base class of your own: `__call__` is enough |

A plain function `(theta, x, data) -> scalar` is a likelihood, too.
"""

from pipla.models.likelihoods.base import Flat, Function, Likelihood, as_likelihood
from pipla.models.likelihoods.factors import Factors
from pipla.models.likelihoods.gaussian import Gaussian
from pipla.models.likelihoods.glm import Logistic, Multinomial, Poisson, even_softplus

__all__ = [
    "Factors",
    "Flat",
    "Function",
    "Gaussian",
    "Likelihood",
    "Logistic",
    "Multinomial",
    "Poisson",
    "as_likelihood",
    "even_softplus",
]
