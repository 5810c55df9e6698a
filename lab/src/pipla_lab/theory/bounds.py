r"""Bounds on the error $\mathbb E[|\theta_n - \bar\theta_\star|^2]^{1/2}$, term by term.

Two forms of each. `bound` holds with every constant written out: where the paper leaves one open
(its $C_1$, its $\mathcal O(\lambda^2)$) or is wrong, the term has a proof of its own, in
`docs/theory.md`. `published_bound` is what the paper prints; it is not verified, and says why.

With $Z = (\theta, X^1/\sqrt N, \dots, X^N/\sqrt N)$ all algorithms move one point in a space of
dimension $d_\theta + N d_x$, on the potential
$G(Z) = \frac1N \sum_i U(\theta, X^i)$, which is as convex and as smooth as $U$. Write
$\delta = d_x + d_\theta/N$ and $L_\lambda = L + 1/\lambda$.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from pipla.algorithms.base import Condition
from pipla.algorithms.envelope import myipla_conditions, mypgd_conditions
from pipla.algorithms.forward_backward import pipgla_conditions
from pipla.algorithms.full_prox import pipula_conditions
from pipla_lab import checks
from pipla_lab.theory.constants import Constants, Numbers

#: The algorithms that the paper has a theorem about.
ALGORITHMS = ("MYIPLA", "PIPGLA", "MYPGD", "PIPULA")
#: The terms, in the order in which they are printed.
TERMS = ("smoothing", "concentration", "convergence", "discretisation")
#: How the discretisation of MYIPLA is bounded: the better one depends on the numbers.
Proof = Literal["entropy", "coupling"]


class ConditionError(ValueError):
    """Numbers for which no bound holds; the message is the broken condition."""

    def __init__(self, algorithm: str, condition: Condition) -> None:
        super().__init__(f"{algorithm}: {condition.sentence()}.")
        self.condition = condition


class Part(NamedTuple):
    """One term of a bound: its value, its formula, and where that is from."""

    value: float
    formula: str
    source: str


@dataclasses.dataclass(frozen=True)
class Bound:
    """A bound on the root mean square error of theta.

    Attributes:
        algorithm: whose.
        terms: its terms by name.
        unproved: why the bound is not verified, sentence by sentence; empty for those that are.
    """

    algorithm: str
    terms: dict[str, Part]
    unproved: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """The bound: the sum of the terms."""
        return sum(part.value for part in self.terms.values())

    @property
    def verified(self) -> bool:
        """Whether every constant of the bound is known and proved."""
        return not self.unproved

    def __getitem__(self, name: str) -> float:
        return self.terms[name].value

    def __str__(self) -> str:
        lines = [f"{self.algorithm}: {self.total:.4g}"]
        for name, part in self.terms.items():
            lines.append(f"  {name:<14} {part.value:<10.4g} {part.formula}  [{part.source}]")
        return "\n".join([*lines, *(f"  not verified: {why}" for why in self.unproved)])


def bound(
    algorithm: str, constants: Constants, numbers: Numbers, proof: Proof = "entropy"
) -> Bound:
    r"""The bound for an algorithm, with every constant written out.

    Raises:
        ConditionError: where the numbers break a condition of its theorem.

    Example:
        >>> model = Constants(mu=1.0, lipschitz=2.0, dim_theta=1, dim_x=4)
        >>> found = bound("PIPGLA", model, Numbers(1e-4, None, 1000, 200_000))
        >>> print(f"{found.total:.3f}")
        0.077
    """
    checks.choice("proof", proof, ("entropy", "coupling"))
    check_conditions(algorithm, constants, numbers)
    if algorithm == "MYIPLA":
        return myipla(constants, numbers, proof)
    return _BOUNDS[algorithm](constants, numbers)


def conditions(algorithm: str, constants: Constants, numbers: Numbers) -> list[Condition]:
    """The conditions of the theorem about an algorithm, at these numbers."""
    check_arguments(algorithm, constants, numbers)
    mu, stiffness = constants.mu, constants.lipschitz
    if algorithm == "PIPULA":
        return pipula_conditions(numbers.step_size, stiffness)
    if algorithm == "PIPGLA":
        return pipgla_conditions(numbers.step_size, numbers.smoothing, stiffness, mu)
    theorem = myipla_conditions if algorithm == "MYIPLA" else mypgd_conditions
    return theorem(numbers.step_size, numbers.given_smoothing(algorithm), stiffness, mu)


def check_arguments(algorithm: str, constants: Constants, numbers: Numbers) -> None:
    """The name of an algorithm, constants and numbers, and nothing else."""
    checks.choice("algorithm", algorithm, ALGORITHMS)
    for name, value, kind in (
        ("constants", constants, Constants),
        ("numbers", numbers, Numbers),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {kind.__name__}(...), got {checks.show(value)}.")


def check_conditions(algorithm: str, constants: Constants, numbers: Numbers) -> None:
    """Raise `ConditionError` with the first condition that does not hold."""
    for condition in conditions(algorithm, constants, numbers):
        if not condition.holds_exactly:
            raise ConditionError(algorithm, condition)


def myipla(constants: Constants, numbers: Numbers, proof: Proof = "entropy") -> Bound:
    r"""MYIPLA [th:myipla_main_text], with $C_1$ written out (E16).

    In $Z$ it is the unadjusted Langevin algorithm on $U^\lambda$. Coupled with the diffusion,
    $C_1 = (L_\lambda/\mu)(\frac{2\sqrt2}3 + \frac12\sqrt{\gamma L_\lambda})$ (Dalalyan and
    Karagulyan 2019). By the entropy, as for PIPGLA, the term is
    $\sqrt{2\gamma L_\lambda\delta/\mu}$ and the convergence $(1 - \gamma\mu)^{n/2}$ (Durmus,
    Majewski and Miasojedow 2019).
    """
    smoothing = numbers.given_smoothing("MYIPLA")
    mu, gamma = constants.mu, numbers.step_size
    stiffness = constants.stiffness(smoothing)
    delta = constants.dimension(numbers.num_particles)
    if proof == "coupling":
        discretisation = coupling(stiffness, mu, gamma, delta)
    else:
        formula = "sqrt(2 gamma (L + 1/lam) delta/mu)"
        value = math.sqrt(2 * gamma * stiffness * delta / mu)
        discretisation = Part(value, formula, "Durmus et al. 2019; E16")
    return Bound(
        "MYIPLA",
        {
            "smoothing": smoothing_term(constants, smoothing),
            "concentration": concentration(constants, numbers),
            "convergence": convergence(constants, numbers, 1.0 if proof == "coupling" else 0.5),
            "discretisation": discretisation,
        },
        _given_rate(constants),
    )


def pipgla(constants: Constants, numbers: Numbers) -> Bound:
    r"""PIPGLA [th:pipgla_main_text, eq:pipgla_bound], as printed, with $C = \ell^2$.

    Its proof takes the prox of the average potential, where the algorithm has the average of the
    proxes (E7). The inequality that it needs [lemma:bound_second_step] holds all the same: sum it
    over the particles, and use Jensen's inequality for theta.
    """
    gamma, mu, ell = numbers.step_size, constants.mu, constants.slope
    lam = gamma if numbers.smoothing is None else numbers.smoothing
    delta = constants.dimension(numbers.num_particles)
    # 1 - (lam/gamma)(1 - mu gamma), without the cancellation; gamma mu for lam = gamma.
    gap = (lam / gamma) * gamma * mu - (lam - gamma) / gamma
    noise = lam * (2 * gamma * constants.lipschitz * delta + lam * ell**2)
    value = math.sqrt(noise / gap) if gap > 0 else math.inf
    distance = constants.distance + math.sqrt(delta / mu)
    rate = math.log1p(-gap) if gap < 1 else -math.inf
    decay = math.exp(numbers.num_steps * rate / 2) if numbers.num_steps else 1.0
    formula = "sqrt(lam (2 gamma L delta + lam C)/(1 - lam (1 - mu gamma)/gamma))"
    return Bound(
        "PIPGLA",
        {
            "smoothing": Part(0.0, "0", "eq:pipgla_bound"),
            "concentration": concentration(constants, numbers),
            "convergence": Part(
                decay * distance,
                "(lam (1 - mu gamma)/gamma)^(n/2) (start + sqrt(delta/mu))",
                "eq:pipgla_bound",
            ),
            "discretisation": Part(value, formula, "eq:pipgla_bound; C = g2_lipschitz^2"),
        },
    )


def mypgd(constants: Constants, numbers: Numbers) -> Bound:
    r"""MYPGD, coupled with $N$ independent stationary diffusions at $\bar\theta_{\star,\lambda}$.

    Theta is then pushed by the mean of $N$ independent gradients of mean 0, so the concentration
    term is their standard deviation over $\mu\sqrt N$ (`gradient_sd`). The paper's [th:mypgd] has
    $L_\lambda$ there, which grows as $\lambda$ falls (E16).
    """
    smoothing = numbers.given_smoothing("MYPGD")
    mu, gamma = constants.mu, numbers.step_size
    sd, formula = gradient_sd(constants, smoothing)
    distance = constants.distance + math.sqrt(constants.dim_x / mu)
    return Bound(
        "MYPGD",
        {
            "smoothing": smoothing_term(constants, smoothing),
            "concentration": Part(
                sd / (mu * math.sqrt(numbers.num_particles)),
                f"{formula}/(mu sqrt(N))",
                "docs/theory.md; E16",
            ),
            "convergence": Part(
                _decay(mu * gamma, numbers.num_steps) * distance,
                "(1 - mu gamma)^n (start + sqrt(d_x/mu))",
                "th:mypgd",
            ),
            "discretisation": coupling(
                constants.stiffness(smoothing), mu, gamma, float(constants.dim_x), "d_x"
            ),
        },
        _given_rate(constants),
    )


def pipula(constants: Constants, numbers: Numbers) -> Bound:
    r"""PIPULA with $g_1$ linearised, towards the true target: no smoothing term.

    The corollary [th:pipula_theorem] assumes that $U$ is Lipschitz and strongly convex, which no
    function is (E19). One proximal gradient step and the entropy give
    $\sqrt{(2\gamma L\delta + 2\ell\sqrt{2\gamma\delta} + \gamma\ell^2/2)/\mu}$, the last part only
    where $g_2$ depends on theta: noise after the prox leaves the kinks, at a price of order
    $\sqrt\gamma$ in the potential.
    """
    gamma, mu, ell = numbers.step_size, constants.mu, constants.slope
    delta = constants.dimension(numbers.num_particles)
    noise = 2 * gamma * constants.lipschitz * delta + 2 * ell * math.sqrt(2 * gamma * delta)
    formula = "sqrt((2 gamma L delta + 2 l sqrt(2 gamma delta))/mu)"
    if constants.theta_in_g2:
        noise += gamma * ell**2 / 2
        formula = "sqrt((2 gamma L delta + 2 l sqrt(2 gamma delta) + gamma l^2/2)/mu)"
    return Bound(
        "PIPULA",
        {
            "smoothing": Part(0.0, "0", "docs/theory.md; E19"),
            "concentration": concentration(constants, numbers),
            "convergence": convergence(constants, numbers, 0.5),
            "discretisation": Part(math.sqrt(noise / mu), formula, "docs/theory.md; E19"),
        },
    )


# The terms that several bounds share. #


def smoothing_term(constants: Constants, smoothing: float) -> Part:
    r"""How far smoothing moves the maximiser: $|\bar\theta_{\star,\lambda} - \bar\theta_\star|$.

    The paper's [prop:theta_convergence_lambda] has $\frac\lambda\mu(\frac{\ell^2}2 A + B)$ up to a
    remainder that is not of second order at kinks (E20). Always true:
    $\ell\sqrt{\lambda/(2\mu)}$, because $0 \le U - U^\lambda \le \lambda\ell^2/2$. Where $g_2$ does
    not depend on theta: $\lambda\,\ell^2 (L - \mu)/(8\mu^{3/2})$.
    """
    mu, ell = constants.mu, constants.slope
    found = [Part(ell * math.sqrt(smoothing / (2 * mu)), "l sqrt(lam/(2 mu))", "E20")]
    if not constants.theta_in_g2:
        rate = ell**2 * (constants.lipschitz - mu) / (8 * mu**1.5)
        found.append(Part(smoothing * rate, "lam l^2 (L - mu)/(8 mu^(3/2))", "E20"))
    if constants.smoothing_rate is not None:
        value = smoothing * constants.smoothing_rate
        found.append(Part(value, "lam c", "smoothing_rate, as given"))
    return min(found)


def largest_smoothing(constants: Constants, error: float) -> float:
    """The smoothing at which `smoothing_term` is `error`, or a thousand times 1/L if less."""
    mu, ell = constants.mu, constants.slope
    most = 1e3 / constants.lipschitz  # beyond it the envelope no longer adds to the stiffness
    rates = [] if constants.smoothing_rate is None else [constants.smoothing_rate]
    if not constants.theta_in_g2:
        rates.append(ell**2 * (constants.lipschitz - mu) / (8 * mu**1.5))
    found = [error / rate if rate > 0 else most for rate in rates]
    found.append(2 * mu * (error / ell) ** 2 if ell > 0 else most)
    return min(max(found), most)


def gradient_sd(constants: Constants, smoothing: float) -> tuple[float, str]:
    r"""A bound on the standard deviation of $\nabla_\theta U^\lambda(\theta, X)$, and its formula.

    $X$ is $\mu$-strongly log-concave, so by Poincaré's inequality the variance is at most
    $\|\nabla_x \nabla_\theta U\|_F^2/\mu$; an off-diagonal block of a matrix between $\mu$ and $L$
    has norm at most $(L - \mu)/2$. The gradient of the envelope is also bounded by $\ell$.
    """
    mu, rank = constants.mu, min(constants.dim_theta, constants.dim_x)

    def poincare(stiffness: float) -> float:
        return (stiffness - mu) / 2 * math.sqrt(rank / mu)

    smooth, r = poincare(constants.lipschitz), "sqrt(d_theta/mu)"
    if constants.dim_theta > constants.dim_x:
        r = "sqrt(d_x/mu)"
    if not constants.theta_in_g2:
        return smooth, f"(L - mu) {r}/2"
    whole = poincare(constants.stiffness(smoothing))
    bounded = constants.slope + smooth
    if bounded < whole:
        return bounded, f"(l + (L - mu) {r}/2)"
    return whole, f"(L + 1/lam - mu) {r}/2"


def concentration(constants: Constants, numbers: Numbers) -> Part:
    r"""$\sqrt{d_\theta/(N\mu)}$ [eq:concentration_term_aux, lemma:aux_first_term_pipgla]."""
    value = math.sqrt(constants.dim_theta / (numbers.num_particles * constants.mu))
    return Part(value, "sqrt(d_theta/(N mu))", "eq:concentration_term_aux")


def convergence(constants: Constants, numbers: Numbers, power: float) -> Part:
    r"""$(1 - \mu\gamma)^{pn}$ times the distance of the start from the target [eq:splitting]."""
    distance = constants.distance + math.sqrt(
        constants.dimension(numbers.num_particles) / constants.mu
    )
    decay = _decay(constants.mu * numbers.step_size, power * numbers.num_steps)
    exponent = "n" if power == 1 else "(n/2)"
    formula = f"(1 - mu gamma)^{exponent} (start + sqrt(delta/mu))"
    return Part(decay * distance, formula, "eq:splitting")


def coupling(
    stiffness: float, mu: float, gamma: float, dimension: float, name: str = "delta"
) -> Part:
    r"""$\frac{L_\lambda}\mu \sqrt{\gamma\delta}\,
    (\frac{2\sqrt2}3 + \frac12\sqrt{\gamma L_\lambda})$: the Euler error of one step over
    $\mu\gamma$ (Dalalyan and Karagulyan 2019, Theorem 1, before rounding up to 1.65).
    """
    constant = (stiffness / mu) * (2 * math.sqrt(2) / 3 + math.sqrt(gamma * stiffness) / 2)
    formula = f"(L_lam/mu) (0.943 + sqrt(gamma L_lam)/2) sqrt(gamma {name})"
    value = constant * math.sqrt(gamma * dimension)
    return Part(value, formula, "Dalalyan and Karagulyan 2019; E16")


def _decay(rate: float, steps: float) -> float:
    """`(1 - rate)^steps`, also for a step that converges at once."""
    if steps == 0:
        return 1.0
    return math.exp(steps * math.log1p(-rate)) if rate < 1 else 0.0


def _given_rate(constants: Constants) -> tuple[str, ...]:
    if constants.smoothing_rate is None:
        return ()
    return ("smoothing_rate is as given; the library has not checked it.",)


_BOUNDS: dict[str, Callable[[Constants, Numbers], Bound]] = {
    "PIPGLA": pipgla,
    "MYPGD": mypgd,
    "PIPULA": pipula,
}
