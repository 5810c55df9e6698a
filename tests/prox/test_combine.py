"""Scaling, translating, addressing parts and adding: the joint prox of the composite."""

import collections
import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipla import prox

x = jnp.array([-1.3, 0.2, 2.0, 0.7])


def assert_same(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), first, second)


def test_scaling_by_a_number_is_scaling_the_weight():
    assert_same((2.5 * prox.L1(2.0)).prox(None, x, 0.0, 0.1), prox.L1(5.0).prox(None, x, 0.0, 0.1))
    assert_same(
        (0.5 * prox.LaplaceLocation(2.0)).prox(0.3, x, 0.2, 0.1),
        prox.LaplaceLocation(4.0).prox(0.3, x, 0.2, 0.1),
    )
    assert float((2 * prox.L1()).value(None, x)) == pytest.approx(2 * float(jnp.sum(abs(x))))


@pytest.mark.parametrize("weight", [np.float64(2.0), np.array(2.0), jnp.asarray(2.0), 2])
def test_any_kind_of_number_scales(weight):
    term = weight * prox.L1()
    assert isinstance(term, prox.Scaled)
    assert float(term.value(None, x)) == pytest.approx(2 * float(jnp.sum(abs(x))))


def test_scaling_needs_a_positive_weight():
    for weight in (0.0, -1.0, np.inf):
        with pytest.raises(ValueError, match=r"weight must be positive.*got"):
            weight * prox.L1()


def test_scaling_scales_the_gap():
    term = prox.TotalVariation(max_iterations=5, tolerance=1e-12)
    warm = term.warm_start(None, x)
    scaled = (3.0 * term).solve(None, x, 0.0, 0.1, warm)
    plain = prox.TotalVariation(3.0, max_iterations=5, tolerance=1e-12).solve(
        None, x, 0.0, 0.1, warm
    )
    assert_same(scaled.x, plain.x)
    assert float(scaled.gap) == pytest.approx(float(plain.gap))


def test_translation_moves_the_minimiser():
    shift = jnp.array([1.0, 2.0, 3.0, 4.0])
    term = prox.L1(10.0).translate(shift)
    assert_same(term.prox(None, x, 0.0, 1.0)[1], shift)
    assert float(term.value(None, shift)) == 0


def test_translation_of_structures_and_its_error():
    term = prox.L1().on(x="w").translate({"w": 1.0, "v": 2.0})
    parts = {"w": x, "v": x}
    assert float(term.value(None, parts)) == pytest.approx(float(jnp.sum(abs(x - 1))))
    assert_same(term.prox(None, parts, 0.0, 0.1)[1]["v"], x)
    with pytest.raises(TypeError, match="shift must have the structure of x"):
        term.value(None, x)


class Named(NamedTuple):
    a: jax.Array
    rest: tuple


class Tree(eqx.Module):
    a: jax.Array
    rest: tuple


