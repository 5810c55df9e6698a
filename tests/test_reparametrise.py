"""Non-centred models: the same posterior and the same marginal likelihood, in other coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import pipla
from pipla import prox
from pipla.engine.save import observe
from pipla.testing import compilations

pytestmark = pytest.mark.slow

D = 4
TV = prox.TVStrength()

# name: (term, how to draw theta, the shape of x, the plain term in z)
TERMS = {
    "LaplaceLocation": (prox.LaplaceLocation(2.0), "real", (D,), prox.L1),
    "GaussianLocation": (prox.GaussianLocation(0.7), "real", (D,), prox.SquaredL2),
    "LaplaceScale": (prox.LaplaceScale(), "real", (D,), prox.L1),
    "GaussianScale": (prox.GaussianScale(), "real", (D,), prox.SquaredL2),
    "Strength of squares": (
        prox.Strength(prox.SquaredL2(2.0), rate=0.7, degrees=2), "real", (D,), prox.SquaredL2,
    ),
    "UniformBox": (prox.UniformBox(), "positive", (D,), prox.Box),
    "UniformLogBox": (prox.UniformLogBox(), "real", (D,), prox.Box),
    "TVStrength": (TV, "real", (3, 2), prox.TotalVariation),
    "TVStrength isotropic": (prox.TVStrength(isotropic=True), "real", (3, 2), prox.TotalVariation),
    "TVStrength degrees": (prox.TVStrength(degrees=5), "real", (3, 2), prox.TotalVariation),
    "NuclearStrength": (prox.NuclearStrength(), "real", (3, 2), prox.NuclearNorm),
    "NuclearStrength normalised": (
        prox.NuclearStrength(normalised=True), "real", (3, 2), prox.NuclearNorm,
    ),
    "Strength of L1": (prox.Strength(prox.L1(3.0), rate=-0.5), "real", (D,), prox.L1),
    "Strength of groups": (
        prox.Strength(prox.GroupLasso(axis=1), degrees=2.0), "real", (3, 2), prox.GroupLasso,
    ),
    "translated": (
        prox.LaplaceScale().translate(jnp.arange(float(D))), "real", (D,), prox.L1,
    ),
    "translated box": (prox.UniformBox().translate(jnp.ones(D)), "positive", (D,), prox.Box),
    "without theta": (prox.L1(), "real", (D,), prox.L1),
    "scaled without theta": (2.0 * prox.L1(), "real", (D,), prox.Scaled),
}  # fmt: skip


def smooth(theta, x, data):
    """Any function of both."""
    return jnp.sum(jnp.sin(x)) * (1 + theta**2) + jnp.sum(x**2) / 8


def draw(rng, kind, shape):
    theta = rng.normal() / 2
    return jnp.asarray(abs(theta) + 0.3 if kind == "positive" else theta), jnp.asarray(
        rng.uniform(-0.95, 0.95, size=shape)
    )


def log_jacobian(back, theta, z):
    """log |det dT/dz| by automatic differentiation."""
    flat, rebuild = ravel_pytree(z)
    jacobian = jax.jacfwd(lambda v: ravel_pytree(back(theta, rebuild(v)))[0])(flat)
    return np.linalg.slogdet(jacobian)[1]


def check_densities_agree(model, draws):
    """U_z(theta, z) - [U_x(theta, T z) - log |det|] is one constant."""
    plain, back = pipla.noncentred(model)
    constants = [
        float(plain.potential(theta, z))
        - (float(model.potential(theta, back(theta, z))) - log_jacobian(back, theta, z))
        for theta, z in draws
    ]
    assert np.all(np.isfinite(constants))
    np.testing.assert_allclose(constants, constants[0], atol=1e-10)


@pytest.mark.parametrize("name", TERMS)
def test_the_density_is_the_same_up_to_a_constant(name):
    term, kind, shape, _ = TERMS[name]
    rng = np.random.default_rng(1)
    check_densities_agree(pipla.Model(smooth, term), [draw(rng, kind, shape) for _ in range(5)])


@pytest.mark.parametrize("name", TERMS)
def test_the_plain_term_does_not_know_theta(name):
    term, kind, shape, plain_kind = TERMS[name]
    plain, _ = pipla.noncentred(pipla.Model(smooth, term))
    assert type(plain.nonsmooth) is plain_kind
    assert not plain.nonsmooth.uses_theta
    rng = np.random.default_rng(2)
    (theta, z), (other, _) = (draw(rng, kind, shape) for _ in range(2))
    assert plain.nonsmooth.value(theta, z) == plain.nonsmooth.value(other, z)


@pytest.mark.parametrize("name", TERMS)
def test_there_and_back(name):
    term, kind, shape, _ = TERMS[name]
    _, back = pipla.noncentred(pipla.Model(smooth, term))
    theta, z = draw(np.random.default_rng(3), kind, shape)
    np.testing.assert_allclose(back.inverse(theta, back(theta, z)), z, rtol=1e-12, atol=1e-14)
    x = back(theta, z)
    np.testing.assert_allclose(back(theta, back.inverse(theta, x)), x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", TERMS)
def test_the_metric_is_the_squared_derivative_of_z_by_x(name):
    # A step of length gamma in x is one of gamma (dz/dx)² in z.
    term, kind, shape, _ = TERMS[name]
    plain, back = pipla.noncentred(pipla.Model(smooth, term))
    theta, z = draw(np.random.default_rng(4), kind, shape)
    stretch = np.exp(log_jacobian(back, theta, z) / z.size)  # dx/dz, the same for all elements
    np.testing.assert_allclose(plain.particle_scale(theta, z[None]), 1 / stretch**2, rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LaplaceLocation", lambda t, z: t + z),
        ("LaplaceScale", lambda t, z: np.exp(2 * t) * z),
        ("UniformBox", lambda t, z: t * z),
        ("TVStrength", lambda t, z: np.exp(-t) * z),
        ("NuclearStrength", lambda t, z: np.exp(-t) * z),
    ],
)
def test_the_maps_are_those_of_the_specification(name, expected):
    term, kind, shape, _ = TERMS[name]
    _, back = pipla.noncentred(pipla.Model(smooth, term))
    theta, z = draw(np.random.default_rng(5), kind, shape)
    np.testing.assert_allclose(back(theta, z), expected(float(theta), np.asarray(z)), rtol=1e-12)


# Composites. #


def parts_smooth(theta, x, data):
    return smooth(theta["a"], x["w"], data) + smooth(theta["b"], x["v"], data) + theta["c"] ** 2


def parts_draw(rng):
    a, w = draw(rng, "real", (3,))
    b, v = draw(rng, "positive", (2, 2))
    return {"a": a, "b": b, "c": jnp.asarray(rng.normal())}, {"w": w, "v": v, "u": w + 1}


COMPOSITE = prox.LaplaceScale().on(theta="a", x="w") + prox.UniformBox().on(theta="b", x="v")


@pytest.mark.parametrize(
    "term",
    [
        COMPOSITE,
        COMPOSITE + prox.L1().on(x="u"),
        prox.LaplaceLocation().on(theta="a", x="w"),
        prox.LaplaceScale().translate(jnp.ones(3)).on(theta="a", x="w"),
    ],
    ids=["two", "three", "one", "translated"],
)
def test_terms_on_parts_and_sums(term):
    model = pipla.Model(parts_smooth, term)
    rng = np.random.default_rng(6)
    draws = [parts_draw(rng) for _ in range(4)]
    check_densities_agree(model, draws)
    _, back = pipla.noncentred(model)
    for theta, z in draws:
        again = back.inverse(theta, back(theta, z))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), again, z)
        np.testing.assert_array_equal(back(theta, z)["u"], z["u"])


def test_a_composite_can_be_stepped_and_observed():
    model, back = pipla.noncentred(pipla.Model(parts_smooth, COMPOSITE))
    theta, z = parts_draw(np.random.default_rng(7))
    cloud = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), z)
    algorithm, save = pipla.PIPGLA(0.01), pipla.Save(1, quantity=back)
    model.check(theta, cloud)

    def once():
        state, _ = algorithm.step(jax.random.key(0), algorithm.init(model, theta, cloud), model)
        return state, observe(save.quantity, state.theta, state.particles)

    state, observed = jax.eval_shape(once)
    shapes = jax.tree.map(jnp.shape, (theta, cloud, cloud))
    assert jax.tree.map(jnp.shape, (state.theta, state.particles, observed)) == shapes


# What is not known. #


class Odd(prox.ClosedForm):
    """A term of one's own that uses theta."""

    def value(self, theta, x):
        return theta * jnp.sum(jnp.abs(x))

    def prox(self, theta, x, lam_theta, lam_x):
        return theta, x


