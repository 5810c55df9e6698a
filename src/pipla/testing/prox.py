"""The contracts of a term: its prox, value, envelope and solver against brute force.

A term comes with a `ProxCase`; `check_prox` holds it to every contract that applies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipla._extras import extra
from pipla.prox.base import Term
from pipla.testing.cases import Point, ProxCase, ProxContract, near, refused

#: Every contract of a term.
PROX_CONTRACTS: list[ProxContract] = []


def check_prox(case: ProxCase) -> None:
    """Hold a term to every contract that applies to its case.

    Raises:
        AssertionError: which contract of which case is broken, where and how.
    """
    for contract in PROX_CONTRACTS:
        if contract.applies(case):
            try:
                contract(case)
            except AssertionError as error:
                raise AssertionError(f"{case.name}: {contract.name}: {error}") from error


def _contract(**options: bool) -> Callable[[Callable[[ProxCase], None]], ProxContract]:
    def register(check: Callable[[ProxCase], None]) -> ProxContract:
        contract = ProxContract(check, **options)
        PROX_CONTRACTS.append(contract)
        return contract

    return register


# What the contracts call. The term is an argument like any other: other numbers in it compile
# nothing again. All contracts share `_solve`, because compiling is what takes the time; that it
# equals `prox` is a contract, too. #

_solve = jax.jit(lambda term, *at: term.solve(*at, term.warm_start(*at[:2])))
_envelope_gradient = jax.jit(lambda term, *at: term.envelope_gradient(*at))
_value = jax.jit(lambda term, *at: term.value(*at))
_value_gradient = jax.jit(
    lambda term, *at: jax.grad(lambda *at: term.value(*at), argnums=(0, 1))(*at)
)
_envelope = jax.jit(
    lambda term, *at: jax.value_and_grad(lambda *at: term.envelope(*at), argnums=(0, 1, 3))(*at)
)


def _prox(term: Term, *at: Any) -> tuple[Any, Any]:
    solution = _solve(term, *at)
    return solution.theta, solution.x


def _arrays(at: Any, dtype: Any = jnp.float64) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(part, dtype) for part in at)


def _objective(case: ProxCase, point: tuple[Any, Any], at: Point) -> float:
    """The objective of the prox, in NumPy float64."""
    (u0, u), (theta, x, lam_theta, lam_x) = point, at
    value = float(_value(case.term, jnp.asarray(u0), jnp.asarray(u)))
    if lam_theta > 0:
        value += (float(u0) - theta) ** 2 / (2 * lam_theta)
    return value + np.sum((np.asarray(u) - x) ** 2) / (2 * lam_x)


# The contracts. #


@_contract()
def the_objective_is_the_minimum(case: ProxCase) -> None:
    """The prox attains the minimum that was found by other means."""
    for seed in range(12):
        at = case.draw(seed)
        reached = _objective(case, _prox(case.term, *_arrays(at)), at)
        near(
            f"the objective at the proximal point of {at}",
            reached,
            case.minimum(*at),
            relative=case.accuracy,
            absolute=case.accuracy,
        )


@_contract()
def no_point_nearby_is_better(case: ProxCase) -> None:
    """Random steps from the proximal point do not lower the objective."""
    rng = np.random.default_rng(0)
    for seed in range(4):
        at = case.draw(seed, case.size)
        u0, u = _prox(case.term, *_arrays(at))
        reached = _objective(case, (u0, u), at)
        for length in 10.0 ** np.arange(-6, 0):
            other = np.asarray(u) + length * rng.normal(size=u.shape)
            other0 = float(u0) + length * rng.normal() * case.joint
            slack = 1e-9 * max(1.0, abs(reached))
            found = _objective(case, (other0, other), at)
            assert found >= reached - slack or (
                # A stationary point need not be global: only small steps count against it.
                not case.convex and length > 1e-4
            ), (
                f"a step of length {length} from the proximal point of {at} lowers the objective "
                f"from {reached} to {found}"
            )


@_contract(convex=True)
def the_prox_is_firmly_nonexpansive(case: ProxCase) -> None:
    r"""$|p_1 - p_2|^2 \le \langle p_1 - p_2, z_1 - z_2 \rangle$ in the metric of the smoothings."""
    with extra("testing", "the contract of firm non-expansiveness"):
        import hypothesis
        from hypothesis import strategies as st

    template = case.draw_x(np.random.default_rng(0), case.size)
    entries = st.floats(-20, 20, allow_subnormal=False)
    points = st.lists(entries, min_size=template.size, max_size=template.size)
    lam = st.floats(1e-3, 1e2)

    @hypothesis.settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[
            hypothesis.HealthCheck.function_scoped_fixture,
            hypothesis.HealthCheck.too_slow,
        ],
    )
    @hypothesis.given(entries, entries, points, points, lam, lam)
    def check(
        theta1: float, theta2: float, x1: Any, x2: Any, lam_theta: float, lam_x: float
    ) -> None:
        x1, x2 = (np.reshape(x, template.shape) for x in (x1, x2))
        first = _prox(case.term, *_arrays((theta1, x1, lam_theta, lam_x)))
        second = _prox(case.term, *_arrays((theta2, x2, lam_theta, lam_x)))
        weights = (1 / lam_theta if case.joint else 0.0, 1 / lam_x)
        moved = [np.asarray(a - b) for a, b in zip(first, second, strict=True)]
        start = [np.asarray(theta1 - theta2), x1 - x2]
        square = sum(w * np.sum(m**2) for w, m in zip(weights, moved, strict=True))
        inner = sum(w * np.sum(m * s) for w, m, s in zip(weights, moved, start, strict=True))
        scale = sum(w * np.sum(s**2) for w, s in zip(weights, start, strict=True))
        assert square <= inner + (1e3 * case.accuracy) * scale + 1e-12 / lam_x, (
            f"two proximal points are {square} apart, more than {inner}"
        )

    check()


@_contract()
def a_smoothing_of_zero_leaves_theta_alone(case: ProxCase) -> None:
    """At `lam_theta = 0` theta is returned bit for bit, and x is the prox over x alone."""
    assert case.term.uses_theta == case.joint, (
        f"uses_theta is {case.term.uses_theta}, but joint is {case.joint}: they must agree"
    )
    for seed in range(6):
        theta, x, _, lam_x = case.draw(seed)
        at = (theta, x, 0.0, lam_x)
        u0, u = _prox(case.term, *_arrays(at))
        assert float(u0) == theta, f"theta moved from {theta!r} to {float(u0)!r} at lam_theta = 0"
        assert np.all(np.isfinite(u)), f"x is not finite at {at}"
        if not case.joint:
            other = _prox(case.term, *_arrays((0.3, x, 0.7, lam_x)))[1]
            np.testing.assert_array_equal(u, other, "x depends on theta, but joint is False")
        reached = _objective(case, (u0, u), at)
        near(f"the objective at {at}", reached, case.minimum(*at), relative=1e-7, absolute=1e-7)


@_contract()
def no_smoothing_is_a_smoothing_of_zero(case: ProxCase) -> None:
    """`lam_theta=None` gives the point of `lam_theta = 0`."""
    theta, x, _, lam_x = case.draw(3, case.size)
    at = _arrays((theta, x, lam_x))
    fixed = _solve(case.term, at[0], at[1], None, at[2])
    zero = _solve(case.term, at[0], at[1], jnp.zeros(()), at[2])
    assert float(fixed.theta) == theta, "theta moved, although lam_theta is None"
    sentence = "lam_theta=None and lam_theta=0 differ"
    np.testing.assert_allclose(fixed.x, zero.x, rtol=1e-12, atol=1e-12, err_msg=sentence)
    np.testing.assert_allclose(fixed.gap, zero.gap, rtol=1e-6, atol=1e-12, err_msg=sentence)


@_contract(joint=True)
def a_small_smoothing_of_theta_tends_to_none(case: ProxCase) -> None:
    """The joint prox is continuous at `lam_theta = 0`."""
    theta, x, _, lam_x = case.draw(3)
    fixed = _prox(case.term, *_arrays((theta, x, 0.0, lam_x)))
    nearly = _prox(case.term, *_arrays((theta, x, 1e-13, lam_x)))
    for a, b in zip(fixed, nearly, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6, err_msg="lam_theta = 1e-13 is far from 0")


@_contract(thorough=True)
def float32_agrees_with_float64(case: ProxCase) -> None:
    """A float32 point has dtype float32 and nearly the objective of the float64 one."""
    for seed in range(8):
        at = _arrays(_arrays(case.draw(seed, case.size), jnp.float32))
        double = _prox(case.term, *at)
        single = _prox(case.term, *_arrays(at, jnp.float32))
        dtypes = {str(part.dtype) for part in (*single, _value(case.term, *single))}
        assert dtypes == {"float32"}, f"float32 in, {dtypes} out: cast numbers by .astype(x.dtype)"
        # Near a tie of two stationary points, rounding chooses: compare what was minimised.
        numbers: Any = tuple(np.asarray(part) for part in at)
        best = _objective(case, double, numbers)
        lifted = _objective(case, (np.float64(single[0]), np.float64(single[1])), numbers)
        if np.isfinite(lifted):
            slack = 1e-4 * max(1.0, abs(best), at[1].size)
            near(f"the objective of float32 at {numbers}", lifted, best, absolute=slack)


@_contract(thorough=True)
def extreme_smoothings_stay_finite_in_float32(case: ProxCase) -> None:
    """No overflow and no 0/0 for smoothings from 1e-30 to 1e4."""
    for seed in range(6):
        theta, x, _, _ = case.draw(seed, case.size)
        for lam_theta in (1e-30, 1e-6, 1.0, 1e3, 1e5 / x.size):
            for lam_x in (1e-30, 1e-6, 1.0, 1e4):
                at = (theta, x, lam_theta, min(lam_x, case.limit_x(theta, x)))
                for part in _prox(case.term, *_arrays(at, jnp.float32)):
                    assert np.all(np.isfinite(part)), f"not finite in float32 at {at}"


@_contract(thorough=True)
def jit_and_solve_equal_prox(case: ProxCase) -> None:
    """`prox` run eagerly, `jax.jit(term.prox)` and `solve` from a cold start are one map."""
    at = _arrays(case.draw(1, case.size))
    eager = case.term.prox(*at)
    for jitted in (_prox(case.term, *at), jax.jit(case.term.prox)(*at)):
        for a, b in zip(jitted, eager, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12, err_msg="jit changes the prox")


@_contract(thorough=True)
def vmap_over_particles_equals_a_loop(case: ProxCase) -> None:
    """Particles of a batch do not influence each other."""
    theta, _, lam_theta, lam_x = _arrays(case.draw(5, case.size))
    particles = np.stack([case.draw_x(np.random.default_rng(i), case.size) for i in range(7)])

    def solve(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _prox(case.term, theta, x, lam_theta, lam_x)

    batched = tuple(map(np.asarray, jax.vmap(solve)(jnp.asarray(particles))))
    for i in range(7):
        for many, one in zip(batched, solve(jnp.asarray(particles[i])), strict=True):
            sentence = f"particle {i} of a batch is not the one solved alone"
            np.testing.assert_allclose(many[i], one, atol=1e-10, err_msg=sentence)


@_contract(thorough=True)
def vmap_over_numbers_equals_a_loop(case: ProxCase) -> None:
    """The term's own numbers and the smoothings may be batched."""
    theta, x, lam_theta, lam_x = _arrays(case.draw(5, case.size))
    lam_theta, lam_x = lam_theta / 2, lam_x / 2  # within the limits for every factor
    factors = jnp.array([0.5, 1.0, 1.7])

    def varied(factor: jax.Array) -> tuple[jax.Array, jax.Array]:
        term = jax.tree.map(lambda leaf: leaf * factor, case.term)
        return _prox(term, theta, x, lam_theta * factor, lam_x / factor)

    batched = tuple(map(np.asarray, jax.jit(jax.vmap(varied))(factors)))
    for i, factor in enumerate(factors):
        for many, one in zip(batched, varied(factor), strict=True):
            sentence = f"numbers times {factor} in a batch are not those solved alone"
            np.testing.assert_allclose(many[i], one, atol=1e-9, err_msg=sentence)


