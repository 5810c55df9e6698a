"""One step of every algorithm against a literal NumPy transcription of its equations.

The names are those of PAPER.md, section 2: theta, X, gam, lam, P (the block scaling of theta), xi0
and xi (standard normals, drawn here from the same key). The proximal map is NumPy's own, too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pipla

N, D = 4, 3
GAM, LAM, P = 0.07, 0.2, 0.3
SCALE = 2.0
Y = np.array([0.5, -1.0, 2.0])
THETA = 0.4
X = np.random.default_rng(0).normal(size=(N, D))
KEY = jax.random.key(5)


def smooth(theta, x, y):
    return jnp.sum((x - y) ** 2) / 2 + (theta - 1.0) ** 2 / 2 + 0.3 * theta * jnp.sum(x)


MODEL = pipla.Model(smooth, pipla.prox.LaplaceLocation(scale=SCALE), data=Y)


# The model in NumPy. #


def g1_theta(theta, X):
    return theta - 1 + 0.3 * X.sum(axis=1)


def g1_x(theta, X):
    return X - Y + 0.3 * theta


def g2_theta(theta, X):
    return -np.sign(X - theta).sum(axis=1) / SCALE


def g2_x(theta, X):
    return np.sign(X - theta) / SCALE


def prox(theta, X, lam_theta, lam_x):
    """Of sum |x - theta|/b for every particle: the root of PAPER.md 3.1 by bisection."""
    points = []
    for x in X:

        def excess(u0, x=x):
            clipped = np.clip((x - u0) / lam_x, -1 / SCALE, 1 / SCALE)
            return u0 - theta - lam_theta * clipped.sum()

        low, high = theta - D * lam_theta / SCALE, theta + D * lam_theta / SCALE
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) < 0 else (low, middle)
        u0 = (low + high) / 2
        points.append((u0, x - np.clip(x - u0, -lam_x / SCALE, lam_x / SCALE)))
    return np.array([u0 for u0, _ in points]), np.array([u for _, u in points])


# The algorithms in NumPy: (theta, X, xi0, xi) -> (theta, X). #


def pgd(theta, X, xi0, xi):
    slope = (g1_theta(theta, X) + g2_theta(theta, X)).mean()
    force = g1_x(theta, X) + g2_x(theta, X)
    return theta - GAM * P * slope, X - GAM * force + np.sqrt(2 * GAM) * xi


def ipla(theta, X, xi0, xi):
    new, moved = pgd(theta, X, xi0, xi)
    return new + np.sqrt(2 * GAM * P / N) * xi0, moved


def mypgd(theta, X, xi0, xi):
    u0, u = prox(theta, X, LAM * P, LAM)
    new = theta - GAM * P * g1_theta(theta, X).mean() - (GAM / LAM) * (theta - u0).mean()
    moved = X - GAM * g1_x(theta, X) - (GAM / LAM) * (X - u) + np.sqrt(2 * GAM) * xi
    return new, moved


def myipla(theta, X, xi0, xi):
    new, moved = mypgd(theta, X, xi0, xi)
    return new + np.sqrt(2 * GAM * P / N) * xi0, moved


def pipgla(theta, X, xi0, xi, noise=1.0, lam=GAM):
    half = theta - GAM * P * g1_theta(theta, X).mean() + noise * np.sqrt(2 * GAM * P / N) * xi0
    half_x = X - GAM * g1_x(theta, X) + np.sqrt(2 * GAM) * xi
    u0, u = prox(half, half_x, lam * P, lam)
    return u0.mean(), u


def pipgla_quiet(theta, X, xi0, xi):
    return pipgla(theta, X, xi0, xi, noise=0.0)


def pipgla_other_smoothing(theta, X, xi0, xi):
    return pipgla(theta, X, xi0, xi, lam=LAM)


def ppgd(theta, X, xi0, xi):
    forward = theta - GAM * P * g1_theta(theta, X).mean()
    u0, u = prox(forward, X - GAM * g1_x(theta, X), GAM * P, GAM)
    return u0.mean(), u + np.sqrt(2 * GAM) * xi


def pipula(theta, X, xi0, xi):
    new, moved = ppgd(theta, X, xi0, xi)
    return new + np.sqrt(2 * GAM * P / N) * xi0, moved


def myula(theta, X, xi0, xi):
    _, u = prox(theta, X, 0.0, LAM)
    moved = X - GAM * g1_x(theta, X) - (GAM / LAM) * (X - u) + np.sqrt(2 * GAM) * xi
    return theta, moved


def pgla(theta, X, xi0, xi):
    _, u = prox(theta, X - GAM * g1_x(theta, X) + np.sqrt(2 * GAM) * xi, 0.0, GAM)
    return theta, u


# Hybrid: the gradient of the whole potential for theta, the prox over x alone.


def mypgd_hybrid(theta, X, xi0, xi):
    slope = (g1_theta(theta, X) + g2_theta(theta, X)).mean()
    return theta - GAM * P * slope, myula(theta, X, xi0, xi)[1]


def myipla_hybrid(theta, X, xi0, xi):
    new, moved = mypgd_hybrid(theta, X, xi0, xi)
    return new + np.sqrt(2 * GAM * P / N) * xi0, moved


def pipgla_hybrid(theta, X, xi0, xi):
    slope = (g1_theta(theta, X) + g2_theta(theta, X)).mean()
    new = theta - GAM * P * slope + np.sqrt(2 * GAM * P / N) * xi0
    half_x = X - GAM * g1_x(theta, X) + np.sqrt(2 * GAM) * xi
    return new, prox(new, half_x, 0.0, GAM)[1]


HYBRID = {"theta_update": "gradient"}
STEPS = {
    "PGD": (pipla.PGD(GAM, theta_scale=P), pgd),
    "IPLA": (pipla.IPLA(GAM, theta_scale=P), ipla),
    "MYPGD": (pipla.MYPGD(GAM, LAM, theta_scale=P), mypgd),
    "MYIPLA": (pipla.MYIPLA(GAM, LAM, theta_scale=P), myipla),
    "PIPGLA": (pipla.PIPGLA(GAM, theta_scale=P), pipgla),
    "PIPGLA, quiet theta": (pipla.PIPGLA(GAM, theta_scale=P, theta_noise=False), pipgla_quiet),
    "PIPGLA, lam not gam": (pipla.PIPGLA(GAM, LAM, theta_scale=P), pipgla_other_smoothing),
    "PIPULA": (pipla.PIPULA(GAM, theta_scale=P), pipula),
    "PPGD": (pipla.PPGD(GAM, theta_scale=P), ppgd),
    "MYULA": (pipla.MYULA(GAM, LAM), myula),
    "PGLA": (pipla.PGLA(GAM), pgla),
    "MYPGD hybrid": (pipla.MYPGD(GAM, LAM, theta_scale=P, **HYBRID), mypgd_hybrid),
    "MYIPLA hybrid": (pipla.MYIPLA(GAM, LAM, theta_scale=P, **HYBRID), myipla_hybrid),
    "PIPGLA hybrid": (pipla.PIPGLA(GAM, theta_scale=P, **HYBRID), pipgla_hybrid),
}


def normals(key=KEY, shape=(N, D)):
    theta_key, cloud_key = jax.random.split(key)
    xi0, xi = jax.random.normal(theta_key, ()), jax.random.normal(cloud_key, shape)
    return float(xi0), np.asarray(xi)


def step(algorithm, model=MODEL, theta=THETA, particles=X, key=KEY):
    theta = jax.tree.map(jnp.asarray, theta)
    state = algorithm.init(model, theta, jnp.asarray(particles))
    state, info = algorithm.step(key, state, model)
    return jax.tree.map(np.asarray, state.theta), np.asarray(state.particles), info


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_its_equations(name):
    algorithm, equations = STEPS[name]
    theta, particles, _ = step(algorithm)
    expected = equations(THETA, X, *normals())
    np.testing.assert_allclose(theta, expected[0], rtol=1e-12)
    np.testing.assert_allclose(particles, expected[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["IPLA", "MYIPLA", "PIPGLA", "PIPULA", "PGLA"])
def test_an_antithetic_step_is_its_equations_with_paired_noise(name):
    algorithm, equations = STEPS[name]
    fields = {
        field: getattr(algorithm, field)
        for field in ("step_size", "theta_update", "theta_noise", "theta_scale")
    }
    if getattr(algorithm, "smoothing", None) is not None:
        fields["smoothing"] = algorithm.smoothing
    theta, particles, _ = step(type(algorithm)(**fields, antithetic=True))
    xi0, half = normals(shape=(N // 2, D))
    xi = np.stack([half[0], -half[0], half[1], -half[1]])
    expected = equations(THETA, X, xi0, xi)
    np.testing.assert_allclose(theta, expected[0], rtol=1e-12)
    np.testing.assert_allclose(particles, expected[1], rtol=1e-12, atol=1e-12)


def test_soul_averages_the_theta_gradient_over_its_moves():
    moves = 3
    theta, particles, info = step(pipla.SOUL(GAM, num_moves=moves, theta_scale=P))
    chain, slopes = X, []
    for key in jax.random.split(KEY, moves):
        slopes.append((g1_theta(THETA, chain) + g2_theta(THETA, chain)).mean())
        _, chain = pgd(THETA, chain, *normals(key))
    np.testing.assert_allclose(theta, THETA - GAM * P * np.mean(slopes), rtol=1e-12)
    np.testing.assert_allclose(particles, chain, rtol=1e-12)
    np.testing.assert_allclose(info.theta_gradient, np.mean(slopes), rtol=1e-12)


def test_several_moves_average_the_displacement_of_any_scheme():
    theta, particles, _ = step(pipla.MYPGD(GAM, LAM, theta_scale=P, num_moves=2))
    chain, targets = X, []
    for key in jax.random.split(KEY, 2):
        target, chain = mypgd(THETA, chain, *normals(key))
        targets.append(target)
    np.testing.assert_allclose(theta, np.mean(targets), rtol=1e-12)
    np.testing.assert_allclose(particles, chain, rtol=1e-12)


def without_theta(theta, x, y):
    return jnp.sum((x - y) ** 2) / 2


PRIOR_ONLY = pipla.Model(without_theta, pipla.prox.LaplaceLocation(scale=SCALE), data=Y)


# Theta that does not move, or moves by an optimiser. #

FROZEN = {"theta_update": "frozen", "theta_scale": P}


@pytest.mark.parametrize("theta", [THETA, {"a": 1e-300, "b": -0.0}], ids=str)
@pytest.mark.parametrize(
    "make", [pipla.PGD, pipla.IPLA, pipla.MYULA, pipla.PGLA, pipla.PIPULA], ids=lambda f: f.__name__
)
def test_frozen_theta_stays_bit_for_bit(make, theta):
    given = {"smoothing": LAM} if make in (pipla.MYULA, pipla.PGLA) else {}
    fixed = {} if make in (pipla.MYULA, pipla.PGLA) else {"theta_update": "frozen"}
    algorithm = make(GAM, **given, **fixed, theta_scale=P)
    model = MODEL
    if isinstance(theta, dict):

        def part(theta, x, y):
            return smooth(theta["a"] + theta["b"], x, y)

        model = pipla.Model(part, pipla.prox.LaplaceLocation().on(theta="a"), data=Y)
    after, particles, _ = step(algorithm, model, theta)
    for old, new in zip(jax.tree.leaves(theta), jax.tree.leaves(after), strict=True):
        assert np.float64(old).tobytes() == new.tobytes()
    assert not np.any(particles == X)


@pytest.mark.parametrize("name", ["PGD", "MYPGD", "PPGD", "MYPGD hybrid", "PIPGLA, quiet theta"])
def test_optax_sgd_with_the_step_size_changes_nothing(name):
    algorithm, _ = STEPS[name]
    fields = {
        field: getattr(algorithm, field)
        for field in ("step_size", "theta_update", "theta_noise", "theta_scale")
    }
    if getattr(algorithm, "smoothing", None) is not None:
        fields["smoothing"] = algorithm.smoothing
    driven = type(algorithm)(**fields, theta_optimizer=optax.sgd(GAM))
    plain, optimised = step(algorithm), step(driven)
    np.testing.assert_allclose(optimised[0], plain[0], rtol=1e-12)
    np.testing.assert_array_equal(optimised[1], plain[1])


def test_an_optimizer_sees_the_displacement_over_the_step_size():
    seen = []

    def update(updates, state, params=None):
        seen.append((float(updates), float(params)))
        return jax.tree.map(lambda u: -0.01 * u, updates), state

    spy = optax.GradientTransformation(lambda params: (), update)
    theta, _, _ = step(pipla.PGD(GAM, theta_scale=P, theta_optimizer=spy))
    target, _ = pgd(THETA, X, *normals())
    ((slope, params),) = seen
    np.testing.assert_allclose(slope, (THETA - target) / GAM, rtol=1e-12)
    assert params == THETA
    np.testing.assert_allclose(theta, THETA - 0.01 * slope, rtol=1e-12)


def test_theta_scale_may_differ_between_the_parts_of_theta():
    def potential(theta, x, y):
        return jnp.sum((x - y) ** 2) / 2 + theta["a"] ** 2 + theta["b"] * jnp.sum(x)

    model = pipla.Model(potential, pipla.prox.GaussianLocation().on(theta="b"), data=Y)
    theta = {"a": 0.4, "b": -0.3}
    scales = {"a": 0.5, "b": 0.2}
    after, _, _ = step(pipla.MYPGD(GAM, LAM, theta_scale=scales), model, theta)
    pull = LAM * 0.2 * (X + 0.3).sum(axis=1) / (1 + LAM + LAM * 0.2 * D)
    np.testing.assert_allclose(after["a"], 0.4 - GAM * 0.5 * 2 * 0.4, rtol=1e-12)
    drift = GAM * 0.2 * X.sum(axis=1).mean()
    np.testing.assert_allclose(after["b"], -0.3 - drift + GAM / LAM * pull.mean(), rtol=1e-12)


M = 0.6
METRIC = pipla.Model(
    smooth,
    pipla.prox.LaplaceLocation(scale=SCALE),
    data=Y,
    metric=lambda theta, x: jnp.asarray(M, x.dtype),
)


def test_a_metric_of_the_particles_scales_step_noise_and_smoothing():
    xi0, xi = normals()
    noise = np.sqrt(2 * GAM * M) * xi
    theta, particles, _ = step(pipla.MYIPLA(GAM, LAM, theta_scale=P), METRIC)
    u0, u = prox(THETA, X, LAM * P, LAM * M)
    expected = X - GAM * M * g1_x(THETA, X) - (GAM / LAM) * (X - u) + noise
    np.testing.assert_allclose(particles, expected, rtol=1e-12)
    drift = GAM * P * g1_theta(THETA, X).mean() + (GAM / LAM) * (THETA - u0).mean()
    np.testing.assert_allclose(theta, THETA - drift + np.sqrt(2 * GAM * P / N) * xi0, rtol=1e-12)

    quiet = {"theta_noise": False, "theta_scale": P}
    theta, particles, _ = step(pipla.PIPGLA(GAM, **quiet), METRIC)
    half = THETA - GAM * P * g1_theta(THETA, X).mean()
    u0, u = prox(half, X - GAM * M * g1_x(THETA, X) + noise, GAM * P, GAM * M)
    np.testing.assert_allclose(theta, u0.mean(), rtol=1e-12)
    np.testing.assert_allclose(particles, u, rtol=1e-12)

    theta, particles, _ = step(pipla.PPGD(GAM, theta_scale=P), METRIC)
    u0, u = prox(half, X - GAM * M * g1_x(THETA, X), GAM * P, GAM * M)
    np.testing.assert_allclose(theta, u0.mean(), rtol=1e-12)
    np.testing.assert_allclose(particles, u + noise, rtol=1e-12)


def test_a_reflected_step_goes_as_far_beyond_the_proximal_point():
    algorithm = pipla.PIPGLA(GAM, reflected=True, theta_update="gradient", theta_noise=False)
    theta, particles, _ = step(algorithm)
    slope = (g1_theta(THETA, X) + g2_theta(THETA, X)).mean()
    new = THETA - GAM * slope
    half_x = X - GAM * g1_x(THETA, X) + np.sqrt(2 * GAM) * normals()[1]
    u = prox(new, half_x, 0.0, GAM / 2)[1]
    np.testing.assert_allclose(theta, new, rtol=1e-12)
    np.testing.assert_allclose(particles, 2 * u - half_x, rtol=1e-12)


def test_reflection_and_a_joint_prox_do_not_go_together():
    with pytest.raises(ValueError, match=r"reflected=True.*theta_update='gradient'"):
        step(pipla.PIPGLA(GAM, reflected=True))


def test_a_reflected_particle_never_leaves_a_constraint():
    box = pipla.Model(without_theta, pipla.prox.Box(-0.1, 0.1), data=Y)
    start = np.clip(X, -0.1, 0.1)
    _, particles, _ = step(pipla.PIPGLA(5.0, reflected=True), box, particles=start)
    assert np.all(np.abs(particles) <= 0.1)
    _, near, _ = step(pipla.PIPGLA(1e-4, reflected=True), box, particles=start)
    inside = np.abs(near) < 0.1
    assert inside.mean() > 0.9  # mirrored, not piled up on the border


def test_info_reports_the_mean_theta_slope_and_each_particle_slope():
    _, _, info = step(pipla.PIPGLA(GAM))
    np.testing.assert_allclose(info.theta_gradient, g1_theta(THETA, X).mean(), rtol=1e-12)
    np.testing.assert_allclose(info.particle_gradient, g1_x(THETA, X), rtol=1e-12)
    assert float(info.prox_gap) == 0


def test_presets_with_a_smaller_step_tend_to_the_same_drift():
    # Schemes differ at second order in the step only: one family, one dynamics.
    gam = 1e-6
    quiet = {"theta_noise": False}
    for algorithm in (
        pipla.MYPGD(gam, 1e-3),
        pipla.PIPGLA(gam, **quiet),
        pipla.PPGD(gam),
    ):
        theta, _, _ = step(algorithm)
        slope = (THETA - theta) / gam
        expected = (g1_theta(THETA, X) + g2_theta(THETA, X)).mean()
        np.testing.assert_allclose(slope, expected, rtol=1e-2)
