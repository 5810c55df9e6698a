"""Numbers for a run whose bound is below a given error: the cheapest that the bounds know of."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

from pipla_lab import checks
from pipla_lab.theory.bounds import (
    ALGORITHMS,
    Bound,
    ConditionError,
    Proof,
    bound,
    gradient_sd,
    largest_smoothing,
)
from pipla_lab.theory.constants import LARGEST, Constants, Numbers

#: The error is divided among the terms in parts of one over this.
PARTS = 20


class PlanRefusedError(ValueError):
    """No numbers reach the error under the conditions; the message says which or why."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Numbers for a run, with the bound that they satisfy.

    Attributes:
        algorithm: for which.
        numbers: step size, smoothing, particles and steps.
        bound: on the root mean square error of theta, term by term.
        evaluations: of the components of the gradient of g1, and as many of the prox.
        normals: standard normal numbers.
    """

    algorithm: str
    numbers: Numbers
    bound: Bound
    evaluations: int
    normals: int


def plan(
    error: float,
    mu: float,
    lipschitz: float,
    dim_theta: int,
    dim_x: int,
    *,
    algorithm: str = "PIPGLA",
    g2_lipschitz: float | None = None,
    theta_in_g2: bool = True,
    start: float | None = None,
    smoothing_rate: float | None = None,
    step_size: float | None = None,
    smoothing: float | None = None,
    num_particles: int | None = None,
) -> Plan:
    r"""The cheapest numbers for which the bound of an algorithm is at most `error`.

    The error is divided among the terms of the bound; of all divisions in twentieths the one with
    the fewest evaluations is taken. Numbers that are given are kept.

    Arguments:
        error: the root mean square error of theta that is wanted.
        mu, lipschitz, dim_theta, dim_x, g2_lipschitz, theta_in_g2, start, smoothing_rate: the
            constants of the model; see `Constants`.
        algorithm: MYIPLA, PIPGLA, MYPGD or PIPULA.
        step_size, smoothing, num_particles: numbers that you want to keep.

    Raises:
        PlanRefusedError: where a given number breaks a condition of the theorem, or makes a term
            larger than the error.

    Example:
        >>> found = plan(0.5, mu=1.0, lipschitz=2.0, dim_theta=1, dim_x=4)
        >>> print(f"{found.bound.total:.2f}, {found.numbers.num_particles} particles")
        0.50, 20 particles
    """
    checks.choice("algorithm", algorithm, ALGORITHMS)
    error = checks.real("error", error)
    if not 1e-30 <= error <= LARGEST:
        raise ValueError(f"error must be positive, from 1e-30 to {LARGEST:g}, got {error}.")
    constants = Constants(
        mu, lipschitz, dim_theta, dim_x, g2_lipschitz, theta_in_g2, start, smoothing_rate
    )
    if algorithm == "PIPULA" and smoothing is not None:
        raise ValueError("smoothing: PIPULA has none of its own; its prox takes the step size.")
    if num_particles is not None:
        num_particles = checks.integer("num_particles", num_particles, least=1, most=10**18)
    Numbers(1.0 if step_size is None else step_size, smoothing, 1, 1)  # an error names the argument
    given = _Given(step_size, smoothing, num_particles)
    try:
        return _cheapest(algorithm, constants, error, given)
    except (OverflowError, ZeroDivisionError) as problem:
        raise PlanRefusedError(
            f"{algorithm}: numbers for an error of {error:g} are beyond the range of floats."
        ) from problem


@dataclasses.dataclass(frozen=True)
class _Given:
    step_size: float | None
    smoothing: float | None
    num_particles: int | None


def _cheapest(algorithm: str, constants: Constants, error: float, given: _Given) -> Plan:
    """The plan with the fewest evaluations among all divisions of the error."""
    best: Plan | None = None
    broken: ConditionError | None = None
    nearest: Bound | None = None
    for numbers in _candidates(algorithm, constants, error, given):
        try:
            # Numbers that were made for one proof may be better by the other.
            bounds = [bound(algorithm, constants, numbers, proof) for proof in _proofs(algorithm)]
        except ConditionError as condition:
            if broken is None or condition.condition.high > broken.condition.high:
                broken = condition  # the one that is nearest to holding
            continue
        found = min(bounds, key=lambda each: each.total)
        if not found.total <= error:
            nearest = min(nearest or found, found, key=lambda each: each.total)
            continue
        cost = numbers.num_particles * numbers.num_steps
        if best is None or cost < best.numbers.num_particles * best.numbers.num_steps:
            best = _plan(algorithm, constants, numbers, found)
    if best is None:
        raise PlanRefusedError(str(broken) if nearest is None else _too_large(nearest, error))
    return best


def _candidates(
    algorithm: str, constants: Constants, error: float, given: _Given
) -> Iterator[Numbers]:
    """Numbers for every division of the error among the terms."""
    smooths = algorithm in ("MYIPLA", "MYPGD")
    for cuts in itertools.combinations(range(1, PARTS), 3 if smooths else 2):
        ends = (0, *cuts, PARTS)
        # Rounding must not decide: aim a little lower.
        shares = [(b - a) / PARTS * error * (1 - 1e-9) for a, b in itertools.pairwise(ends)]
        smoothing_share = shares.pop() if smooths else 0.0
        for proof in _proofs(algorithm):
            yield _numbers(algorithm, constants, shares, smoothing_share, given, proof)


def _proofs(algorithm: str) -> tuple[Proof, ...]:
    """The proofs that there are of the bound for an algorithm."""
    return ("entropy", "coupling") if algorithm == "MYIPLA" else ("entropy",)


def _numbers(
    algorithm: str,
    constants: Constants,
    shares: list[float],
    smoothing_share: float,
    given: _Given,
    proof: Proof,
) -> Numbers:
    concentration, convergence, discretisation = shares
    mu, lipschitz, ell = constants.mu, constants.lipschitz, constants.slope
    smoothing = given.smoothing
    if smoothing is None and algorithm in ("MYIPLA", "MYPGD"):
        smoothing = largest_smoothing(constants, smoothing_share)
    spread = math.sqrt(constants.dim_theta * mu)
    if algorithm == "MYPGD":
        assert smoothing is not None
        spread = gradient_sd(constants, smoothing)[0]
    count = given.num_particles
    if count is None:
        count = max(math.ceil((spread / (mu * concentration)) ** 2), 1)
    delta = constants.dimension(count)
    coupled = algorithm == "MYPGD" or (algorithm == "MYIPLA" and proof == "coupling")
    if coupled:
        assert smoothing is not None
        dimension = constants.dim_x if algorithm == "MYPGD" else delta
        margin = mu if algorithm == "MYPGD" else 0.0
        stiffness = constants.stiffness(smoothing)
        step = _coupling_step(stiffness, mu, dimension, discretisation)
        most = 0.999 / (stiffness + margin)
    elif algorithm == "MYIPLA":
        assert smoothing is not None
        stiffness = constants.stiffness(smoothing)
        step, most = mu * discretisation**2 / (2 * stiffness * delta), 0.999 / stiffness
    elif algorithm == "PIPGLA":
        step = mu * discretisation**2 / (2 * lipschitz * delta + ell**2)
        most = 0.999 / lipschitz
    else:
        step, most = _noise_step(constants, delta, mu * discretisation**2), 0.999 / lipschitz
    gamma = min(step, most)
    if algorithm == "PIPGLA" and smoothing is not None:
        gamma = smoothing  # the two are one number
    gamma = gamma if given.step_size is None else given.step_size
    distance = constants.distance + math.sqrt((constants.dim_x if coupled else delta) / mu)
    if algorithm == "MYIPLA":
        distance = constants.distance + math.sqrt(delta / mu)
    contraction = mu * gamma
    if algorithm == "PIPGLA" and given.smoothing is not None:
        contraction = given.smoothing * mu - (given.smoothing - gamma) / gamma
    power = 1.0 if coupled else 0.5
    steps = 1
    if distance > convergence and 0 < contraction < 1:
        steps = math.ceil(math.log(distance / convergence) / (-power * math.log1p(-contraction)))
    return Numbers(gamma, smoothing, count, max(steps, 1))


def _coupling_step(stiffness: float, mu: float, dimension: float, error: float) -> float:
    r"""The step at which `coupling` is `error`: with $s = \sqrt\gamma$ a quadratic equation."""
    target = error * mu / (stiffness * math.sqrt(dimension))
    root, k = math.sqrt(stiffness), 2 * math.sqrt(2) / 3
    # (root/2) s² + k s - target = 0, in the form that does not cancel.
    return (2 * target / (k + math.sqrt(k**2 + 2 * root * target))) ** 2


def _noise_step(constants: Constants, delta: float, error: float) -> float:
    r"""The step at which the noise of PIPULA is `error`; a quadratic equation again."""
    ell = constants.slope
    a = 2 * constants.lipschitz * delta + (ell**2 / 2 if constants.theta_in_g2 else 0.0)
    b = 2 * ell * math.sqrt(2 * delta)
    return (2 * error / (b + math.sqrt(b**2 + 4 * a * error))) ** 2


def _plan(algorithm: str, constants: Constants, numbers: Numbers, found: Bound) -> Plan:
    moves = numbers.num_particles * numbers.num_steps
    normals = moves * constants.dim_x
    if algorithm != "MYPGD":
        normals += numbers.num_steps * constants.dim_theta
    evaluations = moves * (constants.dim_theta + constants.dim_x)
    return Plan(algorithm, numbers, found, evaluations, normals)


def _too_large(found: Bound, error: float) -> str:
    name, part = max(found.terms.items(), key=lambda pair: pair[1].value)
    return (
        f"{found.algorithm}: the bound is {found.total:.4g}, above the error {error:g}; its "
        f"{name} term, {part.formula} = {part.value:.4g}, is the largest [{part.source}]."
    )