@_contract(thorough=True)
def the_envelope_has_its_gradient(case: ProxCase) -> None:
    """Autodiff of the envelope is the displacement and the finite difference of the minimum."""
    theta, x, _, _ = case.draw(11, case.size)
    x = x + 0.01 * np.random.default_rng(0).normal(size=x.shape)
    lam_theta = min(0.01 / x.size, case.limit_theta(theta - 0.01, x))
    at = (theta, x, lam_theta, min(0.03, 0.9 * case.limit_x(theta, x)))
    _, automatic = _envelope(case.term, *_arrays(at))
    automatic = tuple(map(np.asarray, automatic))  # what follows is not to be compiled
    u0, u = map(np.asarray, _prox(case.term, *_arrays(at)))
    for found, displacement in zip(
        automatic, ((theta - u0) / at[2], (x - u) / at[3]), strict=False
    ):
        sentence = "the gradient of the envelope is not the displacement"
        np.testing.assert_allclose(found, displacement, rtol=1e-9, atol=1e-9, err_msg=sentence)

    step = 1e-5

    def difference(argument: int, index: tuple[int, ...] = ()) -> float:
        ends = []
        for sign in (1, -1):
            moved = [np.array(part, np.float64) for part in at]
            moved[argument][index] += sign * step
            ends.append(case.minimum(float(moved[0]), moved[1], float(moved[2]), float(moved[3])))
        return (ends[0] - ends[1]) / (2 * step)

    def compare(name: str, derivative: Any, expected: float) -> None:
        sentence = f"the derivative of the envelope in {name}"
        near(sentence, derivative, expected, relative=1e-3, absolute=1e-3)

    compare("theta", automatic[0], difference(0))
    compare("lam_x", automatic[2], difference(3))
    for flat in range(min(3, x.size)):
        index = tuple(int(i) for i in np.unravel_index(flat, x.shape))
        compare(f"x{list(index)}", automatic[1][index], difference(1, index))