CONTAINERS = {
    "dict": ({"a": x, "rest": (x + 1, x + 2)}, "a", ("rest", 1)),
    "named tuple": (Named(x, (x + 1, x + 2)), "a", ("rest", 1)),
    "module": (Tree(x, (x + 1, x + 2)), "a", ("rest", 1)),
    "tuple": ((x, (x + 1, x + 2)), 0, (1, 1)),
    "list": ([x, [x + 1, x + 2]], 0, (1, 1)),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_parts_of_any_container_are_addressed(name):
    tree, flat, nested = CONTAINERS[name]
    term = prox.L1(2.0).on(x=flat) + prox.SquaredL2(3.0).on(x=nested)
    _, moved = jax.jit(lambda tree: term.prox(None, tree, 0.0, 0.1))(tree)
    assert jax.tree.structure(moved) == jax.tree.structure(tree)
    leaves = jax.tree.leaves(moved)
    assert_same(leaves[0], prox.L1(2.0).prox(None, x, 0.0, 0.1)[1])
    assert_same(leaves[1], x + 1)
    assert_same(leaves[2], prox.SquaredL2(3.0).prox(None, x + 2, 0.0, 0.1)[1])
    expected = 2 * jnp.sum(abs(x)) + 1.5 * jnp.sum((x + 2) ** 2)
    assert float(term.value(None, tree)) == pytest.approx(float(expected))


def test_a_joint_term_on_parts_of_theta_and_x():
    theta = {"alpha": jnp.asarray(0.3), "beta": jnp.asarray(-0.2)}
    latent = {"w": x, "v": x[:2]}
    term = prox.GaussianLocation().on(theta="alpha", x="w") + prox.LaplaceLocation().on(
        theta="beta", x="v"
    )
    moved = term.prox(theta, latent, 0.01, 0.1)
    first = prox.GaussianLocation().prox(theta["alpha"], x, 0.01, 0.1)
    second = prox.LaplaceLocation().prox(theta["beta"], x[:2], 0.01, 0.1)
    assert_same(moved[0], {"alpha": first[0], "beta": second[0]})
    assert_same(moved[1], {"w": first[1], "v": second[1]})


def test_a_smoothing_may_differ_by_part():
    theta = {"alpha": jnp.asarray(0.3), "beta": jnp.asarray(-0.2)}
    term = prox.LaplaceLocation().on(theta="alpha", x="w")
    lam_theta, lam_x = {"alpha": 0.02, "beta": 0.5}, {"w": 0.3, "v": 0.7}
    moved = term.prox(theta, {"w": x, "v": x}, lam_theta, lam_x)
    alone = prox.LaplaceLocation().prox(theta["alpha"], x, 0.02, 0.3)
    assert_same((moved[0]["alpha"], moved[1]["w"]), alone)
    envelope = term.envelope(theta, {"w": x, "v": x}, lam_theta, lam_x)
    assert float(envelope) == pytest.approx(
        float(prox.LaplaceLocation().envelope(theta["alpha"], x, 0.02, 0.3))
    )


def test_nested_addresses_compose():
    inner = prox.L1().on(x="w") + prox.SquaredL2().on(x="v")
    outer = inner.on(x="layer")
    tree = {"layer": {"w": x, "v": x}, "other": x}
    _, moved = outer.prox(None, tree, 0.0, 0.1)
    assert_same(moved["layer"]["w"], prox.L1().prox(None, x, 0.0, 0.1)[1])
    assert_same(moved["layer"]["v"], prox.SquaredL2().prox(None, x, 0.0, 0.1)[1])
    assert_same(moved["other"], x)


def test_a_missing_part_is_reported_with_the_ones_there_are():
    with pytest.raises(ValueError, match=r"x='weights'.*\['w', 'v'\]"):
        prox.L1().on(x="weights").value(None, {"w": x, "v": x})
    with pytest.raises(ValueError, match="it is a single array"):
        prox.L1().on(x="w").value(None, x)


def test_a_structured_x_is_refused_with_advice():
    with pytest.raises(TypeError, match=r"L1 acts on one array.*term\.on\(x="):
        prox.L1().value(None, {"w": x})


@pytest.mark.parametrize(
    "make",
    [
        lambda: prox.L1() + prox.SquaredL2(),
        lambda: prox.L1().on(x="w") + prox.Box(0.0, 1.0).on(x="w"),
        lambda: prox.L1().on(x="w") + prox.Box(0.0, 1.0).on(x=("w", 0)),
        lambda: prox.L1().on(x="w") + prox.L1(),
        lambda: 2.0 * (prox.L1().on(x="w") + prox.L1().on(x="v")) + prox.L1().on(x="v"),
        lambda: (prox.L1().on(x="w") + prox.L1().on(x="v")).on(x="a") + prox.L1().on(x=("a", "w")),
        lambda: prox.LaplaceLocation().on(x="w") + prox.LaplaceScale().on(x="v"),
    ],
)
def test_overlapping_sums_are_refused(make):
    with pytest.raises(ValueError, match=r"both act on .*`\.on\("):
        make()


def test_disjoint_sums_are_accepted_however_they_are_nested():
    left = 2.0 * (prox.L1().on(x="w") + prox.L1().on(x="v"))
    total = left + prox.LaplaceLocation().on(theta="beta", x="z") + prox.Zero()
    tree = {"w": x, "v": x, "z": x}
    _, moved = total.prox({"beta": jnp.zeros(())}, tree, 0.1, 0.1)
    assert_same(moved["w"], prox.L1(2.0).prox(None, x, 0.0, 0.1)[1])
    sizes = total.coupled_sizes({"beta": jnp.zeros(())}, tree)
    assert sizes == {"beta": 4}


def test_warm_starts_and_gaps_of_a_sum_go_to_their_terms():
    signal = jnp.asarray(np.random.default_rng(0).normal(size=30).cumsum())
    term = prox.TotalVariation(max_iterations=5, tolerance=1e-12).on(x="a") + prox.L1().on(x="b")
    tree = {"a": signal, "b": x}
    solution = term.solve(None, tree, 0.0, 0.5, term.warm_start(None, tree))
    again = term.solve(None, tree, 0.0, 0.5, solution.warm)
    assert 0 < float(again.gap) < float(solution.gap)


def test_composites_under_vmap_and_jit():
    theta = {"alpha": jnp.asarray(0.3), "beta": jnp.asarray(-0.2)}
    particles = {"w": jnp.stack([x, 2 * x]), "v": jnp.stack([x, -x])}
    term = prox.GaussianLocation().on(theta="alpha", x="w") + (
        2.0 * prox.LaplaceLocation().translate(0.5)
    ).on(theta="beta", x="v")
    batched = jax.jit(jax.vmap(lambda x: term.prox(theta, x, 0.01, 0.1)))(particles)
    for i in range(2):
        single = term.prox(theta, jax.tree.map(lambda leaf: leaf[i], particles), 0.01, 0.1)
        assert_same(jax.tree.map(lambda leaf: leaf[i], batched), single)


def test_composites_say_whether_they_use_theta():
    assert not (2.0 * prox.L1().translate(1.0).on(x="w")).uses_theta
    assert (prox.L1().on(x="w") + prox.LaplaceLocation().on(x="v")).uses_theta
    assert not (prox.L1().on(x="w") + prox.L1().on(x="v")).uses_theta
    assert float(prox.Strength(2.0 * prox.L1()).value(0.0, x)) > 0


def test_a_theta_of_none_has_an_envelope():
    assert float(prox.L1().envelope(None, x, 0.0, 0.1)) > 0
    assert prox.L1().envelope_gradient(None, x, 0.0, 0.1)[0] is None


def test_an_integer_is_a_smoothing_like_any_other():
    term = 0.5 * prox.L1()
    assert_same(term.prox(None, x, 0, 1), term.prox(None, x, 0.0, 1.0))
    joint = 1.5 * prox.LaplaceLocation()
    assert_same(joint.prox(0.0, x, 1, 1), joint.prox(0.0, x, 1.0, 1.0))


COMPOSED = {
    "scaled": (2.5 * prox.LaplaceLocation(2.0), jnp.asarray(0.3), x),
    "translated": (prox.LaplaceLocation().translate(0.7), jnp.asarray(0.3), x),
    "on parts": (
        prox.LaplaceLocation().on(theta="a", x="u"),
        {"a": jnp.asarray(0.3), "b": jnp.ones(())},
        {"u": x, "v": x},
    ),
    "sum": (
        (0.5 * prox.LaplaceLocation()).on(theta="a", x="u") + prox.L1().translate(0.2).on(x="v"),
        {"a": jnp.asarray(0.3), "b": jnp.ones(())},
        {"u": x, "v": x},
    ),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_the_envelope_of_a_composed_term_is_the_minimum_that_its_prox_attains(name):
    term, theta, at = COMPOSED[name]
    lam_theta, lam_x = 0.05, 0.4
    point = term.prox(theta, at, lam_theta, lam_x)

    def half_square(a, b, lam):
        leaves = jax.tree.leaves(jax.tree.map(lambda u, v: jnp.sum((u - v) ** 2), a, b))
        return sum(leaves) / (2 * lam)

    minimum = term.value(*point)
    minimum += half_square(theta, point[0], lam_theta) + half_square(at, point[1], lam_x)
    np.testing.assert_allclose(term.envelope(theta, at, lam_theta, lam_x), minimum, rtol=1e-12)
    gradients = jax.grad(term.envelope, argnums=(0, 1))(theta, at, lam_theta, lam_x)
    assert_same(gradients, term.envelope_gradient(theta, at, lam_theta, lam_x))


def test_a_translated_constraint_has_a_finite_envelope():
    # 5 projects to 1 + 1.4 - 1.4 > 1 by rounding, which is outside.
    term = prox.Box(0.0, 1.0).translate(1.4)
    at = jnp.float32(5.0)
    np.testing.assert_allclose(term.envelope(None, at, 0.0, 0.1), 33.8, rtol=1e-6)
    parts = term.on(x="u") + prox.L1().on(x="v")
    both = parts.envelope(None, {"u": at, "v": jnp.float32(0)}, 0.0, 0.1)
    np.testing.assert_allclose(both, 33.8, rtol=1e-6)


def test_the_envelope_has_a_derivative_in_the_shift():
    def envelope(shift):
        return prox.L1().translate(shift).envelope(None, x, 0.0, 0.5)

    difference = (envelope(0.1 + 1e-6) - envelope(0.1 - 1e-6)) / 2e-6
    np.testing.assert_allclose(jax.grad(envelope)(0.1), difference, rtol=1e-6)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Record:
    a: jax.Array
    b: jax.Array


@pytest.mark.parametrize(
    "tree",
    [
        collections.OrderedDict(b=x, a=x),
        collections.defaultdict(list, a=x, b=x),
        Record(x, x),
    ],
)
def test_a_part_is_replaced_in_a_tree_of_any_kind(tree):
    _, moved = prox.L1().on(x="a").prox(None, tree, 0.0, 0.5)
    assert jax.tree.structure(moved) == jax.tree.structure(tree)
    part = moved.a if isinstance(moved, Record) else moved["a"]
    assert_same(part, prox.L1().prox(None, x, 0.0, 0.5)[1])
    assert_same(jax.tree.leaves(tree), [x, x])


def test_a_smoothing_for_a_branch_is_that_of_its_leaves():
    term = prox.L1().on(x=("a", "c"))
    tree = {"a": {"c": x}}
    assert_same(term.prox(None, tree, 0.0, {"a": 0.5}), term.prox(None, tree, 0.0, 0.5))


def test_the_unit_of_time_is_the_square_of_a_length():
    for term, unit in (
        (prox.LaplaceLocation(0.1), 0.01),
        (prox.GaussianLocation(0.1), 0.01),
        (prox.L1(10.0), 0.01),
        (prox.ElasticNet(10.0, 0.0), 0.01),
        (prox.ElasticNet(0.0, 4.0), 0.25),
        (prox.ElasticNet(0.0, 0.0), np.inf),
        (prox.SquaredL2(4.0), 0.25),
    ):
        np.testing.assert_allclose(term.time_unit(jnp.zeros(()), x), unit)
        assert term.finite


def test_the_unit_of_time_of_groups_matrices_and_constraints():
    matrix = jnp.ones((2, 5))
    for term, unit in (
        (prox.GroupLasso(2.0, axis=1), 6 / 2 / 4),  # an element's variance is (k + 1)/w²
        (prox.NuclearNorm(2.0), 5 / 4),
        (prox.NonNegative(), np.inf),
        (prox.Box(0.0, 6.0), 3.0),
        (prox.Simplex(5.0), 0.25),
        (prox.UniformBox(), 3.0),
        (prox.UniformLogBox(), np.exp(6.0) / 3),
        (prox.L1(2.0).on(x=0) + prox.NonNegative().on(x=1), (0.25, np.inf)),
    ):
        at = (matrix, matrix) if isinstance(unit, tuple) else matrix
        found = term.time_unit(jnp.asarray(3.0), at)
        np.testing.assert_allclose(jax.tree.leaves(found), jax.tree.leaves(unit))
