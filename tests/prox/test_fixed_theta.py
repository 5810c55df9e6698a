"""`lam_theta=None`: theta does not move, and nothing is computed for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipla import prox

x = jnp.array([-1.3, 0.2, 2.0, 0.7])
TERMS = {
    "location": prox.LaplaceLocation(),
    "scale": prox.LaplaceScale(),
    "box": prox.UniformBox(),
    "log box": prox.UniformLogBox(),
}
terms = pytest.mark.parametrize("name", TERMS)


def primitives(jaxpr, name):
    """How often a primitive occurs, also inside other primitives."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name == name
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns")):
            count += primitives(inner, name) if hasattr(inner, "eqns") else 0
    return count


def loops(term, lam_theta):
    at = (jnp.asarray(0.3), x)
    program = jax.make_jaxpr(lambda theta, x: term.solve(theta, x, lam_theta, 0.1, None))(*at)
    return primitives(program.jaxpr, "while")


@terms
def test_no_root_is_computed(name):
    assert loops(TERMS[name], None) == 0
    if name != "box":  # whose root has a closed form
        assert loops(TERMS[name], 0.0) > 0
        assert loops(TERMS[name], jnp.asarray(0.1)) > 0


def test_the_largest_stationary_point_is_not_sorted_for():
    def sorts(lam_theta):
        at = (jnp.asarray(0.3), x)
        program = jax.make_jaxpr(lambda t, x: prox.UniformBox().prox(t, x, lam_theta, 0.1))(*at)
        return primitives(program.jaxpr, "sort")

    assert sorts(None) == 0
    assert sorts(0.0) == 1


def test_a_learned_total_variation_is_solved_once():
    image = jnp.zeros((4, 5))
    term = prox.TVStrength(native=False, max_iterations=5)

    def program(lam_theta):
        warm = term.warm_start(0.3, image)
        jaxpr = jax.make_jaxpr(lambda t, x: term.solve(t, x, lam_theta, 0.1, warm))
        return primitives(jaxpr(jnp.asarray(0.3), image).jaxpr, "while")

    assert program(None) == 1  # the iteration of the total variation itself
    assert program(0.0) == 2


@terms
@pytest.mark.parametrize("zero", [0, 0.0, np.float64(0), jnp.zeros(())], ids=repr)
def test_the_number_zero_does_not_move_theta_either(name, zero):
    term, theta = TERMS[name], jnp.asarray(0.3)
    joint, fixed = (term.prox(theta, x, lam_theta, 0.1) for lam_theta in (zero, None))
    assert joint[0] == fixed[0] == theta
    np.testing.assert_allclose(joint[1], fixed[1], atol=1e-14)


PARTS = {"a": jnp.asarray(0.3), "b": jnp.ones(2)}
COMPOSED = {
    "scaled": (2.5 * prox.LaplaceLocation(), jnp.asarray(0.3), x),
    "translated": (prox.LaplaceScale().translate(0.7), jnp.asarray(0.3), x),
    "on parts": (prox.LaplaceLocation().on(theta="a", x="u"), PARTS, {"u": x, "v": x}),
    "sum": (
        (0.5 * prox.UniformBox()).on(theta="a", x="u") + prox.L1().translate(0.2).on(x="v"),
        PARTS,
        {"u": x, "v": x},
    ),
    "nested": (prox.LaplaceLocation().on(theta="a", x="u").on(theta="c"), {"c": PARTS}, {"u": x}),
    "x alone": (prox.L1(), None, x),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_compositions_hand_it_down(name):
    term, theta, at = COMPOSED[name]
    methods = (term.prox, term.envelope, term.envelope_gradient)
    for method in methods:
        fixed, zero = (method(theta, at, lam_theta, 0.1) for lam_theta in (None, 0.0))
        assert jax.tree.structure(fixed) == jax.tree.structure(zero)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), fixed, zero)
    program = jax.make_jaxpr(lambda x: term.prox(theta, x, None, 0.1))(at)
    assert primitives(program.jaxpr, "while") == 0


def test_one_part_of_theta_may_move_and_another_not():
    term = prox.LaplaceLocation().on(theta="a", x="u") + prox.LaplaceLocation().on(theta="b", x="v")
    theta = {"a": jnp.asarray(0.3), "b": jnp.asarray(-0.2)}
    at = {"u": x, "v": 2 * x}
    for method in (term.prox, term.envelope, term.envelope_gradient):
        mixed = method(theta, at, {"a": None, "b": 0.05}, 0.1)
        zero = method(theta, at, {"a": 0.0, "b": 0.05}, 0.1)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), mixed, zero)


def test_a_bad_smoothing_of_x_is_still_refused():
    for term in (*TERMS.values(), prox.TVStrength(), prox.GaussianLocation()):
        with pytest.raises(ValueError, match="lam_x must be 0 or positive"):
            term.prox(jnp.asarray(0.3), x, None, -1.0)
