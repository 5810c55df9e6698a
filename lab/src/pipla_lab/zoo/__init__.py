r"""A zoo of small problems with non-smooth posteriors whose answers are known.

>>> from pipla_lab import zoo
>>> problem = zoo.get("laplace-location")
>>> print(problem.about)
Laplace latents with a learned location, seen through little Gaussian noise.
>>> print(f"{problem.answer.theta:.4f} with standard error {problem.answer.theta_stderr:.4f}")
1.6555 with standard error 0.1732

Each problem has a model with its data, a start, and an `Answer`: the maximiser of the marginal
likelihood $\int e^{-U(\theta, x)}\,\mathrm{d}x$, its standard error, and means, standard deviations
and quantiles of the posterior of x there. No answer comes from an algorithm of this library: they
are closed forms, quadrature, or long runs of exact samplers in NumPy (`how` says which), each with
its error. `python lab/zoo_answers.py NAME` computes them again.

The data are drawn by NumPy from fixed seeds; `diabetes` and `breast-cancer` are scikit-learn's.
"""

from __future__ import annotations

from pipla_lab import checks
from pipla_lab.zoo.base import LEVELS, Answer, ZooProblem, answer_to
from pipla_lab.zoo.catalogue import cases

__all__ = ["LEVELS", "Answer", "ZooProblem", "all", "get", "names"]


def names() -> list[str]:
    """The names of all problems, kind by kind."""
    return list(cases())


def get(name: str) -> ZooProblem:
    """The problem of this name; its arrays have JAX's default float type.

    Arguments:
        name: one of `names()`.
    """
    checks.choice("name", name, tuple(names()))
    case = cases()[name]()
    return ZooProblem(name, *case, answer_to(name, case))


def all() -> list[ZooProblem]:
    """Every problem, in the order of `names()`; two of them need scikit-learn."""
    return [get(name) for name in names()]
