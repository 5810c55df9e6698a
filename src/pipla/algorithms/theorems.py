r"""The conditions of the theorems on step size and smoothing, each in one place.

The algorithms ask here what a run must keep to (`pipla.run` warns otherwise), and so do the bounds
and plans of `pipla.tuning.theory`. $L$ is `stiffness`, the Lipschitz constant of $\nabla g_1$;
$\mu$ is `convexity`. The names in brackets are the labels of the paper.
"""

from __future__ import annotations

import math

from pipla.algorithms.base import Condition, Number


def myipla(
    step_size: Number, smoothing: Number, stiffness: float, convexity: float
) -> list[Condition]:
    r"""MYIPLA: $\gamma < \min(1/(L + 1/\lambda),\; 2/\mu)$ [th:myipla_main_text].

    $2/\mu$ is never the smaller one, because $\mu \le L$.
    """
    high = 1 / (stiffness + 1 / float(smoothing))
    source = "theorem MYIPLA: step_size < 1/(L + 1/smoothing)"
    return [Condition("step_size", step_size, 0.0, high, source, _constant("L", stiffness))]


def mypgd(
    step_size: Number, smoothing: Number, stiffness: float, convexity: float
) -> list[Condition]:
    r"""MYPGD: $\gamma \le 1/(L + 1/\lambda + \mu)$ [th:mypgd]."""
    high = 1 / (stiffness + 1 / float(smoothing) + max(convexity, 0.0))
    source = "theorem MYPGD: step_size <= 1/(L + 1/smoothing + mu)"
    return [Condition("step_size", step_size, 0.0, high, source, _constant("L", stiffness))]


def pipgla(
    step_size: Number, smoothing: Number | None, stiffness: float, convexity: float
) -> list[Condition]:
    r"""PIPGLA: $\gamma \le 1/L$ and $\gamma \le \lambda \le \gamma/(1 - \mu\gamma)$
    [th:pipgla_main_text]; `smoothing=None` is $\lambda = \gamma$.
    """
    source = (
        "theorem PIPGLA: step_size <= 1/L and "
        "step_size <= smoothing <= step_size/(1 - mu step_size)"
    )
    found = [below_inverse(step_size, stiffness, source)]
    if smoothing is not None:
        gamma = float(step_size)
        high = gamma / (1 - min(max(convexity * gamma, 0.0), 0.999))
        constant = _constant("mu", convexity)
        found.append(Condition("smoothing", smoothing, gamma, high, source, constant))
    return found


def pipula(step_size: Number, stiffness: float) -> list[Condition]:
    r"""PIPULA with $g_1$ linearised: $\gamma \le 1/L$.

    The corollary [th:pipula_theorem] has $\gamma < 2/\mu$, for the exact prox of U; its hypotheses
    contradict each other (E19). The linearised one steps along $g_1$.
    """
    return [below_inverse(step_size, stiffness, "PIPULA with g1 linearised: step_size <= 1/L")]


def below_inverse(step_size: Number, stiffness: float, source: str) -> Condition:
    r"""$\gamma \le 1/L$, a condition that several schemes share."""
    high = 1 / stiffness if stiffness > 0 else math.inf
    return Condition("step_size", step_size, 0.0, high, source, _constant("L", stiffness))


def _constant(name: str, value: float) -> str:
    return f"{name} = {value:.4g}"