@pytest.mark.parametrize(
    "term",
    [Odd(), Odd().on(theta="a", x="w"), Odd().translate(1.0)],
    ids=["plain", "on a part", "translated"],
)
def test_an_unknown_term_is_named(term):
    with pytest.raises(TypeError, match="Odd.*noncentred_term.register"):
        pipla.noncentred(pipla.Model(smooth, term))


@pytest.mark.parametrize("regulariser", [prox.ElasticNet(), prox.Box(-1.0, 1.0)])
def test_the_strength_of_a_penalty_that_is_not_homogeneous_is_refused(regulariser):
    # x = e^{-r theta} z takes theta out of e^{r theta} R(x) only if R(c x) = |c|^k R(x).
    model = pipla.Model(smooth, prox.Strength(regulariser))
    with pytest.raises(TypeError, match=f"{type(regulariser).__name__}.*homogeneous"):
        pipla.noncentred(model)


def test_a_term_of_ones_own_can_be_registered():
    from pipla.models.noncentred import noncentred_term
    from pipla.models.reparametrisations import Shift

    class Mine(prox.LaplaceLocation):
        pass

    class Other(Odd):
        pass

    assert type(noncentred_term(Mine())[0]) is Shift  # as its parent
    noncentred_term.register(Other, lambda term: (Shift(), prox.L1()))
    model, back = pipla.noncentred(pipla.Model(smooth, Other()))
    assert type(model.nonsmooth) is prox.L1
    assert back(1.0, 2.0) == 3.0