@_contract(thorough=True)
def the_envelope_is_constant_in_a_fixed_theta(case: ProxCase) -> None:
    """At `lam_theta = 0` theta is a constant of the envelope."""
    theta, x, _, lam_x = case.draw(2, case.size)
    envelope, automatic = _envelope(case.term, *_arrays((theta, x, 0.0, lam_x)))
    assert np.isfinite(envelope), "the envelope is not finite at lam_theta = 0"
    assert automatic[0] == 0, f"its derivative in theta is {automatic[0]}, not 0"
    assert np.all(np.isfinite(automatic[1])), "its gradient in x is not finite"


@_contract(thorough=True)
def envelope_gradient_is_the_gradient_of_the_envelope(case: ProxCase) -> None:
    """`envelope_gradient` and autodiff of `envelope` agree, also for a fixed theta."""
    theta, x, lam_theta, lam_x = case.draw(2, case.size)
    for smoothing in (lam_theta, 0.0):
        at = _arrays((theta, x, smoothing, lam_x))
        automatic = _envelope(case.term, *at)[1][:2]
        for found, expected in zip(_envelope_gradient(case.term, *at), automatic, strict=True):
            sentence = f"envelope_gradient is not the gradient of envelope at {at}"
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=sentence)


@_contract(thorough=True)
def the_value_has_a_finite_subgradient(case: ProxCase) -> None:
    """Autodiff of the value is finite at the proximal point and at 0, kinks included."""
    theta, x = _prox(case.term, *_arrays(case.draw(4, case.size)))
    for point in (x, jnp.zeros_like(x)):
        for part in _value_gradient(case.term, theta, point):
            assert np.all(np.isfinite(part)), f"the gradient of the value at {point} is {part}"


