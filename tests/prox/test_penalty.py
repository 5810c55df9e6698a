"""A solver's penalty at the proximal point, from which theta is set without a decomposition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.prox.test_fixed_theta import primitives

import pipla
from pipla import prox

RNG = np.random.default_rng(7)
THETA = {"a": jnp.asarray(0.2), "b": jnp.asarray(-0.3)}
PARTICLES = {
    "v": jnp.asarray(RNG.normal(size=(3, 4, 2))),
    "w": jnp.asarray(RNG.laplace(size=(3, 5))),
}
NUCLEAR = prox.NuclearStrength(normalised=True)

#: With what is between the penalty and the strength: scaled, translated, addressed, added up.
WITH_THETA = {
    "nuclear": (NUCLEAR, THETA["a"], PARTICLES["v"]),
    "scaled": (3.0 * NUCLEAR, THETA["a"], PARTICLES["v"]),
    "scaled inside": (prox.Strength(3.0 * prox.NuclearNorm()), THETA["a"], PARTICLES["v"]),
    "translated": (NUCLEAR.translate(0.5), THETA["a"], PARTICLES["v"]),
    "groups": (prox.Strength(prox.GroupLasso(2.0, axis=0)), THETA["a"], PARTICLES["v"]),
    "sum": (
        NUCLEAR.on(theta="a", x="v") + prox.LaplaceScale().on(theta="b", x="w"),
        THETA,
        PARTICLES,
    ),
    "sum inside": (
        (prox.L1(2.0).on(x="w") + NUCLEAR.on(theta="a", x="v")),
        {"a": THETA["a"]},
        PARTICLES,
    ),
}


@pytest.mark.parametrize("name", WITH_THETA)
def test_the_best_theta_is_the_same_with_the_penalty_of_the_solver(name):
    term, theta, particles = WITH_THETA[name]
    solve = jax.vmap(lambda x: term.solve(theta, x, None, 0.3, term.warm_start(theta, x)))
    point = solve(particles)
    assert point.penalty is not None
    fast = term.closed_form_at(theta, point.x, point.penalty)
    for a, b in zip(*map(jax.tree.leaves, (fast, term.closed_form(theta, point.x))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_penalty_of_a_term_in_x_alone_is_its_value_at_the_point():
    x = jax.tree.map(lambda leaf: leaf[0], PARTICLES)
    total = 2.0 * (prox.NuclearNorm(1.5).on(x="v") + prox.L1(0.7).on(x="w"))
    point = total.solve(None, x, None, 0.3, total.warm_start(None, x))
    np.testing.assert_allclose(point.penalty, total.value(None, point.x), rtol=1e-12)
    # Where one of two penalties is not known, neither is their sum.
    unknown = prox.NuclearNorm().on(x="v") + prox.SquaredL2().on(x="w")
    assert unknown.solve(None, x, None, 0.3, unknown.warm_start(None, x)).penalty is None


@pytest.mark.parametrize(
    ("algorithm", "decompositions"),
    [
        (pipla.RPL(), 1),
        (pipla.IRPL(), 1),
        (pipla.PIPGLA(0.01, theta_update="closed-form", theta_noise=False), 1),
        # The particles are mirror images of the proximal points: theta needs theirs.
        (
            pipla.PIPGLA(0.01, theta_update="closed-form", theta_noise=False, reflected=True),
            2,
        ),
    ],
)
def test_a_step_with_a_nuclear_norm_makes_one_decomposition(algorithm, decompositions):
    y = PARTICLES["v"][0]
    model = pipla.Model(pipla.likelihoods.Gaussian(pipla.operators.Identity(), y, 0.5), NUCLEAR)
    state = algorithm.init(model, THETA["a"], PARTICLES["v"][:2])
    program = jax.make_jaxpr(lambda key, state: algorithm.step(key, state, model)[0])
    assert primitives(program(jax.random.key(0), state).jaxpr, "svd") == decompositions