# Numerics. #


@pytest.mark.parametrize("name", TERMS)
def test_float32_stays_float32(name):
    term, kind, shape, _ = TERMS[name]
    plain, back = pipla.noncentred(pipla.Model(smooth, term))
    theta, z = (leaf.astype(jnp.float32) for leaf in draw(np.random.default_rng(8), kind, shape))
    for value in (
        back(theta, z),
        back.inverse(theta, z),
        plain.potential(theta, z),
        *jax.tree.leaves(plain.particle_scale(theta, z[None])),
    ):
        assert value.dtype == jnp.float32


def test_writing_a_model_twice_compiles_once():
    centred = pipla.Model(smooth, prox.LaplaceScale())

    def once():
        model, back = pipla.noncentred(centred)
        return pipla.run(
            model,
            pipla.PIPGLA(0.01),
            theta=jnp.zeros(()),
            particles=jnp.ones((2, D)),
            num_steps=3,
            key=jax.random.key(0),
            save=pipla.Save(1, quantity=back),
            check=False,
        )

    once()
    with compilations() as compiled:
        once()
    assert compiled == []


def test_a_model_without_smooth_part_keeps_what_the_jacobian_leaves():
    # e^theta |x|_* without its normaliser: the Jacobian d theta must stay in the smooth part.
    model, _ = pipla.noncentred(pipla.Model(None, prox.NuclearStrength()))
    slope = jax.grad(model.smooth_value)(jnp.asarray(0.3), jnp.ones((3, 2)))
    np.testing.assert_allclose(slope, 6.0)


@pytest.mark.parametrize("term", [prox.LaplaceLocation(), prox.LaplaceScale(), prox.UniformBox()])
def test_theta_must_be_a_number_as_in_the_centred_model(term):
    model, back = pipla.noncentred(pipla.Model(smooth, term))
    for bad in (jnp.ones(D), jnp.ones((3, 1))):
        with pytest.raises(ValueError, match="needs a scalar theta"):
            model.check(bad, jnp.ones((2, D)))
        with pytest.raises(ValueError, match="needs a scalar theta"):
            back.inverse(bad, jnp.ones(D))
    with pytest.raises(TypeError, match=r"theta is a dict.*on\(theta="):
        model.check({"a": jnp.ones(())}, jnp.ones((2, D)))


# Steps no longer than the prior is wide. #


@pytest.mark.parametrize(("weight", "longest"), [(1.0, 0.1), (2.0, 0.025)])
def test_a_step_is_bounded_by_the_length_of_the_prior(weight, longest):
    """Far from the data the metric alone would make the step 1.6 squared prior lengths."""
    term = prox.Strength(prox.L1(weight), rate=-2.0)
    model = pipla.noncentred(pipla.Model(None, term)).model
    z = jnp.zeros((4000, D))
    scheme = pipla.PIPGLA(1e-5, theta_noise=False, smoothing=1e-12)
    for alpha in (-3.0, -5.0, -30.0):
        state = scheme.init(model, jnp.asarray(alpha), z)
        moved = scheme.step(jax.random.key(0), state, model)[0].particles
        # 16000 normals: the standard deviation is known to .6 %, and five times that is 3 %.
        np.testing.assert_allclose(jnp.std(moved), np.sqrt(2 * longest), rtol=0.03)
    state = scheme.init(model, jnp.asarray(-1.0), z)
    moved = scheme.step(jax.random.key(0), state, model)[0].particles
    np.testing.assert_allclose(jnp.std(moved), np.sqrt(2e-5 * np.exp(4.0)), rtol=0.03)


def test_the_bound_is_per_part_and_only_for_scales():
    term = prox.LaplaceScale().on(theta="a", x="w") + prox.LaplaceLocation().on(theta="b", x="v")
    model = pipla.noncentred(pipla.Model(None, term)).model
    particles = {"w": jnp.zeros((2, D)), "v": jnp.zeros((2, 3)), "u": jnp.zeros((2, 1))}
    theta = {"a": jnp.asarray(-9.0), "b": jnp.asarray(4.0)}
    scheme = pipla.PIPGLA(5.0)
    scales = scheme.scales(scheme.init(model, theta, particles), model)
    assert jax.tree.map(float, scales.particles) == {"w": 0.1 / 5.0, "v": 1.0, "u": 1.0}