@_contract()
def the_gap_is_honest_and_warm_starts_keep_their_structure(case: ProxCase) -> None:
    """The excess of the objective is below the gap; `solve` returns a warm start like its own."""
    at = case.draw(8, case.size)
    start = case.term.warm_start(*_arrays(at)[:2])
    solution = _solve(case.term, *_arrays(at))
    same = jax.tree.map(
        lambda a, b: a.shape == b.shape and a.dtype == b.dtype, start, solution.warm
    )
    assert all(jax.tree.leaves(same)), "solve returns a warm start of another shape or dtype"
    assert solution.gap.shape == (), f"the gap must be a number, its shape is {solution.gap.shape}"
    assert float(solution.gap) >= 0, f"the gap is negative: {solution.gap}"
    best = case.minimum(*at)
    excess = _objective(case, (solution.theta, solution.x), at) - best
    assert excess <= float(solution.gap) + 1e-8 * max(1, abs(best)), (
        f"the objective is {excess} above its minimum, but the gap says {solution.gap}"
    )


@_contract(joint=True)
def theta_must_be_a_scalar_of_the_dtype_of_x(case: ProxCase) -> None:
    """Errors name theta: `pipla.prox.operands` raises them."""
    x = jnp.asarray(case.draw(0)[1])
    refused(ValueError, ("scalar theta",), lambda: case.term.prox(jnp.zeros(2), x, 0.1, 0.1))
    other = jnp.zeros((), jnp.float32)
    refused(TypeError, ("float32 and x is float64",), lambda: case.term.prox(other, x, 0.1, 0.1))


@_contract()
def x_must_be_one_floating_array(case: ProxCase) -> None:
    """Errors name x: `pipla.prox.operands` and `require_floating` raise them."""
    if case.any_x:
        return
    zero, structured = jnp.zeros(()), {"w": jnp.zeros((2, 2))}
    advice = ("address a part of", "addresses a part of")
    refused(TypeError, advice, lambda: case.term.prox(zero, structured, 0.1, 0.1))
    integers = jnp.zeros((2, 2), jnp.int32)
    refused(TypeError, ("floating-point x",), lambda: case.term.prox(zero, integers, 0.1, 0.1))
