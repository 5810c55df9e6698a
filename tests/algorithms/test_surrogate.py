"""The Gaussian in the place of a likelihood, and theta's interwoven move, against exact answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import pipla
from pipla.algorithms.exponential import ExponentialFlow
from pipla.algorithms.interwoven import WAIT, Curvature, interweave
from pipla.algorithms.langevin import Noise
from pipla.algorithms.surrogate import (
    LONGEST_STRETCH,
    MISMATCH,
    MOST_BETWEEN,
    REFRESH_AFTER,
    Surrogate,
)
from pipla.algorithms.wrappers.paired import Paired
from pipla.prox import L1, Box, LaplaceLocation, Strength

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(6, 4))
MATRIX = ROOT.T @ ROOT
CENTRE = RNG.normal(size=4)
START = jnp.zeros((), jnp.int32)


def quadratic(theta, x, data):
    return 0.5 * (x - data["c"]) @ data["a"] @ (x - data["c"])


MODEL = pipla.Model(quadratic, Strength(L1()), {"a": MATRIX, "c": CENTRE})
SKEWED = pipla.Model(lambda theta, x, data: jnp.sum(jnp.exp(x) + x**2), Strength(L1()))
THETA = jnp.asarray(0.3)
CLOUD = jnp.asarray(RNG.normal(size=(8, 4)))


def flowed(noise, time=0.7):
    surrogate = Surrogate.measured(MODEL, THETA, CLOUD, START)
    gradients = MODEL.gradients(THETA, CLOUD).particles
    scale = surrogate.scale(MODEL, THETA, CLOUD)
    return surrogate.flow(CLOUD, gradients, time * scale, noise), time * float(scale)


def test_without_noise_a_quadratic_decays_exactly():
    moved, time = flowed(jnp.zeros_like(CLOUD), 0.02)
    decay = scipy.linalg.expm(-time * MATRIX)
    np.testing.assert_allclose(moved, CENTRE + (np.asarray(CLOUD) - CENTRE) @ decay, rtol=1e-10)


def test_the_noise_has_the_covariance_of_the_diffusion():
    rest, time = flowed(jnp.zeros_like(CLOUD))
    pushes = jnp.concatenate([jnp.sqrt(2 * time) * jnp.eye(4), jnp.zeros((4, 4))])
    moved, _ = flowed(pushes)
    columns = np.asarray(moved - rest)[:4].T  # the linear map from normals to x
    exact = scipy.linalg.solve(MATRIX, np.eye(4) - scipy.linalg.expm(-2 * time * MATRIX))
    np.testing.assert_allclose(columns @ columns.T, exact, rtol=1e-10)


def test_parts_of_x_have_units_of_their_own():
    """A dict of two parts whose priors differ by 100 in length is the same flow as a vector."""

    def smooth(theta, x, data):
        return quadratic(theta, jnp.concatenate([x["u"], x["v"]]), data)

    term = L1(1.0).on(x="u") + L1(100.0).on(x="v")
    model = pipla.Model(smooth, term, MODEL.data)
    cloud = {"u": CLOUD[:, :2], "v": CLOUD[:, 2:]}
    surrogate = Surrogate.measured(model, THETA, cloud, START)
    assert float(surrogate.units["u"]) == 1.0
    assert float(surrogate.units["v"]) == pytest.approx(1e-4)
    gradients = model.gradients(THETA, cloud).particles
    scale = surrogate.scale(model, THETA, cloud)
    time = jax.tree.map(lambda unit: 0.01 * unit, scale)
    zero = jax.tree.map(jnp.zeros_like, cloud)
    moved = surrogate.flow(cloud, gradients, time, zero)
    metric = np.diag([1.0, 1.0, 1e-4, 1e-4])
    decay = scipy.linalg.expm(-0.01 * metric @ MATRIX)
    exact = CENTRE + (np.asarray(CLOUD) - CENTRE) @ decay.T
    np.testing.assert_allclose(jnp.concatenate([moved["u"], moved["v"]], 1), exact, rtol=1e-8)


def test_a_leaf_that_no_term_touches_has_a_unit_that_crosses_its_posterior():
    """One precise row fixes intercept + slope, so that the intercept alone looks far too stiff.

    Its variance, with the slopes' prior a Gaussian of the same length, is that of the inverse of
    the whole precision: 200 times the inverse of its own curvature.
    """
    rows = np.vstack([[1.0, 1.0, 0.0], [1.0, -0.5, 0.3], [1.0, 0.2, -0.7]])
    weights = np.array([1e3, 1.0, 1.0])

    def smooth(theta, x, data):
        z = x["intercept"] + data["rows"][:, 1:] @ x["slopes"]
        return 0.5 * jnp.sum(data["weights"] * z**2)

    model = pipla.Model(smooth, Strength(L1()).on(x="slopes"), {"rows": rows, "weights": weights})
    cloud = {"intercept": jnp.zeros(8), "slopes": jnp.asarray(RNG.normal(size=(8, 2)))}
    units = Surrogate.measured(model, THETA, cloud, START).units
    curvature = rows.T @ (weights[:, None] * rows)
    length = np.exp(-2 * float(THETA))
    variance = np.linalg.inv(curvature + np.diag([0, 1 / length, 1 / length]))[0, 0]
    assert variance > 200 / curvature[0, 0]
    np.testing.assert_allclose(units["intercept"], variance, rtol=1e-8)
    np.testing.assert_allclose(units["slopes"], length, rtol=1e-12)


def test_a_free_leaf_that_nothing_determines_has_a_finite_unit():
    model = pipla.Model(lambda theta, x, y: jnp.sum((x["a"] - y) ** 2) / 2, L1().on(x="a"), 1.0)
    cloud = {"a": jnp.ones((8, 2)), "b": jnp.zeros(8)}
    assert float(Surrogate.measured(model, THETA, cloud, START).units["b"]) == 1.0


@pytest.mark.parametrize("step", [0.001, 0.03, 0.2])
def test_particles_are_where_likelihood_and_prior_are_in_balance(step):
    """Without noise and far from the kink the answer is known: A(x - c) = -e^theta.

    The proximal points are off by up to half the step's time times the strength: along directions
    that the data fix closely, by many standard deviations.
    """
    matrix, centre = 100 * MATRIX, 50.0 + CENTRE
    data = {"a": matrix, "c": centre}
    model = pipla.Model(quadratic, Strength(L1()), data)
    exact = centre - np.linalg.solve(matrix, np.full(4, np.exp(float(THETA))))
    images = jnp.asarray(np.repeat(exact[None], 8, axis=0))
    surrogate = Surrogate.measured(model, THETA, images, START)
    time = step * surrogate.scale(model, THETA, images)

    def iterate(images):
        gradients = model.gradients(THETA, images).particles
        free = surrogate.flow(images, gradients, time, jnp.zeros_like(images))
        return free, free - time / 2 * jnp.exp(THETA)  # the prox far from the kink

    def again(_, images):
        free, points = iterate(images)
        return 2 * points - free

    free, points = iterate(jax.lax.fori_loop(0, 3000, again, images))
    np.testing.assert_allclose(surrogate.balanced(free, points, time)[0], exact, rtol=1e-8)
    assert step < 0.01 or np.max(np.abs(points[0] - exact)) > 1e-3


@pytest.mark.parametrize("step", [0.03, 0.3])
def test_a_step_reports_the_particles_in_balance(step):
    """The steps of `RPL` and `IRPL`, without their noise: exact for a quadratic, far from the kink.

    Directions that relax within a step and directions that do not are both among the four.
    """
    centre = 50.0 + CENTRE
    matrix = scipy.linalg.block_diag(30.0 * MATRIX[:2, :2], 0.3 * MATRIX[2:, 2:])
    model = pipla.Model(quadratic, Strength(L1()), {"a": matrix, "c": centre})
    exact = centre - np.linalg.solve(matrix, np.full(4, np.exp(float(THETA))))
    start = jnp.asarray(np.repeat(exact[None], 8, axis=0))
    algorithm = ExponentialFlow(step_size=step, theta_update="interwoven", theta_noise=False)
    still = Noise(THETA, jnp.zeros_like(start))

    def move(state):
        return algorithm.move(state, still, algorithm.scales(state, model), model)

    def again(_, state):
        return state._replace(reflected=move(state).reflected)

    settled = jax.lax.fori_loop(0, 4000, again, algorithm.init(model, THETA, start))
    at_rest = move(settled)
    np.testing.assert_allclose(at_rest.particles[0], exact, rtol=1e-8)
    # What carries the dynamics is not where they are.
    assert np.max(np.abs(at_rest.reflected[0] - exact)) > 1e-3


def test_it_is_measured_anew_at_doubling_intervals():
    def smooth(theta, x, data):
        return 0.5 * jnp.exp(theta) * jnp.sum(x**2)

    model = pipla.Model(smooth, L1())
    surrogate = Surrogate.measured(model, THETA, CLOUD, START)
    refreshed = jax.jit(lambda surrogate, theta: surrogate.refreshed(model, theta, CLOUD))
    changes = []
    for step in range(9 * REFRESH_AFTER):
        theta = jnp.asarray(0.001 * step)
        before, surrogate = surrogate, refreshed(surrogate, theta)
        if float(surrogate.eigenvalues[0]) != float(before.eigenvalues[0]):
            changes.append(step)
    assert changes == [REFRESH_AFTER * factor for factor in (1, 2, 4, 8)]


def test_it_is_measured_in_between_where_the_noise_has_moved():
    """A noise that starts far too high fell by a factor of 1.4 from one measurement to the next.

    Beyond twice the curvature of the surrogate the flow overshoots, and keeps the noise up.
    """

    def smooth(theta, x, data):
        return 0.5 * jnp.exp(-2 * theta["noise"]) * jnp.sum(x**2) + x.size * theta["noise"]

    model = pipla.Model(smooth, Strength(L1()).on(theta="strength"))

    def run(theta_at, steps):
        theta = theta_at(0)
        surrogate = Surrogate.measured(model, theta, CLOUD, START)
        refreshed = jax.jit(lambda surrogate, theta: surrogate.refreshed(model, theta, CLOUD))
        for step in range(steps):
            surrogate = refreshed(surrogate, theta_at(step))
        return surrogate

    def at(noise, strength=0.0):
        return {"noise": jnp.asarray(noise), "strength": jnp.asarray(strength)}

    fallen = run(lambda step: at(5.0 - 3.0 * (step > 41)), 48)
    assert int(fallen.between) == 1
    # In units of the prior, whose strength is 1.
    np.testing.assert_allclose(fallen.eigenvalues, np.exp(-4.0), rtol=1e-10)
    # Noise of theta is no reason, nor is a part that the likelihood does not use.
    assert int(run(lambda step: at(5.0 + 0.05 * (-1) ** step, 0.5 * step), 48).between) == 0
    # And there is an end to it.
    assert int(run(lambda step: at(5.0 * (step // 5 % 2)), 500).between) == MOST_BETWEEN


def test_a_wall_that_the_data_press_against_shortens_the_step():
    def smooth(theta, x, data):
        return 0.5 * jnp.sum((x - data) ** 2)

    near = pipla.Model(smooth, Box(-1.0, 1.0), jnp.zeros(4))
    far = pipla.Model(smooth, Box(-1.0, 1.0), jnp.asarray([0.0, 0.0, 0.0, 30.0]))
    inside = jnp.clip(CLOUD, -1, 1)
    units = [float(Surrogate.measured(m, THETA, inside, START).units) for m in (near, far)]
    assert units[0] == pytest.approx(1 / 3)
    # Only particles within the layer, of width 1/slope, count.
    slope = 30.0 - np.asarray(inside)[:, 3]
    pressed = np.asarray(inside)[:, 3] + 1 / slope > 1
    assert 0 < pressed.sum() < len(pressed)
    assert units[1] == pytest.approx(2.5 / np.mean(pressed * slope**2))
    # Far from the walls the same slope shortens nothing.
    assert float(Surrogate.measured(far, THETA, 0.1 * inside, START).units) == units[0]


def test_reflection_at_walls_samples_a_truncated_normal():
    """Six errors of about 3 × 64 × 2000/50 independent draws: once in 10⁸ runs, and the bias."""
    model = pipla.Model(lambda t, x, d: 0.5 * jnp.sum((x - 1.5) ** 2), Box(-1.0, 1.0))
    algorithm = pipla.RPL(0.02, theta_update="frozen", first=1.0, antithetic=False)
    result = pipla.run(
        model,
        algorithm,
        theta=jnp.zeros(()),
        particles=jnp.zeros((64, 3)),
        num_steps=4000,
        key=jax.random.key(0),
        save=pipla.Save(5),
    )
    from scipy.stats import truncnorm

    exact = truncnorm(-2.5, -0.5, loc=1.5)
    assert float(np.mean(result.x_mean)) == pytest.approx(exact.mean(), abs=0.03)
    assert float(np.mean(np.sqrt(result.x_variance))) == pytest.approx(exact.std(), rel=0.05)


# The interwoven move. #


def waited(theta):
    return Curvature.unknown(theta)._replace(steps=jnp.asarray(WAIT))


def test_theta_waits_for_the_particles():
    unknown = Curvature.unknown(THETA)
    after = jax.jit(lambda *at: interweave(MODEL, *at))(THETA, CLOUD, None, CLOUD, unknown)
    assert float(after.theta) == float(THETA)
    np.testing.assert_allclose(after.particles, CLOUD, rtol=1e-12)


def test_it_is_the_closed_form_and_half_a_newton_step():
    after = interweave(MODEL, THETA, CLOUD, None, 2 * CLOUD, waited(THETA))
    closed = np.log(4 / np.mean(np.abs(CLOUD).sum(axis=1)))

    def mean(s, cloud):  # the particles at strength e^s, their z held
        moved = jnp.exp(closed - s) * cloud
        return jnp.mean(jax.vmap(lambda x: quadratic(None, x, MODEL.data))(moved))

    slope = jax.grad(mean)(closed, CLOUD)
    bend = jax.grad(jax.grad(mean))(closed, CLOUD[:4])
    share = 1 / 20  # the first values are averaged with the zeros of an unknown curvature
    damped = share * bend + abs(share * slope)
    step = np.clip(-0.5 * slope / abs(damped), -0.5, 0.5)
    np.testing.assert_allclose(after.theta, closed + step, rtol=1e-10)
    factor = np.exp(-step)
    np.testing.assert_allclose(after.particles, factor * CLOUD, rtol=1e-10)
    np.testing.assert_allclose(after.images, factor * 2 * CLOUD, rtol=1e-10)


def test_no_move_is_longer_than_is_safe():
    tiny = 1e-9 * CLOUD  # the closed form would send the strength to 10⁹
    after = interweave(MODEL, THETA, tiny, None, None, waited(THETA))
    assert abs(float(after.theta - THETA)) <= 1.5
    zero = interweave(MODEL, THETA, jnp.zeros_like(CLOUD), None, None, waited(THETA))
    assert np.isfinite(zero.theta)


@pytest.mark.parametrize("count", [7, 8])
def test_the_median_halves_the_elements(count):
    values = jnp.asarray(RNG.normal(size=(count, 3)))
    found = float(LaplaceLocation().closed_form(THETA, values))
    assert int(np.sum(values < found)) <= values.size / 2 <= int(np.sum(values <= found))


def test_many_numbers_in_theta_are_refused():
    with pytest.raises(ValueError, match="201 numbers, and theta_update='interwoven' takes at"):
        Curvature.unknown(jnp.zeros(201))


def test_terms_that_can_do_neither_are_refused():
    class Own(pipla.prox.base.ClosedForm):
        def value(self, theta, x):
            return jnp.sum(jnp.abs(x)) + 0 * theta

        def prox(self, theta, x, lam_theta, lam_x):
            return theta, x

    model = pipla.Model(quadratic, Own(), MODEL.data)
    with pytest.raises(TypeError, match="closed-form theta or a non-centred form"):
        interweave(model, THETA, CLOUD, None, None, waited(THETA))


def test_what_a_surrogate_misses_shortens_its_unit_of_time():
    """Hessians 0 and 2 k about the mean k: the spectral distance to the mean is k for each."""
    k = 5 * MISMATCH
    model = pipla.Model(lambda theta, x, data: jnp.sum(jnp.where(x > 0, k, 0.0) * x**2), L1(1.0))
    both = jnp.asarray([[1.0], [-1.0]] * 4)
    assert float(Surrogate.measured(model, THETA, both, START).units) == pytest.approx(0.2)
    alike = jnp.ones((8, 1))
    assert float(Surrogate.measured(model, THETA, alike, START).units) == 1.0


def test_a_drift_is_bounded_in_standard_deviations_of_the_surrogate():
    """A gradient that has nothing to do with the surrogate, as in the tail of an exponential."""
    steep = pipla.Model(quadratic, Strength(L1()), {"a": 1e6 * MATRIX, "c": CENTRE})
    surrogate = Surrogate.measured(steep, THETA, CLOUD, START)
    zero, time = jnp.zeros_like(CLOUD), surrogate.scale(steep, THETA, CLOUD)
    some, much = (surrogate.flow(zero, g * jnp.ones_like(CLOUD), time, zero) for g in (1e6, 1e9))
    np.testing.assert_allclose(much, some, rtol=1e-6)
    sds = np.sqrt(1e6 * np.einsum("ni,ij,nj->n", some, MATRIX, some))
    np.testing.assert_allclose(sds, LONGEST_STRETCH * np.sqrt(4), rtol=1e-6)


def test_of_a_step_and_its_half_steps_one_measures_for_both():
    """With two surrogates the half steps would not be half as long, and twice the work."""
    paired = Paired(pipla.IRPL(0.1))  # an annealed flow: the wrapper hands the surrogate on
    state, _ = paired.step(jax.random.key(1), paired.init(SKEWED, THETA, CLOUD), SKEWED)
    due = eqx.tree_at(
        lambda s: s.inner.inner.surrogate.steps, state, jnp.asarray(REFRESH_AFTER, jnp.int32)
    )
    after, _ = paired.step(jax.random.key(0), due, SKEWED)
    coarse, fine = after.inner.inner.surrogate, after.fine.inner.surrogate
    assert not np.allclose(coarse.eigenvalues, state.inner.inner.surrogate.eigenvalues)
    np.testing.assert_array_equal(fine.eigenvalues, coarse.eigenvalues)
    assert float(fine.units) == float(coarse.units)
    program = str(jax.make_jaxpr(lambda s: paired.step(jax.random.key(0), s, SKEWED))(state))
    assert program.count(" eigh[") == 1
