"""The bounds as the paper prints them; `pipla_lab.theory.bound` is the form that holds."""

from __future__ import annotations

import math

from pipla_lab import checks
from pipla_lab.theory.bounds import (
    Bound,
    Part,
    check_arguments,
    check_conditions,
    concentration,
    pipgla,
)
from pipla_lab.theory.constants import Constants, Numbers

_REMAINDER = (
    "the remainder O(lam^2) of prop:theta_convergence_lambda is left out; at kinks it is of "
    "order lam (E20)."
)
_UNKNOWN = (
    "C_1 is as given: the paper calls it independent of lam, but the proof it cites has "
    "L + 1/lam in it (E16)."
)
_CONTRADICTION = (
    "the hypotheses of th:pipula_theorem, a Lipschitz and strongly convex U, contradict each "
    "other (E19)."
)
_ORIGIN = "B_0 is as given: th:mypgd measures it from the origin, not from the minimiser of U."


def published_bound(
    algorithm: str,
    constants: Constants,
    numbers: Numbers,
    *,
    theta_gradient: float | None = None,
    curvature: float | None = None,
    discretisation: float | None = None,
    second_moment: float | None = None,
) -> Bound:
    r"""A bound as printed. What the paper leaves open is an argument.

    Arguments:
        algorithm, constants, numbers: as for `bound`.
        theta_gradient, curvature: $A$ and $B$ of [assumption_4]; all but PIPGLA need them.
        discretisation: $C_1$; MYIPLA and PIPULA need it.
        second_moment: $B_0$; MYPGD needs it.
    """
    check_arguments(algorithm, constants, numbers)
    # The corollary on PIPULA has gamma < 2/mu, for the exact prox of U.
    if algorithm != "PIPULA":
        check_conditions(algorithm, constants, numbers)
    elif numbers.step_size * constants.mu >= 2:
        raise ValueError(
            f"step_size must be below 2/mu = {2 / constants.mu:g} (th:pipula_theorem)."
        )
    if algorithm == "PIPGLA":
        return pipgla(constants, numbers)
    mu, gamma = constants.mu, numbers.step_size
    lam = gamma if algorithm == "PIPULA" else numbers.given_smoothing(algorithm)
    label = {"MYIPLA": "th:myipla_main_text", "MYPGD": "th:mypgd", "PIPULA": "th:pipula_theorem"}
    source = label[algorithm]
    a, b = _given("theta_gradient", theta_gradient), _given("curvature", curvature)
    terms = {
        "smoothing": Part(
            lam / mu * (constants.slope**2 / 2 * a + b),
            "(lam/mu) (l^2 A/2 + B)",
            "prop:theta_convergence_lambda",
        )
    }
    decay = math.exp(-mu * numbers.num_steps * gamma)
    if algorithm == "MYPGD":
        moment = _given("second_moment", second_moment) + 2 * constants.dim_x / mu
        stiffness = constants.stiffness(lam)
        rate = 2 * stiffness * mu / (stiffness + mu)
        inner = gamma * stiffness**2 * moment + constants.dim_x
        a_zero = math.sqrt((4 * gamma + 4 / rate) / rate * 220 * stiffness**2 * inner)
        spread = stiffness * math.sqrt(2 * moment / numbers.num_particles) / mu
        distance = constants.distance + math.sqrt(constants.dim_x / mu)
        terms |= {
            "concentration": Part(
                spread, "(L + 1/lam) sqrt(2 (B_0 + 2 d_x/mu))/(mu sqrt(N))", source
            ),
            "convergence": Part(decay * distance, "exp(-mu n gamma) d(start, target)", source),
            "discretisation": Part(
                a_zero * math.sqrt(gamma), "A_{0,gamma,lam} sqrt(gamma)", source
            ),
        }
        return Bound(algorithm, terms, (_REMAINDER, _ORIGIN))
    delta = constants.dimension(numbers.num_particles)
    c_one = _given("discretisation", discretisation)
    distance = constants.distance + math.sqrt(delta / mu)
    terms |= {
        "concentration": concentration(constants, numbers),
        "convergence": Part(decay * distance, "exp(-mu n gamma) (start + sqrt(delta/mu))", source),
        "discretisation": Part(
            c_one * (1 + math.sqrt(delta)) * math.sqrt(gamma),
            "C_1 (1 + sqrt(delta)) sqrt(gamma)",
            source,
        ),
    }
    extra = (_CONTRADICTION,) if algorithm == "PIPULA" else ()
    return Bound(algorithm, terms, (_REMAINDER, _UNKNOWN, *extra))


def _given(name: str, value: float | None) -> float:
    if value is None:
        raise ValueError(f"{name} must be given: the paper's bound has it as an open constant.")
    return checks.real(name, value)
